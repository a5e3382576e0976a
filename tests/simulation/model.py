"""What the clients of a simulated cluster were told: the truth every replica and every later reader is held to.

Called by load, which notes, and by checks, which compares. A request without an answer is unknown for ever, unless a
later answer or a reader settles it; it is never counted as failed.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field

from tests.simulation.loop import World

Place = tuple[str, int]


@dataclass
class PartitionModel:
    """One partition as clients know it."""

    # By value: every record is another. An offset of -1 was acknowledged without being told where it is.
    sent: dict[bytes, None] = field(default_factory=dict)
    acknowledged: dict[bytes, int] = field(default_factory=dict)
    refused: dict[bytes, None] = field(default_factory=dict)
    # By offset: what readers were given, whoever gave it.
    read: dict[int, bytes] = field(default_factory=dict)
    read_upto: int = 0


class Model:
    def __init__(self, world: World) -> None:
        self.world = world
        self.partitions: dict[Place, PartitionModel] = {}
        # Transactions: their values by id, and what the coordinator said of each.
        self.committed: dict[int, None] = {}
        self.aborted: dict[int, None] = {}
        self.begun: dict[int, None] = {}
        # What was acknowledged last of each group's commits of a partition, and the highest ever tried.
        self.commits: dict[tuple[str, str, int], int] = {}

    def at(self, topic: str, partition: int) -> PartitionModel:
        return self.partitions.setdefault((topic, partition), PartitionModel())

    def acknowledge(self, topic: str, partition: int, values: Iterable[bytes], base_offset: int) -> None:
        known = self.at(topic, partition)
        for number, value in enumerate(values):
            offset = base_offset + number if base_offset >= 0 else -1
            known.acknowledged[value] = offset
            was = known.read.get(offset)
            if was is not None and was != value:
                self.world.problem(f"{topic}-{partition}: {value!r} acknowledged at {offset}, where {was!r} was read")

    def note_read(self, topic: str, partition: int, offset: int, value: bytes) -> None:
        known = self.at(topic, partition)
        was = known.read.setdefault(offset, value)
        if was != value:
            self.world.problem(f"{topic}-{partition}: offset {offset} was {was!r}, and is {value!r} now")
        if value not in known.sent:
            self.world.problem(f"{topic}-{partition}: offset {offset} has {value!r}, which nobody sent there")

    @property
    def acknowledged_count(self) -> int:
        return sum(len(known.acknowledged) for known in self.partitions.values())
