"""What every metadata store must do when several processes work on it, and when one is killed."""

import asyncio
import signal
import sys
from pathlib import Path

from tests.unit.cluster.store_backends import Backend, take

from penstock.cluster.store import Put

WORKER = Path(__file__).with_name("store_worker.py")


async def start_worker(backend: Backend, *arguments: str) -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(
        sys.executable, str(WORKER), backend.url, *arguments, stdout=asyncio.subprocess.PIPE
    )


async def finish(*workers: asyncio.subprocess.Process) -> None:
    async with asyncio.timeout(60):
        assert [await worker.wait() for worker in workers] == [0] * len(workers)


async def test_three_processes_lose_no_increment(client, store_factory):
    workers = [await start_worker(store_factory, "increment", "/count", "200") for _ in range(3)]
    await finish(*workers)
    assert (await client.get("/count")).value == b"600"


async def test_a_watch_sees_every_write_of_another_process_once_and_in_order(client, store_factory):
    start = (await client.range("")).revision + 1
    taking = asyncio.create_task(take(client.watch("/p/", start), 200))
    await finish(await start_worker(store_factory, "put", "/p/", "200"))
    seen = await taking
    assert [change.key for revision in seen for change in revision.changes] == [f"/p/{n:04}" for n in range(200)]


async def test_a_process_killed_while_writing_leaves_whole_transactions(store_factory):
    worker = await start_worker(store_factory, "write-forever")
    acknowledged = -1
    async with asyncio.timeout(30):
        while acknowledged < 30:
            acknowledged = int(await worker.stdout.readline())
    worker.send_signal(signal.SIGKILL)
    rest, _ = await worker.communicate()
    acknowledged = max([acknowledged, *map(int, rest.split(b"\n")[:-1])])
    store = await store_factory.open()
    values = {int(item.value) for item in (await store.range("/whole/")).items}
    assert len(values) == 1
    assert values.pop() in (acknowledged, acknowledged + 1)
    assert (await store.txn([], [Put("/after", b"")])).ok


async def test_three_processes_that_write_and_watch_see_one_history(client, store_factory):
    start = (await client.range("")).revision + 1
    workers = [await start_worker(store_factory, "write-and-watch", str(start), f"/h/{n}/", "100") for n in range(3)]
    told = [(await worker.communicate())[0].decode().splitlines() for worker in workers]
    await finish(*workers)
    seen = await take(client.watch("/h/", start), 300)
    history = [f"{revision.number} {change.key}" for revision in seen for change in revision.changes]
    assert len(set(history)) == 300
    assert told == [history] * 3
