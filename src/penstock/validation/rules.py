"""What one topic asks of its records, and what the answers to its producers may say.

Made by handlers.validated_produce from the topic's settings; read by every file of this room.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from penstock.config import TopicConfig
from penstock.errors import ErrorCode, PenstockError

RECORD_ERRORS_MAX = 20
"""How many bad records of a batch an answer names; who has read twenty knows enough."""
REASON_CHARACTERS_MAX = 250

REJECT, DEAD_LETTER, MARK = "reject", "dead-letter", "mark"
FULL, OFF = "full", "off"
DEAD_LETTER_SUFFIX = ".dead-letter"


@dataclass(frozen=True, slots=True)
class Rule:
    topic: str
    key_mode: str
    value_mode: str
    # Under which subject an id must be registered; None where any will do.
    key_subject: str | None
    value_subject: str | None
    on_failure: str
    dead_letter_topic: str


def rule_of(topic: str, config: TopicConfig) -> Rule:
    is_any = config.schema_subject_strategy == "any"
    return Rule(
        topic,
        config.schema_key_validation,
        config.schema_validation,
        None if is_any else f"{topic}-key",
        None if is_any else f"{topic}-value",
        config.schema_on_failure,
        config.schema_dead_letter_topic or topic + DEAD_LETTER_SUFFIX,
    )


class Fault(NamedTuple):
    """A record that is not what its topic asks for: its place in the batch, and why."""

    batch_index: int
    reason: str


class RecordsRefused(PenstockError):
    """A batch with bad records in a topic that rejects them: nothing of it was written."""

    code = ErrorCode.INVALID_RECORD

    def __init__(self, faults: Sequence[Fault]) -> None:
        first, count = faults[0], len(faults)
        others = "" if count == 1 else f" (and {count - 1} more of the batch)"
        super().__init__(f"record {first.batch_index} of the batch was refused: {first.reason}{others}")
        self.count = count
        self.faults = tuple(faults[:RECORD_ERRORS_MAX])


class NotNow(PenstockError):
    """Nothing was written, and the same batch may well be taken later: every client tries again by itself."""

    # The one such code on which no client looks for another leader first.
    code = ErrorCode.NOT_ENOUGH_REPLICAS


def shortened(reason: str) -> str:
    """One line of bounded length: what a schema says of a value may quote the value."""
    line = " ".join(reason.split())
    return line if len(line) <= REASON_CHARACTERS_MAX else line[: REASON_CHARACTERS_MAX - 1] + "…"
