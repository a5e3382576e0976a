"""How etcd's messages become whole revisions, and what a failed call is taken for."""

import pytest

from penstock.cluster.etcd_faults import RpcFailed, Verdict, judge
from penstock.cluster.etcd_messages import MESSAGES, RevisionJoiner, bounds, txn_request
from penstock.cluster.etcd_version import is_sound
from penstock.cluster.store import Put, created_at


def event(key: str, revision: int, *, deleted: bool = False):
    return MESSAGES["Event"](type=int(deleted), kv=MESSAGES["KeyValue"](key=key.encode(), mod_revision=revision))


def told(revisions) -> list[tuple[int, list[str]]]:
    return [(revision.number, [change.key for change in revision.changes]) for revision in revisions]


def test_a_message_that_is_no_fragment_is_whole():
    joiner = RevisionJoiner(1)
    taken = joiner.take([event("/a", 3), event("/b", 3), event("/a", 5)], is_fragment=False)
    assert told(taken) == [(3, ["/a", "/b"]), (5, ["/a"])]
    assert joiner.next_revision == 6


def test_a_revision_cut_by_fragments_is_joined():
    joiner = RevisionJoiner(1)
    assert told(joiner.take([event("/a", 3), event("/a", 4)], is_fragment=True)) == [(3, ["/a"])]
    assert told(joiner.take([event("/b", 4)], is_fragment=True)) == []
    assert told(joiner.take([event("/c", 4), event("/a", 5)], is_fragment=False)) == [
        (4, ["/a", "/b", "/c"]),
        (5, ["/a"]),
    ]


def test_a_revision_half_received_when_the_stream_broke_comes_once_and_whole_from_the_next():
    joiner = RevisionJoiner(1)
    joiner.take([event("/a", 3), event("/a", 4)], is_fragment=True)
    joiner.restart()
    assert joiner.next_revision == 4
    assert told(joiner.take([event("/a", 4), event("/b", 4)], is_fragment=False)) == [(4, ["/a", "/b"])]


def test_what_was_delivered_before_is_not_delivered_again():
    joiner = RevisionJoiner(7)
    assert told(joiner.take([event("/a", 6), event("/a", 7, deleted=True)], is_fragment=False)) == [(7, ["/a"])]
    assert told(joiner.take([event("/a", 7), event("/a", 8)], is_fragment=False)) == [(8, ["/a"])]


def test_a_prefix_bounds_exactly_the_keys_that_begin_with_it():
    assert bounds("") == (b"\0", b"\0")
    assert bounds("/a/") == (b"/a/", b"/a0")
    start, end = bounds("/ü")
    assert start <= "/ü".encode() <= "/üz\U0010ffff".encode() < end
    assert "/ý".encode() >= end


def test_a_comparison_with_zero_is_sent():
    request = txn_request([created_at("/a", 0)], [Put("/a", b"")], [])
    assert MESSAGES["TxnRequest"].FromString(request.SerializeToString()).compare[0].HasField("create_revision")


@pytest.mark.parametrize(
    ("status", "details", "verdict"),
    [
        ("UNAVAILABLE", "etcdserver: no leader", Verdict.REFUSED_FOR_NOW),
        ("RESOURCE_EXHAUSTED", "etcdserver: too many requests", Verdict.REFUSED_FOR_NOW),
        ("UNAVAILABLE", "failed to connect to all addresses; last error: refused", Verdict.REFUSED_FOR_NOW),
        ("UNAVAILABLE", "Socket closed", Verdict.UNKNOWN),
        ("UNAVAILABLE", "etcdserver: request timed out", Verdict.UNKNOWN),
        ("UNAVAILABLE", "etcdserver: request timed out, possibly due to previous leader failure", Verdict.UNKNOWN),
        ("UNAVAILABLE", "etcdserver: server stopped", Verdict.UNKNOWN),
        ("UNAVAILABLE", "etcdserver: leader changed", Verdict.UNKNOWN),
        ("DEADLINE_EXCEEDED", "Deadline Exceeded", Verdict.UNKNOWN),
        ("CANCELLED", "the call was given up", Verdict.UNKNOWN),
        ("INTERNAL", "", Verdict.UNKNOWN),
        ("RESOURCE_EXHAUSTED", "Received message larger than max", Verdict.UNKNOWN),
        ("RESOURCE_EXHAUSTED", "etcdserver: mvcc: database space exceeded", Verdict.REJECTED),
        ("NOT_FOUND", "etcdserver: requested lease not found", Verdict.REJECTED),
        ("OUT_OF_RANGE", "etcdserver: mvcc: required revision has been compacted", Verdict.REJECTED),
        ("PERMISSION_DENIED", "etcdserver: permission denied", Verdict.REJECTED),
        ("UNAUTHENTICATED", "etcdserver: invalid auth token", Verdict.TOKEN_EXPIRED),
        ("INVALID_ARGUMENT", "etcdserver: user name is empty", Verdict.TOKEN_EXPIRED),
    ],
)
def test_what_is_not_known_to_have_been_refused_may_have_been_done(status, details, verdict):
    assert judge(RpcFailed("here:2379", status, details)) is verdict


@pytest.mark.parametrize("version", ["3.4.42", "3.5.28", "3.6.9", "3.6.10-rc.1", "3.7.0", "4.0.0", "unknown"])
def test_versions_whose_reads_can_be_trusted(version):
    assert is_sound(version)


@pytest.mark.parametrize("version", ["3.4.23", "3.5.27", "3.6.8", "3.3.99", "2.3.8"])
def test_versions_whose_reads_may_be_old(version):
    assert not is_sound(version)
