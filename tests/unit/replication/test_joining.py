"""How a broker joins with a log that is damaged: first nobody counts on it, then it is set aside."""

from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tests.unit.log.making import AT, TOPIC_ID

from penstock.clock import Rng, SystemClock
from penstock.cluster.image import ClusterImage, PartitionState, Topic
from penstock.cluster.layout import Layout
from penstock.cluster.partition_writes import Place
from penstock.cluster.store import Unavailable
from penstock.config import BrokerConfig
from penstock.disk import RealDisk
from penstock.log.directory import LogDirectory
from penstock.metrics import BrokerMetrics
from penstock.replication.joining import Joining

ME, OTHER = 1, 2


class Changes:
    """What is written about this broker; the store may be away."""

    def __init__(self) -> None:
        self.is_away = True
        self.left: list[Mapping[Place, bool]] = []

    async def leave(self, places: Mapping[Place, bool]) -> None:
        if self.is_away:
            raise Unavailable("the store is away")
        self.left.append(places)


async def test_a_damaged_log_is_set_aside_only_after_its_broker_left_the_in_sync_set(tmp_path: Path) -> None:
    disk, clock = RealDisk(), SystemClock()
    (tmp_path / str(AT)).write_bytes(b"no directory")
    logs = LogDirectory(disk, tmp_path, clock, Rng(1))
    logs.prepare()
    image = ClusterImage(Layout())
    state = PartitionState(OTHER, 5, (OTHER, ME), (OTHER, ME), 1)
    image.topics[AT.topic] = Topic(AT.topic, TOPIC_ID, (state,), {})
    joining = Joining(ME, image, logs, BrokerConfig({"node.id": str(ME), "log.dirs": str(tmp_path)}))
    await joining.open_logs()
    assert AT in logs.offline
    changes: Any = Changes()
    membership: Any = SimpleNamespace(is_new_disk=False, is_older_disk=False)
    metrics = BrokerMetrics(clock)
    with pytest.raises(Unavailable):
        await joining.disown(changes, membership, metrics)
    assert AT in logs.offline, "else the next start finds an empty log, and takes it for a whole one"
    assert not any(name.endswith("-damaged") for name in disk.list_names(tmp_path))
    changes.is_away = False
    await joining.disown(changes, membership, metrics)
    assert changes.left == [{(TOPIC_ID, 0): False}]
    assert AT not in logs.offline
    assert any(name.endswith("-damaged") for name in disk.list_names(tmp_path))
    logs.release()
    disk.close()
