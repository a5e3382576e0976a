"""etcd's messages: their layouts, and how ours become theirs and theirs ours.

Called by etcd_endpoint, etcd_client, etcd_watch and etcd_store. The layouts are handed to protobuf as a description
made here and not as generated modules, which would tie penstock to one version of protobuf.
Only the fields we use are described: protobuf skips what it does not know.
"""

from collections.abc import Iterable, Sequence
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

from penstock.cluster.store import (
    NO_LEASE,
    Change,
    Compare,
    Delete,
    Get,
    KeyValue,
    Operation,
    Put,
    Revision,
    Target,
    TxnResult,
)

# A message whose layout is known only at run time; checkers can say nothing about it.
Message = Any

# Numbers and types are etcd's (rpc.proto, kv.proto); * marks a repeated field. Enumerations are plain numbers.
_LAYOUTS = {
    "Header": "1 cluster_id uint64, 2 member_id uint64, 3 revision int64",
    "KeyValue": "1 key bytes, 2 create_revision int64, 3 mod_revision int64, 4 version int64, 5 value bytes, "
    "6 lease int64",
    "RangeRequest": "1 key bytes, 2 range_end bytes, 3 limit int64, 4 revision int64, 9 count_only bool",
    "RangeResponse": "1 header Header, 2 kvs *KeyValue, 3 more bool",
    "PutRequest": "1 key bytes, 2 value bytes, 3 lease int64",
    "DeleteRequest": "1 key bytes",
    "Compare": "1 result int32, 2 target int32, 3 key bytes, 4 version int64, 5 create_revision int64, "
    "6 mod_revision int64, 7 value bytes",
    "RequestOp": "1 range RangeRequest, 2 put PutRequest, 3 delete DeleteRequest",
    "ResponseOp": "1 range RangeResponse",
    "TxnRequest": "1 compare *Compare, 2 success *RequestOp, 3 failure *RequestOp",
    "TxnResponse": "1 header Header, 2 succeeded bool, 3 responses *ResponseOp",
    "CompactRequest": "1 revision int64, 2 physical bool",
    "CompactResponse": "1 header Header",
    "WatchCreate": "1 key bytes, 2 range_end bytes, 3 start_revision int64, 8 fragment bool",
    "WatchRequest": "1 create WatchCreate",
    "Event": "1 type int32, 2 kv KeyValue",
    "WatchResponse": "1 header Header, 3 created bool, 4 canceled bool, 5 compact_revision int64, "
    "6 cancel_reason string, 7 fragment bool, 11 events *Event",
    "LeaseGrantRequest": "1 ttl int64",
    "LeaseGrantResponse": "1 header Header, 2 id int64, 3 ttl int64",
    "LeaseRevokeRequest": "1 id int64",
    "LeaseRevokeResponse": "1 header Header",
    "LeaseKeepAliveRequest": "1 id int64",
    "LeaseKeepAliveResponse": "1 header Header, 2 id int64, 3 ttl int64",
    "AuthenticateRequest": "1 name string, 2 password string",
    "AuthenticateResponse": "1 header Header, 2 token string",
    "StatusRequest": "",
    "StatusResponse": "1 header Header, 2 version string, 4 leader uint64",
}
_TYPES = {"int32": 5, "int64": 3, "uint64": 4, "bool": 8, "string": 9, "bytes": 12}
_MESSAGE_TYPE = 11
_OPTIONAL, _REPEATED = 1, 3
_PACKAGE = "penstock.etcd"


