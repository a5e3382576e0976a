"""What every metadata store must do: leases."""

import asyncio

import pytest
from tests.unit.cluster.store_backends import take

from penstock.cluster.store import Change, Compare, LeaseLost, Put, Target, created_at, keep_alive


async def test_a_revoked_lease_takes_its_keys_with_it_in_one_revision(client):
    lease = await client.lease(10)
    put = await client.txn([], [Put("/l/1", b"", lease.id), Put("/l/2", b"", lease.id), Put("/other", b"")])
    assert (await client.get("/l/1")).lease == lease.id
    await lease.revoke()
    assert lease.lost.is_set()
    (seen,) = await take(client.watch("/", put.revision + 1), 1)
    assert seen.changes == (Change("/l/1", None), Change("/l/2", None))
    assert (await client.get("/other")) is not None
    await lease.revoke()


async def test_an_expired_lease_takes_its_keys_with_it_while_nobody_writes(client, store_factory):
    watching = await store_factory.open()
    lease = await client.lease(store_factory.lease_s)
    put = await client.txn([], [Put("/l", b"", lease.id)])
    taking = asyncio.create_task(take(watching.watch("/", put.revision + 1), 1))
    await store_factory.expire(lease)
    assert (await taking)[0].changes == (Change("/l", None),)
    with pytest.raises(LeaseLost):
        await lease.renew()
    assert lease.lost.is_set()


async def test_a_renewed_lease_lives_on(client, store_factory):
    lease = await client.lease(store_factory.lease_s)
    await client.txn([], [Put("/l", b"", lease.id)])
    for _ in range(3):
        await store_factory.pass_time(0.5 * lease.ttl_s)
        await lease.renew()
    assert (await client.txn([Compare("/l", Target.VERSION, 1)], [])).ok
    assert not lease.lost.is_set()


async def test_a_transaction_never_sees_the_keys_of_a_lease_that_is_over(client, store_factory):
    lease = await client.lease(store_factory.lease_s)
    await client.txn([], [Put("/l", b"", lease.id)])
    await store_factory.expire(lease)
    assert (await client.txn([created_at("/l", 0)], [Put("/l", b"mine")])).ok


async def test_a_key_cannot_be_bound_to_a_lease_that_is_over(client):
    lease = await client.lease(10)
    await lease.revoke()
    with pytest.raises(LeaseLost):
        await client.txn([], [Put("/other", b""), Put("/l", b"", lease.id)])
    assert await client.get("/other") is None


async def test_a_key_put_again_without_the_lease_outlives_it(client):
    lease = await client.lease(10)
    await client.txn([], [Put("/l", b"", lease.id)])
    await client.txn([], [Put("/l", b"")])
    await lease.revoke()
    assert await client.get("/l") is not None


async def test_a_lease_kept_alive_ends_when_another_client_revokes_it(client, store_factory):
    lease = await client.lease(0.3)
    keeping = asyncio.create_task(keep_alive(lease))
    await (await store_factory.open()).revoke(lease.id)
    async with asyncio.timeout(10):
        await keeping
    assert lease.lost.is_set()


class SilentLease:
    """One whose store takes a renewal and never answers."""

    id = 1
    ttl_s = 0.05

    def __init__(self) -> None:
        self.lost = asyncio.Event()

    async def renew(self) -> None:
        await asyncio.Event().wait()

    async def revoke(self) -> None: ...


async def test_a_lease_whose_renewal_is_not_answered_is_lost_when_its_time_is_over():
    lease = SilentLease()
    async with asyncio.timeout(10):
        await keep_alive(lease)
    assert lease.lost.is_set()
