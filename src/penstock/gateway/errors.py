"""Failures as a caller over HTTP sees them: a status, a number, one sentence.

Called by every part of the gateway, which raises HttpProblem; gateway.app alone turns it into an answer.
Laws:
- Every answer that is no success is JSON: {"error_code": …, "message": …}.
- What Kafka says reaches the caller as Confluent's REST proxy numbers it; what is a bug reaches only the log.
"""

from collections.abc import Mapping
from typing import Any

import orjson
from starlette.responses import Response

JSON = "application/json"

# Numbers that Confluent's REST proxy has given meanings to.
BAD_CONFIG = 40002
NOT_AUTHENTICATED = 40101
NOT_AUTHORIZED = 40301
UNKNOWN_TOPIC_OR_PARTITION = 40403
KAFKA_ERROR = 50002
KAFKA_RETRIABLE = 50003
NOT_SERVED = 50101

RETRY_AFTER_S = 1


class HttpProblem(Exception):
    """Answered as {"error_code": code, "message": message} with this status.

    `media_type`: where callers of a part expect their own kind of JSON, errors included.
    """

    def __init__(
        self,
        status: int,
        code: int,
        message: str,
        headers: Mapping[str, str] | None = None,
        media_type: str | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.code = code
        self.message = message
        self.headers = dict(headers or {})
        self.media_type = media_type

    def response(self) -> Response:
        body = {"error_code": self.code, "message": self.message}
        return json_response(body, self.status, self.media_type or JSON, self.headers)


class KafkaFailed(Exception):
    """What the cluster or librdkafka said no to. `code` is Kafka's, or librdkafka's own where it is negative."""

    def __init__(self, code: int, name: str, message: str, is_retriable: bool = False) -> None:
        super().__init__(message)
        self.code = code
        self.name = name
        self.message = message
        self.is_retriable = is_retriable

    @classmethod
    def of(cls, error: Any) -> "KafkaFailed":
        """librdkafka's KafkaError, or the KafkaException that holds one."""
        inner: tuple[Any, ...] = error.args if isinstance(error, Exception) else (error,)
        found: Any = inner[0] if inner else None
        if not hasattr(found, "retriable"):
            return cls(-1, "UNKNOWN_SERVER_ERROR", str(error))
        name = str(found.name())
        return cls(int(found.code()), name, str(found.str()), bool(found.retriable()) or name in _RETRIABLE)

    def problem(self) -> HttpProblem:
        status, code = _STATUS.get(self.name, (503, KAFKA_RETRIABLE) if self.is_retriable else (500, KAFKA_ERROR))
        headers = {"retry-after": str(RETRY_AFTER_S)} if status == 503 else {}
        return HttpProblem(status, code, self.message, headers)


class Busy(Exception):
    """More is waiting to be sent than the gateway keeps: the caller is to come back later."""

    def problem(self) -> HttpProblem:
        return HttpProblem(429, 429, str(self), {"retry-after": str(RETRY_AFTER_S)})


def json_response(
    content: Any, status: int = 200, media_type: str = JSON, headers: Mapping[str, str] | None = None
) -> Response:
    return Response(orjson.dumps(content, option=orjson.OPT_NON_STR_KEYS), status, headers, media_type)


# By librdkafka's names: that no broker could be asked, or that one was not ready.
_RETRIABLE = frozenset(
    {
        "_TRANSPORT", "_ALL_BROKERS_DOWN", "_TIMED_OUT", "_TIMED_OUT_QUEUE", "_MSG_TIMED_OUT", "_RESOLVE",
        "_WAIT_COORD", "_QUEUE_FULL", "REQUEST_TIMED_OUT", "LEADER_NOT_AVAILABLE", "NOT_LEADER_FOR_PARTITION",
        "NOT_COORDINATOR", "COORDINATOR_NOT_AVAILABLE", "COORDINATOR_LOAD_IN_PROGRESS", "NOT_ENOUGH_REPLICAS",
        "NETWORK_EXCEPTION", "NOT_ENOUGH_REPLICAS_AFTER_APPEND", "BROKER_NOT_AVAILABLE", "NOT_CONTROLLER",
        "REBALANCE_IN_PROGRESS", "UNSTABLE_OFFSET_COMMIT", "KAFKA_STORAGE_ERROR",
    }
)  # fmt: skip

_ASKED_WRONGLY = (400, BAD_CONFIG)
_STATUS: dict[str, tuple[int, int]] = {
    "UNKNOWN_TOPIC_OR_PART": (404, UNKNOWN_TOPIC_OR_PARTITION),
    "_UNKNOWN_TOPIC": (404, UNKNOWN_TOPIC_OR_PARTITION),
    "_UNKNOWN_PARTITION": (404, UNKNOWN_TOPIC_OR_PARTITION),
    "UNKNOWN_TOPIC_ID": (404, UNKNOWN_TOPIC_OR_PARTITION),
    "GROUP_ID_NOT_FOUND": (404, 404),
    "TOPIC_EXCEPTION": _ASKED_WRONGLY,
    "TOPIC_ALREADY_EXISTS": _ASKED_WRONGLY,
    "INVALID_PARTITIONS": _ASKED_WRONGLY,
    "INVALID_REPLICATION_FACTOR": _ASKED_WRONGLY,
    "INVALID_REPLICA_ASSIGNMENT": _ASKED_WRONGLY,
    "INVALID_CONFIG": _ASKED_WRONGLY,
    "INVALID_REQUEST": _ASKED_WRONGLY,
    "INVALID_GROUP_ID": _ASKED_WRONGLY,
    "INVALID_TIMESTAMP": _ASKED_WRONGLY,
    "INVALID_RECORD": _ASKED_WRONGLY,
    "POLICY_VIOLATION": _ASKED_WRONGLY,
    "OFFSET_OUT_OF_RANGE": _ASKED_WRONGLY,
    "OFFSET_METADATA_TOO_LARGE": _ASKED_WRONGLY,
    "_INVALID_ARG": _ASKED_WRONGLY,
    "MSG_SIZE_TOO_LARGE": (413, 413),
    "RECORD_LIST_TOO_LARGE": (413, 413),
    "NON_EMPTY_GROUP": (409, 409),
    "REASSIGNMENT_IN_PROGRESS": (409, 409),
    "UNKNOWN_MEMBER_ID": (409, 409),
    "ILLEGAL_GENERATION": (409, 409),
    "_STATE": (409, 409),
    "_AUTHENTICATION": (401, NOT_AUTHENTICATED),
    "SASL_AUTHENTICATION_FAILED": (401, NOT_AUTHENTICATED),
    "TOPIC_AUTHORIZATION_FAILED": (403, NOT_AUTHORIZED),
    "GROUP_AUTHORIZATION_FAILED": (403, NOT_AUTHORIZED),
    "CLUSTER_AUTHORIZATION_FAILED": (403, NOT_AUTHORIZED),
    "THROTTLING_QUOTA_EXCEEDED": (429, 429),
    "UNSUPPORTED_VERSION": (501, NOT_SERVED),
    "_UNSUPPORTED_FEATURE": (501, NOT_SERVED),
    "SECURITY_DISABLED": (501, NOT_SERVED),
}  # fmt: skip