def _describe() -> dict[str, Any]:
    # Left at proto2, where a field that was set is sent even if it is zero: a comparison with 0 has to arrive.
    file: Any = descriptor_pb2.FileDescriptorProto(name="penstock_etcd.proto", package=_PACKAGE)
    for name, layout in _LAYOUTS.items():
        message = file.message_type.add(name=name)
        for row in filter(None, layout.split(", ")):
            number, field, kind = row.split()
            label = _REPEATED if kind.startswith("*") else _OPTIONAL
            kind = kind.lstrip("*")
            if kind in _TYPES:
                message.field.add(name=field, number=int(number), label=label, type=_TYPES[kind])
            else:
                type_name = f".{_PACKAGE}.{kind}"
                message.field.add(name=field, number=int(number), label=label, type=_MESSAGE_TYPE, type_name=type_name)
    pool: Any = descriptor_pool.DescriptorPool()
    pool.Add(file)
    factory: Any = message_factory
    return {name: factory.GetMessageClass(pool.FindMessageTypeByName(f"{_PACKAGE}.{name}")) for name in _LAYOUTS}


MESSAGES = _describe()

_EQUAL, _NOT_EQUAL = 0, 3
_TARGETS = {
    Target.VERSION: (0, "version"),
    Target.CREATE_REVISION: (1, "create_revision"),
    Target.MOD_REVISION: (2, "mod_revision"),
    Target.VALUE: (3, "value"),
}
_DELETED = 1


def bounds(prefix: str) -> tuple[bytes, bytes]:
    """The first key with the prefix and the first one after all of them; a pair of zero bytes stands for all keys."""
    start = prefix.encode()
    # No byte of UTF-8 is 255, so the last one can always be raised.
    return (start, start[:-1] + bytes([start[-1] + 1])) if start else (b"\0", b"\0")


def txn_request(compare: Sequence[Compare], then: Sequence[Operation], orelse: Sequence[Operation]) -> Message:
    request = MESSAGES["TxnRequest"]()
    for each in compare:
        target, field = _TARGETS[each.target]
        result = _EQUAL if each.relation == "==" else _NOT_EQUAL
        request.compare.add(result=result, target=target, key=each.key.encode(), **{field: each.operand})
    for branch, operations in ((request.success, then), (request.failure, orelse)):
        for operation in operations:
            match operation:
                case Put(key, value, lease):
                    branch.add().put.MergeFrom(MESSAGES["PutRequest"](key=key.encode(), value=value, lease=lease))
                case Delete(key):
                    branch.add().delete.key = key.encode()
                case Get(key):
                    branch.add().range.key = key.encode()
    return request


def txn_result(response: Message) -> TxnResult:
    reads = tuple(
        key_value(each.range.kvs[0]) if each.range.kvs else None
        for each in response.responses
        if each.HasField("range")
    )
    return TxnResult(response.succeeded, response.header.revision, reads)


def key_value(kv: Message) -> KeyValue:
    return KeyValue(
        kv.key.decode(), kv.value, kv.create_revision, kv.mod_revision, kv.version, kv.lease if kv.lease else NO_LEASE
    )


class RevisionJoiner:
    """Makes whole revisions of a watch's messages, which etcd may cut anywhere between two events."""

    def __init__(self, next_revision: int) -> None:
        self.next_revision = next_revision
        self._held: list[Change] = []
        self._held_revision = 0

    def take(self, events: Iterable[Message], *, is_fragment: bool) -> list[Revision]:
        """The revisions that are whole now. Only while a fragment says that more follows may the last one not be."""
        whole: list[Revision] = []
        for event in events:
            number = event.kv.mod_revision
            if number < self.next_revision:
                # Delivered on an earlier stream, or from before the beginning asked for.
                continue
            if number != self._held_revision:
                whole += self._release()
                self._held_revision = number
            self._held.append(Change(event.kv.key.decode(), None if event.type == _DELETED else key_value(event.kv)))
        if not is_fragment:
            whole += self._release()
        return whole

    def restart(self) -> None:
        """The stream broke: the next one begins again with the revision that was not whole."""
        self._held, self._held_revision = [], 0

    def _release(self) -> list[Revision]:
        if not self._held:
            return []
        assert self._held_revision >= self.next_revision, "a watch does not go back"
        revision = Revision(self._held_revision, tuple(self._held))
        self.next_revision = self._held_revision + 1
        self.restart()
        return [revision]
