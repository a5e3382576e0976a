"""What can go wrong between Spark and a cluster, each as one sentence that says what to do.

Raised by every part of penstock.spark, in the driver and in Spark's Python workers.

Spark hands a worker's exception to the user as the text of its traceback: the sentence comes last, after the frames
of two libraries. Two ways around it:
- `told_plainly` around whatever Spark calls in a worker: the sentence is then all that Spark passes on.
- `reason(error)` in the driver: the sentence out of whatever Spark raised.
"""

import difflib
import os
import re
from collections.abc import Generator, Iterable
from contextlib import contextmanager

from penstock.errors import PenstockError

# How a Python exception of ours looks in the text of one of Spark's: a line of its own or the end of Spark's.
_OURS = re.compile(r"\bpenstock\.(?:\w+\.)*(?P<kind>[A-Z]\w*): (?P<sentence>[^\n]+)")


class SparkFailure(PenstockError):
    """One clear sentence."""


class BadOption(SparkFailure):
    """An option nobody knows, or a value it cannot have."""

    @classmethod
    def unknown(cls, name: str, known: Iterable[str]) -> "BadOption":
        """Spark hands options over in lower case or as written; what is nearest is found regardless of case."""
        by_lower = {option.lower(): option for option in known}
        nearest = difflib.get_close_matches(name.lower(), list(by_lower), n=1, cutoff=0.6)
        hint = f"did you mean {by_lower[nearest[0]]}?" if nearest else "docs/spark.md lists those there are"
        return cls(f"unknown option {name}: {hint}")


class DataLost(SparkFailure):
    """Offsets that are gone or a topic that was made anew: says which, and what failOnDataLoss=false would do."""


class Unreachable(SparkFailure):
    """No broker, or no schema registry, answered within the deadline."""


class NoJava(SparkFailure):
    """No Java that Spark can run on."""


class DecodeFailed(SparkFailure):
    """A record that is not what its format says: topic, partition, offset and the reason."""

    def __init__(self, topic: str, partition: int, offset: int, why: str) -> None:
        super().__init__(f"{topic}-{partition} at offset {offset}: {why}")
        self.topic, self.partition, self.offset, self.why = topic, partition, offset, why

    def __reduce__(self) -> tuple[type["DecodeFailed"], tuple[str, int, int, str]]:
        return type(self), (self.topic, self.partition, self.offset, self.why)


class BadPipeline(SparkFailure):
    """A pipeline file that cannot be run; the message begins with file:line."""


@contextmanager
def told_plainly() -> Generator[None]:
    """Let a planned failure reach the user as its sentence alone, without the frames that led to it.

    As a decorator of what Spark calls (`@told_plainly()`), or around the body of a generator. A worker ends after an
    exception, so the setting reaches no other one; a bug still comes with its whole traceback.
    """
    try:
        yield
    except SparkFailure:
        if os.environ.get("SPARK_PYTHON_RUNTIME") == "PYTHON_WORKER":
            os.environ["SPARK_HIDE_TRACEBACK"] = "1"
        raise


def is_unreachable(error: BaseException) -> bool:
    """Whether Unreachable is what was raised, here or in a worker: nobody's mistake, and it may be there later."""
    if isinstance(error, PenstockError):
        return isinstance(error, Unreachable)
    ours = list(_OURS.finditer(str(error)))
    # By its name, which is all that Spark passes on of the kind: those that derive from it end in it.
    return bool(ours) and ours[-1]["kind"].endswith(Unreachable.__name__)


def reason(error: BaseException) -> str:
    """The one sentence in what Spark raised: ours where there is one, else the first line of Spark's own."""
    if isinstance(error, PenstockError):
        return str(error)
    text = str(error)
    ours = list(_OURS.finditer(text))
    if ours:
        return ours[-1]["sentence"].strip()
    return next((line.strip() for line in text.splitlines() if line.strip()), type(error).__name__)
