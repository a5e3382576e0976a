"""A process of its own that works on a metadata store; started by test_store_processes.

python store_worker.py <url> increment <key> <times>
python store_worker.py <url> put <prefix> <times>
python store_worker.py <url> write-and-watch <from revision> <prefix> <times>
python store_worker.py <url> write-forever
"""

import asyncio
import sys
from pathlib import Path

from penstock.cluster.open_store import open_store
from penstock.cluster.store import Get, MetadataStore, Put, modified_at

KEYS_PER_TXN = 50
WRITERS = 3


async def increment(store: MetadataStore, key: str, times: int) -> None:
    present = await store.get(key)
    for _ in range(times):
        while True:
            value = int(present.value) if present else 0
            put = Put(key, str(value + 1).encode())
            compare = modified_at(key, present.mod_revision if present else 0)
            result = await store.txn([compare], [put, Get(key)], [Get(key)])
            present = result.reads[0]
            if result.ok:
                break


async def put(store: MetadataStore, prefix: str, times: int) -> None:
    for number in range(times):
        await store.txn([], [Put(f"{prefix}{number:04}", str(number).encode())])


async def write_and_watch(store: MetadataStore, from_revision: int, prefix: str, times: int) -> None:
    """Print all that three processes do, as the watch tells it."""
    writing = asyncio.create_task(put(store, prefix, times))
    seen = 0
    async for revision in store.watch("/h/", from_revision):
        for change in revision.changes:
            sys.stdout.write(f"{revision.number} {change.key}\n")
            seen += 1
        if seen == WRITERS * times:
            break
    await writing


async def write_forever(store: MetadataStore) -> None:
    number = 0
    while True:
        await store.txn([], [Put(f"/whole/{index}", str(number).encode()) for index in range(KEYS_PER_TXN)])
        sys.stdout.write(f"{number}\n")
        sys.stdout.flush()
        number += 1


async def main() -> None:
    url, job, *arguments = sys.argv[1:]
    store = await open_store(url, Path())
    match job:
        case "increment":
            await increment(store, arguments[0], int(arguments[1]))
        case "put":
            await put(store, arguments[0], int(arguments[1]))
        case "write-and-watch":
            await write_and_watch(store, int(arguments[0]), arguments[1], int(arguments[2]))
        case "write-forever":
            await write_forever(store)
        case _:
            raise SystemExit(f"no job {job}")
    await store.close()


if __name__ == "__main__":
    asyncio.run(main())
