"""What the registry answers instead of a schema: an HTTP status, Confluent's error code and one sentence.

Raised by every file of this room; routes.py, or gateway.app for other parts, turns one into an answer. Laws:
- The numbers are those of Confluent's documentation, since clients decide by them; the sentences are ours.
- A sentence says what is wrong and, where somebody can do something about it, what.
"""

from collections.abc import Mapping

from penstock.gateway.errors import HttpProblem

MEDIA_TYPE = "application/vnd.schemaregistry.v1+json"


class Refusal(HttpProblem):
    def __init__(self, status: int, code: int, message: str, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(status, code, message, headers, MEDIA_TYPE)


def bad_request(message: str) -> Refusal:
    return Refusal(400, 400, message)


def subject_not_found(subject: str) -> Refusal:
    return Refusal(404, 40401, f"Subject '{subject}' not found.")


def version_not_found(version: object) -> Refusal:
    return Refusal(404, 40402, f"Version {version} not found.")


def schema_not_found(what: object = "") -> Refusal:
    return Refusal(404, 40403, f"Schema {what} not found." if what != "" else "Schema not found.")


def subject_soft_deleted(subject: str) -> Refusal:
    return Refusal(404, 40404, f"Subject '{subject}' is soft-deleted already; permanent=true deletes it for good.")


def subject_not_soft_deleted(subject: str) -> Refusal:
    return Refusal(404, 40405, f"Subject '{subject}' must be deleted without permanent=true first.")


def version_soft_deleted(subject: str, version: int) -> Refusal:
    return Refusal(
        404,
        40406,
        f"Version {version} of subject '{subject}' is soft-deleted already; permanent=true deletes it for good.",
    )


def version_not_soft_deleted(subject: str, version: int) -> Refusal:
    return Refusal(
        404, 40407, f"Version {version} of subject '{subject}' must be deleted without permanent=true first."
    )


def compatibility_not_configured(subject: str) -> Refusal:
    return Refusal(
        404, 40408, f"Subject '{subject}' has no compatibility of its own; defaultToGlobal=true shows what applies."
    )


def mode_not_configured(subject: str) -> Refusal:
    return Refusal(404, 40409, f"Subject '{subject}' has no mode of its own; defaultToGlobal=true shows what applies.")


def incompatible(subject: str, details: str) -> Refusal:
    return Refusal(
        409, 409, f"The schema is incompatible with an earlier schema of subject '{subject}', details: {details}"
    )


def invalid_schema(reason: str) -> Refusal:
    return Refusal(422, 42201, f"Invalid schema: {reason}")


def invalid_version(version: object) -> Refusal:
    return Refusal(422, 42202, f"The version '{version}' is no number from 1 to 2147483647, nor 'latest'.")


def invalid_compatibility(given: object) -> Refusal:
    return Refusal(
        422,
        42203,
        f"Invalid compatibility level '{given}': it is one of NONE, BACKWARD, FORWARD, FULL, "
        "BACKWARD_TRANSITIVE, FORWARD_TRANSITIVE and FULL_TRANSITIVE.",
    )


def invalid_mode(given: object) -> Refusal:
    return Refusal(
        422, 42204, f"Invalid mode '{given}': it is one of READWRITE, READONLY, READONLY_OVERRIDE, IMPORT and FORWARD."
    )


def not_permitted(reason: str) -> Refusal:
    return Refusal(422, 42205, reason)


def reference_exists(subject: str, version: int) -> Refusal:
    return Refusal(
        422, 42206, f"Version {version} of subject '{subject}' is referenced by other schemas; delete those first."
    )


def invalid_subject(subject: str) -> Refusal:
    return Refusal(422, 42208, f"The subject '{subject[:100]}' is empty, too long or holds control characters.")


def schema_too_large(size: int, limit: int) -> Refusal:
    return Refusal(422, 42209, f"The schema takes {size} bytes and at most {limit} can be kept.")


def invalid_rule_set(reason: str) -> Refusal:
    return Refusal(422, 42210, f"Invalid rule set: {reason}")


def store_failed(reason: str) -> Refusal:
    return Refusal(500, 50001, f"The registry cannot work: {reason}.")


def timed_out(what: str) -> Refusal:
    return Refusal(500, 50002, f"{what} took too long; it may or may not have been done.")


def unavailable(reason: str) -> Refusal:
    """Nothing was changed; another try may succeed."""
    return Refusal(503, 50003, reason, {"retry-after": "1"})
