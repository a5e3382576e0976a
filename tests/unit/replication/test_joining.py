"""How a broker joins with a log that is damaged: first nobody counts on it, then it is set aside."""

import errno
import os
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tests.simulation.watched_disk import EFFECTS, Act, WatchedDisk
from tests.unit.log.making import AT, TOPIC_ID, append

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


async def test_a_log_that_a_full_disk_kept_from_being_opened_may_stay_where_nobody_else_is_left(tmp_path: Path) -> None:
    def refuse(act: Act) -> None:
        if act.kind in EFFECTS:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    disk, clock = RealDisk(), SystemClock()
    logs = LogDirectory(disk, tmp_path, clock, Rng(1))
    logs.prepare()
    image = ClusterImage(Layout())
    image.topics[AT.topic] = Topic(AT.topic, TOPIC_ID, (PartitionState(ME, 5, (ME,), (ME,), 1),), {})
    config = BrokerConfig({"node.id": str(ME), "log.dirs": str(tmp_path)})
    await Joining(ME, image, logs, config).open_logs()
    append(logs.logs[AT], "kept")
    logs.release()
    full = LogDirectory(WatchedDisk(disk, refuse), tmp_path, clock, Rng(1))
    joining = Joining(ME, image, full, config)
    await joining.open_logs()
    assert AT in full.offline
    changes: Any = Changes()
    changes.is_away = False
    await joining.disown(changes, SimpleNamespace(is_new_disk=False, is_older_disk=False), BrokerMetrics(clock))
    assert changes.left == [{(TOPIC_ID, 0): True}]
    assert AT in full.offline
    disk.close()
