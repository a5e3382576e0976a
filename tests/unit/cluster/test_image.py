"""The cluster image follows revisions, shows whole topics only, and says what changed."""

from uuid import UUID

import pytest

from penstock.cluster.image import NO_CONTROLLER, ClusterImage, PartitionState, Topic
from penstock.cluster.layout import Layout, encode
from penstock.cluster.store import Change, KeyValue, Revision, Snapshot
from penstock.model import Endpoint

LAYOUT = Layout("test")
ID = UUID(int=0xABC)
OTHER_ID = UUID(int=0xDEF)


class Store:
    """Enough of a store to feed an image: keys with revisions, one change after the other."""

    def __init__(self) -> None:
        self.number = 1
        self.live: dict[str, KeyValue] = {}

    def write(self, *changes: tuple[str, dict | None]) -> Revision:
        self.number += 1
        made = []
        for key, fields in changes:
            old = self.live.pop(key, None)
            item = None
            if fields is not None:
                created = old.create_revision if old else self.number
                item = self.live[key] = KeyValue(key, encode(fields), created, self.number, 1)
            made.append(Change(key, item))
        return Revision(self.number, tuple(made))

    def snapshot(self) -> Snapshot:
        return Snapshot(self.number, tuple(self.live[key] for key in sorted(self.live)))


@pytest.fixture
def store() -> Store:
    return Store()


@pytest.fixture
def image() -> ClusterImage:
    return ClusterImage(LAYOUT)


def partition(index: int, *, topic_id: UUID = ID, leader: int = 1, leader_epoch: int = 0) -> tuple[str, dict]:
    state = PartitionState(leader, leader_epoch, (leader,), (leader,))
    return LAYOUT.partition(topic_id, index), state.as_json()


def topic(name: str = "orders", count: int = 1, *, topic_id: UUID = ID, configs: dict | None = None):
    return LAYOUT.topic(name), {"id": topic_id.hex, "partitions": count, "configs": configs or {}}


def test_partitions_are_invisible_until_their_topic_key_is_written(image, store):
    changes = image.apply(store.write(partition(0), partition(1)))
    assert image.topics == {}
    assert changes.topics_created == []
    changes = image.apply(store.write(topic(count=2, configs={"retention.ms": "5"})))
    created = image.topics["orders"]
    assert changes.topics_created == [created]
    assert image.topics_by_id == {ID: created}
    assert (created.name, created.id, created.configs) == ("orders", ID, {"retention.ms": "5"})
    assert [state.leader for state in created.partitions] == [1, 1]
    assert created.create_revision == created.mod_revision == 3
    assert image.revision == 3


def test_a_deleted_topic_is_gone_at_once_and_its_partitions_are_orphans(image, store):
    image.apply(store.write(partition(0), partition(1), topic(count=2)))
    changes = image.apply(store.write((LAYOUT.topic("orders"), None)))
    assert [deleted.name for deleted in changes.topics_deleted] == ["orders"]
    assert image.topics == {}
    assert image.topics_by_id == {}
    assert sorted(image.orphans()) == sorted(image.orphans(ID)) == [(ID, 0), (ID, 1)]
    image.apply(store.write((partition(0)[0], None), (partition(1)[0], None)))
    assert image.orphans() == []


def test_a_topic_made_again_under_the_same_name_is_another_topic(image, store):
    image.apply(store.write(partition(0), topic()))
    image.apply(store.write((LAYOUT.topic("orders"), None)))
    image.apply(store.write(partition(0, topic_id=OTHER_ID), topic(topic_id=OTHER_ID)))
    assert image.topics["orders"].id == OTHER_ID
    assert set(image.topics_by_id) == {OTHER_ID}
    assert image.orphans() == [(ID, 0)]


def test_added_partitions_appear_together_with_the_new_count(image, store):
    image.apply(store.write(partition(0), topic()))
    assert not image.apply(store.write(partition(1), partition(2))).partitions_added
    assert len(image.topics["orders"].partitions) == 1
    changes = image.apply(store.write(topic(count=3)))
    grown = image.topics["orders"]
    assert changes.partitions_added == [(grown, 1), (grown, 2)]
    assert changes.topics_created == []
    assert len(grown.partitions) == 3


def test_a_new_leader_changes_that_partition_and_no_topic_a_caller_holds(image, store):
    image.apply(store.write(partition(0), partition(1), topic(count=2)))
    held = image.topics["orders"]
    changes = image.apply(store.write(partition(1, leader=2, leader_epoch=1)))
    now = image.topics["orders"]
    assert changes.partitions_changed == [(now, 1)]
    assert (now.partitions[1].leader, now.partitions[1].leader_epoch) == (2, 1)
    assert now.partitions[1].mod_revision == changes.revision
    assert held.partitions[1].leader == 1
    assert image.topics_by_id[ID] is now


def test_changed_topic_settings_are_reported_and_nothing_else(image, store):
    image.apply(store.write(partition(0), topic()))
    changes = image.apply(store.write(topic(configs={"retention.ms": "7"})))
    assert changes.topic_configs_changed == [image.topics["orders"]]
    assert not changes.partitions_changed
    assert not changes.partitions_added


def test_brokers_come_with_their_epoch_and_go(image, store):
    fields = {"endpoint": ["h", 9092], "rack": "r", "directory": "d", "pid": 1}
    changes = image.apply(store.write((LAYOUT.broker(3), fields)))
    assert changes.brokers_changed
    broker = image.brokers[3]
    assert (broker.id, broker.endpoint, broker.rack, broker.epoch) == (3, Endpoint("h", 9092), "r", 2)
    image.apply(store.write((LAYOUT.broker(3), None)))
    assert image.brokers == {}


