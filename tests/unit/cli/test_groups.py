"""What `penstock groups` shows of a group, and what it reads from brokers beyond what librdkafka passes on."""

import socket
from types import SimpleNamespace
from typing import Any

import pytest

from penstock.admin.cluster import Cluster
from penstock.admin.group_facts import NOTHING_KNOWN, GroupFacts, Rebalance, ask_facts, read_facts
from penstock.admin.group_lag import GroupView, Member
from penstock.cli import groups
from penstock.errors import ErrorCode
from penstock.model import Endpoint, TopicPartition

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
NOTE = "rebalanced at 2026-01-01T00:00:00.000+00:00: member m-2 joined (told to)"
WHY = Rebalance("2026-01-01T00:00:00.000+00:00", "member m-2 joined (told to)")


def described(**fields: Any) -> Any:
    given = {"error_code": 0, "error_message": NOTE, "group_epoch": 7, "assignment_epoch": 6, "members": []}
    return SimpleNamespace(**{**given, **fields})


def test_epochs_and_the_cause_of_a_rebalance_are_read() -> None:
    members = [SimpleNamespace(member_id="m-1", member_epoch=5)]
    assert read_facts(described(members=members), True) == GroupFacts(7, 6, WHY, {"m-1": 5})


def test_a_classic_group_has_no_epochs() -> None:
    assert read_facts(described(), False) == GroupFacts(rebalance=WHY)


@pytest.mark.parametrize("message", [None, "", "Group g not found.", "rebalanced at"])
def test_a_broker_that_says_no_cause_is_taken_as_saying_none(message: str | None) -> None:
    assert read_facts(described(error_message=message), False) == NOTHING_KNOWN


def test_versions_without_a_message_and_groups_with_an_error_give_nothing() -> None:
    old = described()
    del old.error_message
    assert read_facts(old, False) == NOTHING_KNOWN
    assert read_facts(described(error_code=ErrorCode.GROUP_ID_NOT_FOUND), True) == NOTHING_KNOWN


def test_a_cluster_that_wants_tls_is_not_asked_in_plain_text() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        secure = Cluster("127.0.0.1:1", {"security.protocol": "SSL"}, 1.0, False)
        assert ask_facts(secure, "g", True, Endpoint(*server.getsockname())) == NOTHING_KNOWN
        server.setblocking(False)
        with pytest.raises(BlockingIOError):
            server.accept()


def test_where_nobody_can_be_asked_nothing_is_known() -> None:
    plain = Cluster("127.0.0.1:1", {}, 1.0, False)
    assert ask_facts(plain, "g", True, None) == NOTHING_KNOWN
    assert ask_facts(plain, "g", False, Endpoint("127.0.0.1", 1)) == NOTHING_KNOWN  # nobody listens there


CONSUMER_VIEW = GroupView(
    "g",
    "reconciling",
    "consumer",
    "uniform",
    "127.0.0.1:9092",
    (Member("m-1", "anna", "10.0.0.1", None, (T0, T1), (T0,)), Member("m-2", "bert", "10.0.0.2", "i", (), (T1,))),
    (),
    GroupFacts(7, 7, WHY, {"m-1": 6, "m-2": 7}),
)


def show(view: GroupView, capsys: pytest.CaptureFixture[str]) -> list[list[str]]:
    groups._print_view(view)
    return [line.split() for line in capsys.readouterr().out.splitlines()]


def test_a_consumer_group_is_shown_with_epochs_targets_and_the_last_cause(capsys: pytest.CaptureFixture[str]) -> None:
    lines = show(CONSUMER_VIEW, capsys)
    assert ["Type", "consumer,", "epoch", "7"] in lines
    assert ["Rebalanced", f"{WHY.at}:", *WHY.cause.split()] in lines
    assert ["CLIENT", "HOST", "PARTITIONS", "TARGET", "EPOCH", "INSTANCE", "MEMBER"] in lines
    assert ["anna", "10.0.0.1", "2", "1", "6", "-", "m-1"] in lines
    assert ["bert", "10.0.0.2", "0", "1", "7", "i", "m-2"] in lines


def test_a_target_behind_the_group_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    view = GroupView("g", "assigning", "consumer", "uniform", None, (), (), GroupFacts(8, 7))
    assert ["Type", "consumer,", "epoch", "8,", "its", "target", "still", "of", "epoch", "7"] in show(view, capsys)


def test_a_classic_group_is_shown_without_what_it_has_not(capsys: pytest.CaptureFixture[str]) -> None:
    view = GroupView("g", "stable", "classic", "range", None, (Member("m-1", "anna", "h", None, (T0,)),), ())
    lines = show(view, capsys)
    assert ["Type", "classic"] in lines
    assert ["CLIENT", "HOST", "PARTITIONS", "INSTANCE", "MEMBER"] in lines
    assert not any(line[:1] == ["Rebalanced"] for line in lines)


def test_the_document_of_a_consumer_group_has_it_all() -> None:
    document = groups._document(CONSUMER_VIEW)
    assert (document["type"], document["epoch"], document["target_epoch"]) == ("consumer", 7, 7)
    assert document["last_rebalance"] == {"at": WHY.at, "cause": WHY.cause}
    (anna, _) = document["members"]
    assert (anna["epoch"], len(anna["partitions"])) == (6, 2)
    assert anna["target_partitions"] == [{"topic": "t", "partition": 0}]


def test_what_a_name_could_do_to_a_terminal_is_shown_instead(capsys: pytest.CaptureFixture[str]) -> None:
    facts = GroupFacts(rebalance=Rebalance("now", "member \x1b[2J joined"))
    groups._print_view(GroupView("g", "empty", "classic", "", None, (), (), facts))
    assert "\x1b" not in capsys.readouterr().out
