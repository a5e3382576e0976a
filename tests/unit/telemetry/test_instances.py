"""Who may ask and push when, and what each is asked for: rules over plain time."""

from uuid import UUID

import pytest

from penstock.errors import ErrorCode, InvalidRequest, PenstockError, ThrottlingQuotaExceeded
from penstock.telemetry import instances as module
from penstock.telemetry.instances import Client, Instance, Instances, UnknownSubscriptionId
from penstock.telemetry.subscriptions import Subscriptions

ME = UUID(int=77)
CLIENT = Client("billing-1", "librdkafka", "2.5.0", "10.0.0.1", 40_000)


class Source:
    """Subscriptions as the cluster's image keeps them."""

    def __init__(self, **subscriptions: dict[str, str]) -> None:
        self.client_metrics_configs = subscriptions
        self.client_metrics_revision = 1

    def change(self, **subscriptions: dict[str, str]) -> None:
        self.client_metrics_configs |= subscriptions
        self.client_metrics_revision += 1


@pytest.fixture
def source() -> Source:
    return Source(all={"metrics": "org.apache.kafka.producer.,org.apache.kafka.consumer.", "interval.ms": "10000"})


@pytest.fixture
def forgotten() -> list[UUID]:
    return []


@pytest.fixture
def known(source: Source, forgotten: list[UUID]) -> Instances:
    return Instances(Subscriptions(source), forgotten.append)


def refusal(
    instance: Instance, subscription_id: int, now: float, *, is_last: bool = False
) -> type[PenstockError] | None:
    try:
        instance.push(subscription_id, now, is_last=is_last)
    except PenstockError as error:
        instance.last_error = error.code
        return type(error)
    return None


@pytest.mark.parametrize(
    ("match", "fits"),
    [
        ("", True),
        ("client_id=billing-.*", True),
        ("client_id=billing", False),  # a whole value, not a part of it
        ("client_id=billing-.*,client_software_name=apache-kafka-java", False),
        ("client_software_name=lib.*, client_software_version = 2[.].*", True),
        ("client_source_address=10[.]0[.]0[.]1,client_source_port=40000", True),
        (f"client_instance_id={ME}", True),
    ],
)
def test_a_client_is_asked_if_all_that_is_known_of_it_fits(match: str, fits: bool) -> None:
    subscriptions = Subscriptions(Source(one={"metrics": "*", "interval.ms": "500", "match": match}))
    wish = subscriptions.wish_for(ME, CLIENT.facts(ME))
    assert (wish.metrics, wish.interval_ms) == ((("*",), 500) if fits else ((), 300_000))


def test_several_subscriptions_are_one_wish_and_the_shortest_interval(source: Source) -> None:
    source.change(more={"metrics": "org.apache.kafka.producer.,a.", "interval.ms": "20000"})
    subscriptions = Subscriptions(source)
    wish = subscriptions.wish_for(ME, CLIENT.facts(ME))
    assert wish.metrics == ("a.", "org.apache.kafka.consumer.", "org.apache.kafka.producer.")
    assert wish.interval_ms == 10_000
    assert wish.id == Subscriptions(source).wish_for(ME, CLIENT.facts(ME)).id, "on another broker it is the same"
    assert wish.id != subscriptions.wish_for(UUID(int=78), CLIENT.facts(ME)).id
    source.change(everything={"metrics": "b.,*"})
    assert subscriptions.wish_for(ME, CLIENT.facts(ME)).metrics == ("*",)
    assert -(2**31) <= wish.id < 2**31


def test_a_push_comes_once_in_an_interval_and_at_once_after_a_question(known: Instances) -> None:
    instance = known.heard(ME, CLIENT, 0)
    instance.ask(0)
    wish = instance.wish.id
    assert refusal(instance, wish, 0.5) is None, "clients spread the first one over an interval"
    assert refusal(instance, wish, 10.4) is ThrottlingQuotaExceeded
    assert refusal(instance, wish, 10.5) is None
    with pytest.raises(ThrottlingQuotaExceeded):
        instance.ask(20)
    instance.ask(20.5)
    assert refusal(instance, wish, 20.6) is None


def test_a_client_whose_wish_is_out_of_date_may_ask_at_once(known: Instances, source: Source) -> None:
    instance = known.heard(ME, CLIENT, 0)
    instance.ask(0)
    old = instance.wish.id
    assert refusal(instance, old, 1) is None
    source.change(other={"metrics": "x.", "match": "client_id=somebody"})
    assert known.heard(ME, CLIENT, 5).wish.id == old, "that was not about this client"
    source.change(more={"metrics": "x.", "interval.ms": "20000"})
    assert known.heard(ME, CLIENT, 11) is instance
    assert refusal(instance, old, 11) is UnknownSubscriptionId
    instance.ask(11.1)
    assert refusal(instance, instance.wish.id, 11.2) is None
    assert instance.last_error is ErrorCode.NONE


def test_the_last_push_is_never_too_early_and_nothing_follows_it(known: Instances) -> None:
    instance = known.heard(ME, CLIENT, 0)
    instance.ask(0)
    assert refusal(instance, instance.wish.id, 1) is None
    assert refusal(instance, instance.wish.id, 2, is_last=True) is None
    assert refusal(instance, instance.wish.id, 30) is InvalidRequest


def test_one_that_was_with_another_broker_goes_on_here(known: Instances, source: Source) -> None:
    there = Instances(Subscriptions(source), lambda _: None).heard(ME, CLIENT, 0)
    assert refusal(known.heard(ME, CLIENT, 100), there.wish.id, 100) is None


def test_the_silent_and_the_too_many_are_forgotten(
    known: Instances, forgotten: list[UUID], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "INSTANCES_MAX", 2)
    first, second, third = (UUID(int=number) for number in (10, 11, 12))
    known.heard(first, CLIENT, 0)
    known.heard(second, CLIENT, 1)
    known.heard(first, CLIENT, 2)
    known.heard(third, CLIENT, 3)
    assert (forgotten, len(known)) == ([second], 2)
    known.forget_silent(62)
    assert forgotten == [second]
    known.forget_silent(62.5)
    assert forgotten == [second, first]
