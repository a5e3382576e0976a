"""What the logs of a dead broker say of the last transaction there was, read past the broker.

Called by the tests that kill brokers in the middle of transactions, to know where they did.
"""

from collections.abc import Collection, Iterator
from pathlib import Path
from typing import NamedTuple

from penstock.records.batch import HEADER_BYTES, BatchHeader, read_header
from penstock.records.record import decode_records

LARGEST_BYTES = 1 << 20
STATE_AT = 16  # in a record of the transaction log, behind version, producer id, epoch and time-out
STATES = ("Empty", "Ongoing", "PrepareCommit", "PrepareAbort", "CompleteCommit", "CompleteAbort")


class Death(NamedTuple):
    """How far the last transaction had come."""

    state: str
    markers: int  # how many of its partitions, that of the offsets among them, end with a marker


def unmet(deaths: Collection[Death], *states: str) -> set[str]:
    """Which of the states nobody died in, and whether anybody died before the first marker and between markers.

    Which write the n-th is depends on which requests happened to share one, so the same n may fall on another place
    in every run: whoever kills goes on until nothing is unmet.
    """
    met = {death.state for death in deaths}
    for death in deaths:
        met.add(f"{death.state} {'between' if death.markers else 'before'} markers")
    wanted = set(states)
    for state in ("PrepareCommit", "PrepareAbort"):
        wanted |= {f"{state} before markers", f"{state} between markers"}
    return wanted - met


def read_death(data_dir: Path, topic: str) -> Death | None:
    state, producer, epoch = "", -1, -1
    for header, batch in _batches(data_dir, "__transaction_state"):
        for record in decode_records(batch, header, LARGEST_BYTES):
            if record.value:
                state = STATES[record.value[STATE_AT]]
                producer = int.from_bytes(record.value[2:10], "big")
                epoch = int.from_bytes(record.value[10:12], "big")
    if not state:
        return None
    markers = 0
    for name in (topic, "__consumer_offsets"):
        for directory in data_dir.glob(f"{name}-*"):
            ended = False
            for header, _ in _batches(data_dir, directory.name):
                if header.producer_id == producer and header.producer_epoch == epoch:
                    ended = header.is_control
            markers += ended
    return Death(state, markers)


def _batches(data_dir: Path, name: str) -> Iterator[tuple[BatchHeader, bytes]]:
    """What the kernel was given before the process died; a batch is written in one call, so none is there by half."""
    for path in sorted(data_dir.glob(f"{name}*/*.log")):
        data = path.read_bytes()
        position = 0
        while position + HEADER_BYTES <= len(data):
            header = read_header(data, position)
            if header.batch_length <= 0:
                break  # room made in advance
            yield header, data[position : position + header.size]
            position += header.size
