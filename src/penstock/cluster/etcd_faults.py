"""What a failed call to etcd means for the call: was it taken, is it worth another try, or is it at fault itself.

Called by etcd_client, which acts on the verdict. Pure: codes and texts in, a verdict out.
A wrong verdict of REFUSED_FOR_NOW on a write would repeat it, so what is not known to be harmless is UNKNOWN.
"""

from enum import Enum

from penstock.cluster.store import Unavailable
from penstock.errors import PenstockError


class RpcFailed(PenstockError):
    """A call that ended with anything but its answer. `status` is gRPC's by name, `details` as the server told them."""

    def __init__(self, endpoint: str, status: str, details: str) -> None:
        super().__init__(f"{endpoint}: {details or status}")
        self.endpoint, self.status, self.details = endpoint, status, details


class Verdict(Enum):
    TOKEN_EXPIRED = "refused for its token: get a new one, try again"
    REFUSED_FOR_NOW = "certainly not taken: another endpoint or another moment may"
    REJECTED = "certainly not taken, and never will be as it is"
    UNKNOWN = "taken or not"


# Said before anything was proposed to the other members.
_BEFORE_PROPOSING = (
    "etcdserver: no leader",
    "etcdserver: not capable",
    "etcdserver: too many requests",
    "etcdserver: rpc not supported for learner",
    # gRPC's own words for a connection that was never made.
    "failed to connect to all addresses",
    "DNS resolution failed",
)
_TOKEN = ("invalid auth token", "auth token is not provided", "user name is empty")
_REJECTING = frozenset(
    {
        "INVALID_ARGUMENT",
        "NOT_FOUND",
        "ALREADY_EXISTS",
        "PERMISSION_DENIED",
        "UNAUTHENTICATED",
        "FAILED_PRECONDITION",
        "OUT_OF_RANGE",
        "UNIMPLEMENTED",
    }
)
_NO_SPACE = "database space exceeded"
_COMPACTED = "required revision has been compacted"


def judge(fault: RpcFailed) -> Verdict:
    if any(text in fault.details for text in _TOKEN):
        return Verdict.TOKEN_EXPIRED
    if any(text in fault.details for text in _BEFORE_PROPOSING):
        return Verdict.REFUSED_FOR_NOW
    if fault.status in _REJECTING or is_full(fault):
        return Verdict.REJECTED
    return Verdict.UNKNOWN


def is_full(fault: RpcFailed) -> bool:
    return fault.status == "RESOURCE_EXHAUSTED" and _NO_SPACE in fault.details


def is_compacted(fault: RpcFailed) -> bool:
    return fault.status == "OUT_OF_RANGE" and _COMPACTED in fault.details


def is_lease_gone(fault: RpcFailed) -> bool:
    return fault.status == "NOT_FOUND" and "lease not found" in fault.details


def rejection(fault: RpcFailed) -> PenstockError:
    """What to raise for a request etcd will not have: the store reads two of these, the rest mean no service."""
    if is_compacted(fault) or is_lease_gone(fault):
        return fault
    if is_full(fault):
        return Unavailable(f"etcd is full ({fault}): compact and defragment it, then disarm its alarm")
    if fault.status in ("UNAUTHENTICATED", "PERMISSION_DENIED") or judge(fault) is Verdict.TOKEN_EXPIRED:
        return Unavailable(f"etcd does not let this broker in: {fault}; see penstock.metadata.user")
    return Unavailable(f"etcd rejected a request: {fault}")
