"""What a write can fail with, and which of librdkafka's errors becomes which.

Raised by every file of the sink. All of them fail the task: Spark tries it again, or ends the query with the sentence.
"""

from typing import TYPE_CHECKING

from penstock.spark.errors import BadOption, SparkFailure, Unreachable

if TYPE_CHECKING:
    from confluent_kafka import KafkaError

_FENCED = frozenset({"_FENCED", "PRODUCER_FENCED", "INVALID_PRODUCER_EPOCH"})
_SILENCE = frozenset(
    {"_TIMED_OUT", "_MSG_TIMED_OUT", "_TIMED_OUT_QUEUE", "_TRANSPORT", "_ALL_BROKERS_DOWN", "_RESOLVE", "_WAIT_COORD"}
)
_FORBIDDEN = frozenset({"TOPIC_AUTHORIZATION_FAILED", "CLUSTER_AUTHORIZATION_FAILED"})


class WriteFailed(SparkFailure):
    """The transaction or the flush did not end well, for a reason that is nobody's option or row."""


class Fenced(SparkFailure):
    """Another attempt at the same task has begun since, or the transaction timed out: this one must not go on."""


class RowRefused(SparkFailure):
    """A row that no retry will bring into its topic."""


class ReplayDiffers(SparkFailure):
    """A batch came again with other rows than those that were written: skipping loses some, writing doubles some."""


class RolledBack(SparkFailure):
    """A batch came again although later ones of the same query are written."""


class MarkersUnusable(SparkFailure):
    """The topic that remembers what was written cannot be made, or is not what it must be."""


def failure(
    error: "KafkaError", doing: str, brokers: str, waited_s: float, last_words: str | None = None
) -> SparkFailure:
    """The failure of a whole transaction or flush; `last_words` is what the client last said about its brokers."""
    name = error.name()
    if name in _FENCED:
        return Fenced(
            f"another attempt at this task has taken over, or its transaction timed out, while {doing}: nothing of "
            "this attempt is written; a task that takes longer needs a higher transaction.timeout.ms"
        )
    if name in _SILENCE:
        said = f": {last_words}" if last_words else ""
        return Unreachable(f"no answer from the brokers at {brokers} within {waited_s:g} s while {doing}{said}")
    if name == "INVALID_TRANSACTION_TIMEOUT":
        return BadOption(
            "transaction.timeout.ms is above what brokers allow: lower it, or raise their transaction.max.timeout.ms"
        )
    if name == "TRANSACTIONAL_ID_AUTHORIZATION_FAILED":
        return WriteFailed(
            "not allowed to use transactions: the user needs Write and Describe on transactional ids that begin with "
            "the option transactional.id.prefix (penstock-spark unless set), or delivery=at-least-once"
        )
    return WriteFailed(f"{doing} failed: {error.str()} ({name})")


def refusal(
    error: "KafkaError",
    topic: str,
    partition: int | None,
    size: int,
    brokers: str,
    waited_s: float,
    last_words: str | None,
) -> SparkFailure:
    """The failure that one row met."""
    name = error.name()
    where = topic if partition is None or partition < 0 else f"partition {partition} of {topic}"
    if name in _FENCED or name in _SILENCE or name == "_FATAL":
        return failure(error, f"writing to {where}", brokers, waited_s, last_words)
    if name == "MSG_SIZE_TOO_LARGE":
        hint = ": raise max.message.bytes of the topic and kafka.message.max.bytes here, or make the row smaller"
    elif name in _FORBIDDEN:
        hint = ": the user needs Write on the topic"
    else:
        hint = ""
    return RowRefused(f"a row of {size} bytes was refused by {where}: {error.str()} ({name}){hint}")


def is_fatal(error: "KafkaError") -> bool:
    return error.fatal() or error.name() in _FENCED or error.name() == "_FATAL"