def test_the_controller_and_the_cluster_id_are_known(image, store):
    assert image.controller_id == NO_CONTROLLER
    changes = image.apply(store.write((LAYOUT.controller, {"broker": 0}), (LAYOUT.cluster_id, {"id": "abc"})))
    assert changes.controller_changed
    assert (image.controller_id, image.cluster_id) == (0, "abc")
    image.apply(store.write((LAYOUT.controller, None)))
    assert image.controller_id == NO_CONTROLLER


def test_settings_of_brokers_and_groups_come_and_go(image, store):
    changes = image.apply(
        store.write(
            (LAYOUT.config("broker", ""), {"log.retention.ms": "1"}),
            (LAYOUT.config("broker", "1"), {"log.retention.ms": "2"}),
            (LAYOUT.config("group", "a/b"), {"x": "y"}),
        )
    )
    assert image.broker_configs == {"": {"log.retention.ms": "1"}, "1": {"log.retention.ms": "2"}}
    assert image.group_configs == {"a/b": {"x": "y"}}
    assert (changes.broker_configs_changed, changes.group_configs_changed) == ({"", "1"}, {"a/b"})
    image.apply(store.write((LAYOUT.config("broker", ""), None), (LAYOUT.config("group", "a/b"), None)))
    assert image.broker_configs == {"1": {"log.retention.ms": "2"}}
    assert image.group_configs == {}


def test_quotas_come_and_go(image, store):
    entity = frozenset({("user", "eve"), ("client-id", None)})
    assert image.apply(store.write((LAYOUT.quota(entity), {"producer_byte_rate": 5.0}))).quotas_changed
    assert image.client_quotas == {entity: {"producer_byte_rate": 5.0}}
    image.apply(store.write((LAYOUT.quota(entity), None)))
    assert image.client_quotas == {}


def test_keys_of_a_family_it_does_not_know_are_passed_over(image, store):
    image.apply(store.write((f"{LAYOUT.prefix}future/thing", {"x": 1}), (LAYOUT.config("future", "x"), {"x": "y"})))
    assert image.revision == 2


def test_loading_is_the_same_as_following(image, store):
    revisions = [
        store.write((LAYOUT.controller, {"broker": 1}), (LAYOUT.config("broker", ""), {"a": "b"})),
        store.write(partition(0), partition(1), topic(count=2)),
        store.write(partition(0, topic_id=OTHER_ID), topic("other", topic_id=OTHER_ID, configs={"c": "d"})),
        store.write(partition(1, leader=2, leader_epoch=1)),
        store.write((LAYOUT.topic("other"), None)),
    ]
    for revision in revisions:
        image.apply(revision)
    loaded = ClusterImage(LAYOUT)
    changes = loaded.load(store.snapshot())
    assert vars(loaded) == vars(image)
    assert changes.topics_created == [loaded.topics["orders"]]


def test_loading_again_after_a_gap_reports_only_what_differs(image, store):
    entity = frozenset({("ip", "10.0.0.1")})
    image.apply(
        store.write(
            partition(0),
            topic("kept"),
            partition(0, topic_id=OTHER_ID),
            topic("gone", topic_id=OTHER_ID),
            (LAYOUT.broker(1), {"endpoint": ["h", 1], "rack": None}),
            (LAYOUT.config("broker", "1"), {"a": "b"}),
            (LAYOUT.config("group", "g"), {"a": "b"}),
            (LAYOUT.quota(entity), {"connection_creation_rate": 1.0}),
            (LAYOUT.controller, {"broker": 1}),
        )
    )
    for key in list(store.live):
        if key not in (LAYOUT.topic("kept"), LAYOUT.partition(ID, 0)):
            store.write((key, None))
    store.write(partition(0, topic_id=UUID(int=5)), topic("new", topic_id=UUID(int=5)))
    changes = image.load(store.snapshot())
    fresh = ClusterImage(LAYOUT)
    fresh.load(store.snapshot())
    assert vars(image) == vars(fresh)
    assert [t.name for t in changes.topics_created] == ["new"]
    assert [t.name for t in changes.topics_deleted] == ["gone"]
    assert changes.partitions_changed == []
    assert changes.brokers_changed
    assert changes.controller_changed
    assert changes.quotas_changed


def test_loading_finds_a_topic_made_again_under_its_name(image, store):
    image.apply(store.write(partition(0), topic()))
    store.write((LAYOUT.topic("orders"), None), (LAYOUT.partition(ID, 0), None))
    store.write(partition(0, topic_id=OTHER_ID), topic(topic_id=OTHER_ID))
    changes = image.load(store.snapshot())
    assert [t.id for t in changes.topics_deleted] == [ID]
    assert [t.id for t in changes.topics_created] == [OTHER_ID]
    assert set(image.topics_by_id) == {OTHER_ID}


def test_names_that_differ_in_dots_and_underscores_collide(image, store):
    image.apply(store.write(partition(0), topic("a.b")))
    assert image.colliding_name("a_b") == "a.b"
    assert image.colliding_name("a.b") is None
    image.apply(store.write((LAYOUT.topic("a.b"), None)))
    assert image.colliding_name("a_b") is None


def test_a_topic_that_lacks_a_partition_key_is_noticed(image, store):
    with pytest.raises(AssertionError, match="1 of its 2"):
        image.apply(store.write(partition(0), topic(count=2)))


def test_revisions_are_applied_forwards_only(image, store):
    first = store.write(partition(0), topic())
    image.apply(store.write(partition(1)))
    with pytest.raises(AssertionError):
        image.apply(first)


def test_partitions_alike_share_their_tuples(image, store):
    image.apply(store.write(partition(0), partition(1), topic(count=2)))
    first, second = image.topics["orders"].partitions
    assert first.isr is second.isr
    assert isinstance(image.topics["orders"], Topic)
