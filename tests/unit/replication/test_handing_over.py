"""A broker about to stop: it goes on telling clients who leads now, if it led anything."""

import asyncio
from collections.abc import Iterable
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from uuid import uuid4

import pytest

from penstock.clock import Rng, SystemClock
from penstock.cluster.image import ClusterImage, PartitionState, Topic
from penstock.cluster.layout import Layout
from penstock.cluster.partition_writes import Place
from penstock.config import BrokerConfig
from penstock.disk import RealDisk
from penstock.log.directory import LogDirectory
from penstock.replication import joining as under_test
from penstock.replication.joining import Joining

ME, OTHER = 1, 2


class Cluster:
    """Takes everything that is handed over."""

    def __init__(self) -> None:
        self.has_taken = asyncio.Event()

    async def announce_stopping(self) -> None:
        pass

    async def hand_over(self, places: Iterable[Place]) -> list[Place]:
        assert list(places)
        self.has_taken.set()
        return []


def stopping(tmp_path: Path, leader: int) -> tuple["asyncio.Task[None]", Cluster]:
    image = ClusterImage(Layout())
    image.topics["orders"] = Topic("orders", uuid4(), (PartitionState(leader, 5, (ME, OTHER), (ME, OTHER), 1),), {})
    brokers: Any = {node: SimpleNamespace(id=node) for node in (ME, OTHER)}
    image.brokers.update(brokers)
    logs = LogDirectory(RealDisk(), tmp_path, SystemClock(), Rng(1))
    joining = Joining(ME, image, logs, BrokerConfig({"node.id": str(ME), "log.dirs": str(tmp_path)}))
    cluster = Cluster()
    taking: Any = cluster
    return asyncio.ensure_future(joining.hand_over(taking, taking)), cluster


async def test_who_led_stays_a_moment_after_others_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(under_test, "TELL_S", 3600)
    leaving, cluster = stopping(tmp_path, leader=ME)
    await cluster.has_taken.wait()
    done, _ = await asyncio.wait([leaving], timeout=0.05)
    assert not done
    leaving.cancel()


async def test_who_led_nothing_goes_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(under_test, "TELL_S", 3600)
    leaving, cluster = stopping(tmp_path, leader=OTHER)
    await asyncio.wait_for(leaving, 30)
    assert cluster.has_taken.is_set()
