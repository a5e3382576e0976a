"""What Spark says when something fails, as one sentence for the user of a pipeline.

Called by pipeline.building and pipeline.running. Spark wraps what a Python worker raised into the text of several
Java exceptions; the sentence is dug out of it. Errors that mean "this checkpoint belongs to another pipeline" say so.
"""

import re

from penstock.errors import PenstockError
from penstock.spark.errors import SparkFailure, reason

# What stands before the message itself: Spark's name of the condition, and which query it was.
_PREFIX = re.compile(r"^(\[[A-Z0-9_.]+\]\s*|Query \S* ?\[id = [^\]]*\] terminated with exception: |Job aborted[^:]*: )")
# And what stands behind it, which is said otherwise (a place in the file) or helps nobody.
_SUFFIX = re.compile(r"\s*(SQLSTATE: \w+|; line \d+,? pos(ition)? \d+;?)\s*")
_PYTHON = re.compile(r"^(?P<kind>(?:[A-Za-z_]\w*\.)*[A-Z]\w*): (?P<what>\S.*)$")
# The text between this line and the end of the traceback is Python's own.
_TRACEBACK = "Traceback (most recent call last):"

# Spark's conditions, and older wordings, that mean: this checkpoint was written by another plan.
_OTHER_PLAN = (
    "STATE_STORE_KEY_SCHEMA_NOT_COMPATIBLE",
    "STATE_STORE_VALUE_SCHEMA_NOT_COMPATIBLE",
    "STATE_STORE_COLUMN_FAMILY_SCHEMA_INCOMPATIBLE",
    "STATE_STORE_INVALID_CONFIG_AFTER_RESTART",
    "STATE_STORE_INVALID_VALUE_SCHEMA_EVOLUTION",
    "STATE_STORE_INVALID_VARIABLE_TYPE_CHANGE",
    "STATE_STORE_KEY_ROW_FORMAT_VALIDATION_FAILURE",
    "STATE_STORE_VALUE_ROW_FORMAT_VALIDATION_FAILURE",
    "STATE_STORE_CHECKPOINT_LOCATION_NOT_EMPTY",
    "STREAMING_STATEFUL_OPERATOR_MISSING_STATE_DIRECTORY",
    "STREAMING_STATEFUL_OPERATOR_NOT_MATCH_IN_STATE_METADATA",
    "STREAM_STREAM_JOIN_INCOMPATIBLE_STATE_STORE_CONFIGS",
    "STREAMING_CHECKPOINT_MISSING_METADATA_FILE",
    "sources in the checkpoint offsets and now there are",
    "does not support recovering from checkpoint location",
    "the checkpoint is of another source",
)
_TWO_AT_ONCE = "CONCURRENT_STREAM_LOG_UPDATE"


class QueryFailed(SparkFailure):
    """A streaming query ended with an error. `is_final`: starting it again cannot help."""

    def __init__(self, sink: str, why: str, *, is_final: bool = False) -> None:
        super().__init__(f"sink `{sink}`: {why}")
        self.sink = sink
        self.why = why
        self.is_final = is_final


class CannotStart(SparkFailure):
    """The file is right, but what it needs is not there now; the message begins with file:line. Try again later."""


def explain_failure(sink: str, error: BaseException, checkpoint: str) -> QueryFailed:
    """The failure of a query, from what Spark's `query.exception()` or `start()` gave."""
    text = str(error)
    if _TWO_AT_ONCE in text:
        return QueryFailed(
            sink, f"another run is using its checkpoint {checkpoint}; stop one of the two", is_final=True
        )
    if not isinstance(error, PenstockError) and any(part in text for part in _OTHER_PLAN):
        return QueryFailed(
            sink,
            f"the pipeline was changed in a way that its checkpoint {checkpoint} cannot follow "
            f"({clean_message(error)}); change it back, or give it a new `checkpoint` folder, which starts from the "
            "sources' beginning",
            is_final=True,
        )
    return QueryFailed(sink, clean_message(error))


def clean_message(error: BaseException) -> str:
    """One line: ours where one of ours is in it, else what the user's Python raised, else the first of Spark's."""
    if isinstance(error, PenstockError):
        return str(error)
    text = str(error)
    ours = reason(error)
    if "penstock." in text and ours != _first_line(text):
        return ours
    raised = _python_error(text)
    if raised is not None:
        return raised
    message = _first_line(text)
    while _PREFIX.match(message):
        message = _PREFIX.sub("", message, count=1)
    message = _SUFFIX.sub(" ", message).strip()
    if not message:
        return type(error).__name__
    # A plain Python exception says little without its kind: `KeyError: 'x'`.
    is_spark = type(error).__module__.startswith(("pyspark.", "py4j."))
    return message if is_spark or isinstance(error, PenstockError) else f"{type(error).__name__}: {message}"


def _python_error(text: str) -> str | None:
    """The last line of the innermost traceback in the text."""
    if _TRACEBACK not in text:
        return None
    inside = text.rpartition(_TRACEBACK)[2]
    for line in inside.splitlines()[1:]:
        # Frames and source lines are indented; the exception's own line is the first that is not.
        if line and not line.startswith((" ", "\t")):
            found = _PYTHON.match(line.strip())
            return line.strip() if found is None else f"{found['kind'].rpartition('.')[2]}: {found['what']}"
    return None


def _first_line(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[0] if lines else ""
