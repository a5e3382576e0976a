"""A watch on etcd that outlives the endpoint it began on.

Called by etcd_store. One stream after another, each from the revision after the last one delivered, until there is one
that cannot be had any more. Whole revisions only: etcd_messages.RevisionJoiner.
"""

import asyncio
from collections.abc import AsyncIterator

from penstock.cluster.etcd_client import ATTEMPT_S, PAUSE_S, EtcdClient
from penstock.cluster.etcd_endpoint import RANGE, WATCH, EtcdEndpoint, EtcdStream
from penstock.cluster.etcd_faults import RpcFailed, Verdict, is_compacted, judge
from penstock.cluster.etcd_messages import MESSAGES, Message, RevisionJoiner, bounds
from penstock.cluster.store import Compacted, Revision, Unavailable

REFUSALS_MAX = 3


async def watch(client: EtcdClient, prefix: str, from_revision: int) -> AsyncIterator[Revision]:
    """Ends with Compacted, or with Unavailable where the store was closed or does not let us watch."""
    # etcd takes 0 for "from now on", which nobody here means.
    joiner = RevisionJoiner(max(from_revision, 1))
    refusals = 0
    while True:
        endpoint, token = await client.stream_place()
        stream = endpoint.stream(WATCH, token)
        joiner.restart()
        try:
            created = await _create(stream, prefix, joiner.next_revision)
            is_settled = created.header.revision < joiner.next_revision
            while True:
                response = await stream.read()
                _check_not_ended(response, endpoint.name)
                refusals = 0
                if response.events and not is_settled:
                    await _check_past_is_whole(endpoint, token, prefix, joiner.next_revision)
                    is_settled = True
                for revision in joiner.take(response.events, is_fragment=response.fragment):
                    yield revision
        except RpcFailed as fault:
            if judge(fault) is Verdict.TOKEN_EXPIRED or fault.status == "PERMISSION_DENIED":
                # A watch is told of both in the same words, so only a new token shows which it is.
                client.forget_token(token)
                refusals += 1
                if refusals == REFUSALS_MAX:
                    raise Unavailable(f"etcd does not let this broker watch: {fault}") from None
            else:
                client.leave(endpoint)
        finally:
            stream.close()
        client.check_open()
        await asyncio.sleep(PAUSE_S)


async def _create(stream: EtcdStream, prefix: str, revision: int) -> Message:
    key, range_end = bounds(prefix)
    request = MESSAGES["WatchRequest"]()
    request.create.key, request.create.range_end = key, range_end
    request.create.start_revision, request.create.fragment = revision, True
    try:
        async with asyncio.timeout(ATTEMPT_S):
            await stream.write(request)
            created = await stream.read()
    except TimeoutError:
        raise RpcFailed(stream.endpoint_name, "DEADLINE_EXCEEDED", "it did not begin a watch in time") from None
    assert created.created, "etcd confirms a watch before anything else"
    _check_not_ended(created, stream.endpoint_name)
    return created


def _check_not_ended(response: Message, endpoint: str) -> None:
    if response.compact_revision:
        raise Compacted(response.compact_revision)
    if response.canceled:
        reason = response.cancel_reason
        status = "PERMISSION_DENIED" if "permission denied" in reason else "UNAVAILABLE"
        raise RpcFailed(endpoint, status, reason or "it ended the watch")


async def _check_past_is_whole(endpoint: EtcdEndpoint, token: str, prefix: str, revision: int) -> None:
    """etcd lets a watch begin at the very revision it compacted at, where deletions are no longer told.

    Asked of the member that told the past, after it did: had it been compacted by then, it would be so now.
    """
    if revision <= 1:
        return
    # One key is enough, and it is one we may read.
    before = MESSAGES["RangeRequest"](key=bounds(prefix)[0], revision=revision - 1, count_only=True)
    try:
        await endpoint.call(RANGE, before, token, ATTEMPT_S)
    except RpcFailed as fault:
        if is_compacted(fault):
            raise Compacted(revision) from None
        raise
