"""`penstock configs` and `penstock quotas` against a real broker: set, shown, unset, and refused."""

from collections.abc import Callable
from typing import Any

import pytest
from command_line import Run


@pytest.mark.parametrize(
    ("resource", "name", "value"),
    [
        (["topic:orders"], "retention.ms", "12345"),
        (["--topic", "orders"], "retention.ms", "12345"),
        (["broker:1"], "log.retention.ms", "60000"),
        (["broker:default"], "log.retention.ms", "60000"),
        (["--broker", "default"], "message.max.bytes", "2000000"),
        (["group:g"], "consumer.session.timeout.ms", "50000"),
    ],
)
def test_settings_are_set_shown_and_unset(
    run: Run, ask: Callable[..., Any], resource: list[str], name: str, value: str
) -> None:
    run("topics", "create", "orders")

    def shown(*flags: str) -> dict[str, str]:
        return {one["name"]: one["value"] for one in ask("configs", "describe", *resource, *flags)["configs"]}

    assert name not in shown()
    run("configs", "set", *resource, f"{name}={value}")
    assert shown()[name] == value
    assert name in run("configs", "describe", *resource).stdout
    run("configs", "unset", *resource, name)
    assert name not in shown()


def test_all_settings_are_shown_on_demand(run: Run, ask: Callable[..., Any]) -> None:
    run("topics", "create", "orders")
    everything = ask("configs", "describe", "topic:orders", "--all")["configs"]
    assert {"cleanup.policy", "retention.ms", "segment.bytes"} <= {one["name"] for one in everything}
    assert {one["source"] for one in everything} >= {"DEFAULT_CONFIG"}


def test_a_setting_that_is_none_is_refused_with_the_brokers_words(run: Run) -> None:
    run("topics", "create", "orders")
    assert "retention.mss" in run("configs", "set", "topic:orders", "retention.mss=1", code=1).stderr
    assert "log.dirs" in run("configs", "set", "broker:1", "log.dirs=/elsewhere", code=1).stderr
    assert "no.such" in run("configs", "set", "broker:default", "no.such=1", code=1).stderr
    assert "penstock topics list" in run("configs", "describe", "topic:nothing", code=1).stderr


def test_quotas_are_set_shown_and_unset(run: Run, ask: Callable[..., Any]) -> None:
    assert "No quotas" in run("quotas", "describe").stderr
    run("quotas", "set", "--user", "anna", "producer_byte_rate=1048576", "consumer_byte_rate=2097152")
    run("quotas", "set", "--client-id", "default", "request_percentage=50")
    run("quotas", "set", "--user", "anna", "--client-id", "web", "producer_byte_rate=1000")
    both = ask("quotas", "describe")
    assert {"entity": {"client-id": "default"}, "quotas": {"request_percentage": 50.0}} in both
    assert len(both) == 3
    (web,) = ask("quotas", "describe", "--user", "anna", "--client-id", "web")
    assert web["quotas"] == {"producer_byte_rate": 1000.0}
    assert "request_percentage" in run("quotas", "describe", "--client-id", "default").stdout
    run("quotas", "unset", "--client-id", "default", "request_percentage")
    assert ask("quotas", "describe", "--client-id", "default") == []
    assert "bogus_rate" in run("quotas", "set", "--user", "anna", "bogus_rate=1", code=1).stderr


def test_what_our_own_connection_cannot_do_is_told_before_it_is_tried(run: Run) -> None:
    refused = run("quotas", "describe", "-X", "security.protocol=ssl", code=2)
    assert "plaintext" in refused.stderr


def test_a_setting_librdkafka_does_not_know_is_asked_wrongly(run: Run) -> None:
    assert "no.such.property" in run("topics", "list", "-X", "no.such.property=1", code=2).stderr


def test_what_clients_report_is_subscribed_to_shown_listed_and_taken_back(run: Run, ask: Callable[..., Any]) -> None:
    assert ask("configs", "list", "client-metrics") == []
    said = run("configs", "set", "client-metrics:billing", "metrics=org.apache.kafka.producer.", "interval.ms=1000")
    assert "client-metrics billing: interval.ms is now 1000" in said.stdout
    run("configs", "set", "client-metrics:billing", "match=client_id=billing-.*")
    shown = ask("configs", "describe", "client-metrics:billing")
    assert {one["name"]: (one["value"], one["source"]) for one in shown["configs"]} == {
        "metrics": ("org.apache.kafka.producer.", "CLIENT_METRICS_CONFIG"),
        "interval.ms": ("1000", "CLIENT_METRICS_CONFIG"),
        "match": ("client_id=billing-.*", "CLIENT_METRICS_CONFIG"),
    }
    assert ask("configs", "list", "client-metrics") == [{"resource": "client-metrics", "name": "billing"}]
    run("topics", "create", "orders")
    everything = [(one["resource"], one["name"]) for one in ask("configs", "list")]
    assert everything == [("broker", "1"), ("client-metrics", "billing"), ("topic", "orders")]
    assert "interval.ms" in run("configs", "set", "client-metrics:billing", "interval.ms=1", code=1).output
    assert "plaintext" in run("configs", "list", "-X", "security.protocol=ssl", code=2).output
    assert "none of" in run("configs", "list", "colours", code=2).output
    run("configs", "unset", "client-metrics:billing", "metrics", "interval.ms", "match")
    assert ask("configs", "list", "client-metrics") == []
