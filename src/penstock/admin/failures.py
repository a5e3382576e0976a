"""Failures as people read them: what went wrong, and what to do about it. No tracebacks.

Called by all commands, which raise CommandFailed, and by cli.app, which prints it and ends with its exit code.
Exit codes: 0 it was done, 1 what was asked failed, 2 it was asked wrongly.
"""

from typing import Any

FAILED = 1
ASKED_WRONGLY = 2
INTERRUPTED = 130


class CommandFailed(Exception):
    """What was asked could not be done. `advice` says what to try, where there is something to try."""

    def __init__(self, what: str, advice: str = "", exit_code: int = FAILED) -> None:
        super().__init__(what)
        self.what = what
        self.advice = advice
        self.exit_code = exit_code

    def __str__(self) -> str:
        return f"{self.what}\n  {self.advice}" if self.advice else self.what


# By librdkafka's name of the error: its numbers are its own where no broker answered.
_ADVICE = {
    "UNKNOWN_TOPIC_OR_PART": "`penstock topics list` shows which topics there are.",
    "_UNKNOWN_TOPIC": "`penstock topics list` shows which topics there are.",
    "_UNKNOWN_PARTITION": "`penstock topics describe` shows which partitions the topic has.",
    "TOPIC_ALREADY_EXISTS": "Use --if-not-exists if that is all right, or `penstock topics alter` to change it.",
    "INVALID_PARTITIONS": "A topic needs at least one partition, and partitions can be added but never taken away.",
    "INVALID_REPLICATION_FACTOR": "There cannot be more replicas than brokers: lower --replication-factor.",
    "INVALID_CONFIG": "`penstock configs describe --all` shows the settings and their values.",
    "POLICY_VIOLATION": "The broker does not allow this to anybody; the message says which rule it was.",
    "NON_EMPTY_GROUP": "Stop its members first; `penstock groups describe` shows who they are.",
    "GROUP_ID_NOT_FOUND": "`penstock groups list` shows which groups there are.",
    "GROUP_SUBSCRIBED_TO_TOPIC": "Members are subscribed to this topic: stop them, or let them unsubscribe, first.",
    "UNKNOWN_MEMBER_ID": "The group has live members, and only they may commit: stop them first.",
    "REBALANCE_IN_PROGRESS": "The group is rebalancing: stop its members, or try again in a moment.",
    "COORDINATOR_NOT_AVAILABLE": "The broker that keeps this group is not ready yet: try again in a moment.",
    "COORDINATOR_LOAD_IN_PROGRESS": "The broker is still loading this group: try again in a moment.",
    "OFFSET_OUT_OF_RANGE": "`penstock topics describe` shows where each partition starts and ends.",
    "_AUTO_OFFSET_RESET": "`penstock topics describe` shows where each partition starts and ends.",
    "TOPIC_AUTHORIZATION_FAILED": "This user may not do that: ask whoever keeps the access rules.",
    "GROUP_AUTHORIZATION_FAILED": "This user may not do that: ask whoever keeps the access rules.",
    "CLUSTER_AUTHORIZATION_FAILED": "This user may not do that: ask whoever keeps the access rules.",
    "KAFKA_STORAGE_ERROR": "The disk of that partition failed: `penstock doctor --data-dir DIR` says more.",
    "MSG_SIZE_TOO_LARGE": "Send smaller messages, or raise the topic's max.message.bytes.",
    "_TRANSPORT": "`penstock doctor` finds out why the broker cannot be reached.",
    "_ALL_BROKERS_DOWN": "`penstock doctor` finds out why the broker cannot be reached.",
    "_TIMED_OUT": "Give it longer with --timeout, or let `penstock doctor` find out why there is no answer.",
    "_TIMED_OUT_QUEUE": "Give it longer with --timeout, or let `penstock doctor` find out why there is no answer.",
    "REQUEST_TIMED_OUT": "Give it longer with --timeout; what was asked may have been done all the same.",
    "_AUTHENTICATION": "Check the security settings given with -X (sasl.*, security.protocol).",
    "_SSL": "Check the security settings given with -X (ssl.*, security.protocol).",
    "_RESOLVE": "The host name of --bootstrap is not known to this machine.",
    "UNSUPPORTED_VERSION": "This cluster does not serve that request; it may be older than the command needs.",
    "_UNSUPPORTED_FEATURE": "This cluster does not serve that request; it may be older than the command needs.",
}


def explain(error: Any, doing: str) -> CommandFailed:
    """librdkafka's KafkaError or KafkaException as a failure of what was being done."""
    kafka_error = error.args[0] if isinstance(error, Exception) and error.args else error
    name, text = getattr(kafka_error, "name", None), getattr(kafka_error, "str", None)
    if name is None or text is None:
        return CommandFailed(f"{doing}: {error}")
    return CommandFailed(f"{doing}: {text()}", _ADVICE.get(name(), ""))
