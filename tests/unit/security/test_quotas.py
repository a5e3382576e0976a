"""Client quotas: which limit applies, how long the wait is, and that clients cannot make the broker remember much."""

import math

import pytest

from penstock.errors import InvalidRequest
from penstock.model import Principal
from penstock.security import quotas as quotas_module
from penstock.security.quotas import (
    CONNECTION_CREATION_RATE,
    CONSUMER_BYTE_RATE,
    CONTROLLER_MUTATION_RATE,
    PRODUCER_BYTE_RATE,
    REQUEST_PERCENTAGE,
    ConnectionQuota,
    Entity,
    MutationQuota,
    Quotas,
    RateQuota,
    validate_quota,
)

ALICE = Principal("User", "alice")
BOB = Principal("User", "bob")

# Kafka's order: the first of these that exists is the one that counts.
LEVELS: list[Entity] = [
    frozenset({("user", "alice"), ("client-id", "app")}),
    frozenset({("user", "alice"), ("client-id", None)}),
    frozenset({("user", "alice")}),
    frozenset({("user", None), ("client-id", "app")}),
    frozenset({("user", None), ("client-id", None)}),
    frozenset({("user", None)}),
    frozenset({("client-id", "app")}),
    frozenset({("client-id", None)}),
]


def entity(**names: str | None) -> Entity:
    return frozenset((kind.replace("_", "-"), name) for kind, name in names.items())


def produce_quota(limits: dict[Entity, float]) -> RateQuota:
    quotas = Quotas()
    quotas.replace({who: {PRODUCER_BYTE_RATE: limit} for who, limit in limits.items()})
    assert quotas.produce is not None
    return quotas.produce


def mutation_quota(limit: float) -> MutationQuota:
    quotas = Quotas()
    quotas.replace({entity(user="alice"): {CONTROLLER_MUTATION_RATE: limit}})
    assert quotas.controller is not None
    return quotas.controller


def connection_quota(limits: dict[str | None, float]) -> ConnectionQuota:
    quotas = Quotas()
    quotas.replace({entity(ip=address): {CONNECTION_CREATION_RATE: limit} for address, limit in limits.items()})
    assert quotas.connections is not None
    return quotas.connections


# Which limit.


@pytest.mark.parametrize("level", range(len(LEVELS)))
def test_the_most_telling_limit_that_exists_is_the_one_that_counts(level: int):
    limits = {who: float(number + 1) for number, who in enumerate(LEVELS) if number >= level}
    assert produce_quota(limits).amount_max(ALICE, "app") == (level + 1) * 10


def test_a_client_no_limit_speaks_of_never_waits():
    quota = produce_quota({entity(user="alice"): 1})
    assert quota.record(BOB, "app", 1e12, 0) == 0
    assert quota.amount_max(BOB, "app") == math.inf


def test_clients_of_a_user_share_the_users_limit():
    quota = produce_quota({entity(user="alice"): 100})
    assert quota.record(ALICE, "a", 900, 0) == 0
    assert quota.record(ALICE, "b", 200, 0) > 0


def test_users_under_the_default_do_not_share_it():
    quota = produce_quota({entity(user=None): 100})
    assert quota.record(ALICE, "a", 2000, 0) > 0
    assert quota.record(BOB, "a", 900, 0) == 0


def test_client_ids_under_a_users_default_do_not_share_it():
    quota = produce_quota({entity(user="alice", client_id=None): 100})
    assert quota.record(ALICE, "a", 2000, 0) > 0
    assert quota.record(ALICE, "b", 900, 0) == 0


def test_users_of_one_client_id_share_the_client_ids_limit():
    quota = produce_quota({entity(client_id="app"): 100})
    assert quota.record(ALICE, "app", 900, 0) == 0
    assert quota.record(BOB, "app", 200, 0) > 0


def test_a_client_without_an_id_falls_under_the_default():
    quota = produce_quota({entity(client_id=None): 100})
    assert quota.record(ALICE, None, 2000, 0) > 0


# How long.


def test_a_burst_after_silence_may_use_what_was_saved_up():
    quota = produce_quota({entity(user="alice"): 100})
    assert quota.record(ALICE, "app", 1000, 50) == 0
    assert quota.record(ALICE, "app", 1, 50) == 10


def test_the_wait_is_what_brings_the_rate_back_to_the_limit():
    # 11 windows of 1 s, the last one just begun: 2,500 bytes over 10 s are 250 a second; at 100 they take 25 s.
    assert produce_quota({entity(user="alice"): 100}).record(ALICE, "app", 2500, 0) == 15_000


def test_a_client_just_below_its_limit_never_waits():
    quota = produce_quota({entity(user="alice"): 100})
    assert all(quota.record(ALICE, "app", 9, tick / 10) == 0 for tick in range(1000))


def test_a_client_over_its_limit_waits_longer_each_time_it_does_not_wait():
    quota = produce_quota({entity(user="alice"): 100})
    waits = [quota.record(ALICE, "app", 600, float(second)) for second in range(11)]
    assert waits == sorted(waits)
    assert waits[-1] > 50_000


def test_what_was_used_is_forgotten_after_all_windows_have_passed():
    quota = produce_quota({entity(user="alice"): 100})
    assert quota.record(ALICE, "app", 100_000, 0) > 0
    assert quota.record(ALICE, "app", 0, 10.9) > 0
    assert quota.record(ALICE, "app", 0, 22) == 0


def test_a_throttled_fetch_that_gave_nothing_does_not_count():
    quota = produce_quota({entity(user="alice"): 100})
    assert quota.record(ALICE, "app", 5000, 0) > 0
    quota.unrecord(ALICE, "app", 5000, 0)
    assert quota.record(ALICE, "app", 900, 0) == 0


def test_a_wait_fits_the_field_it_is_sent_in():
    assert produce_quota({entity(user="alice"): 1}).record(ALICE, "app", 1e18, 0) == 2**31 - 1


def test_a_request_that_took_long_silences_its_client_for_a_window_at_most():
    quotas = Quotas(window=(11, 2.0))
    quotas.replace({entity(user="alice"): {REQUEST_PERCENTAGE: 1}})
    assert quotas.request is not None
    assert quotas.request.record(ALICE, "app", 60 * 100, 0) == 2000


# Changes.


def test_a_kind_of_quota_nobody_has_set_is_none():
    quotas = Quotas()
    quotas.replace({entity(user="alice"): {CONSUMER_BYTE_RATE: 5}})
    assert quotas.fetch is not None
    assert (quotas.produce, quotas.request, quotas.controller, quotas.connections) == (None, None, None, None)
    quotas.replace({})
    assert quotas.fetch is None


def test_a_new_limit_counts_what_was_used_under_the_old_one():
    quotas = Quotas()
    quotas.replace({entity(user="alice"): {PRODUCER_BYTE_RATE: 1000}})
    assert quotas.produce is not None
    assert quotas.produce.record(ALICE, "app", 5000, 0) == 0
    quotas.replace({entity(user="alice"): {PRODUCER_BYTE_RATE: 100}})
    assert quotas.produce.record(ALICE, "app", 0, 0) == 40_000


def test_a_quota_of_a_newer_version_is_passed_over():
    quotas = Quotas()
    quotas.replace({entity(user="alice"): {"tea_rate": 5, PRODUCER_BYTE_RATE: 7}})
    assert quotas.produce is not None


# Topics and partitions.


def test_a_client_within_its_quota_of_changes_may_overdraw_it_once():
    quota = mutation_quota(2)
    assert quota.exceeded_ms(ALICE, "app", 0) == 0
    assert quota.record(ALICE, "app", 22 + 10, 0) == 5000
    assert quota.exceeded_ms(ALICE, "app", 1) == 4000
    assert quota.exceeded_ms(ALICE, "app", 4.9999) == 1
    assert quota.exceeded_ms(ALICE, "app", 5) == 0


def test_changes_saved_up_do_not_exceed_the_bucket():
    quota = mutation_quota(2)
    quota.record(ALICE, "app", 1, 0)
    assert quota.record(ALICE, "app", 22, 1_000_000) == 0
    assert quota.record(ALICE, "app", 1, 1_000_000) == 500


def test_changes_of_a_client_without_a_quota_are_not_counted():
    assert mutation_quota(2).record(BOB, "app", 10**9, 0) == 0


# Connections.


def test_an_address_that_connects_too_often_is_held_back():
    quota = connection_quota({"10.0.0.1": 2})
    assert [quota.record("10.0.0.1", 0) for _ in range(20)] == [0] * 20
    assert quota.record("10.0.0.1", 0) == 500
    assert quota.record("10.0.0.2", 0) == 0


def test_a_refused_connection_does_not_count_against_the_next():
    quota = connection_quota({None: 1})
    assert [quota.record("10.0.0.1", 0) for _ in range(10)] == [0] * 10
    assert all(quota.record("10.0.0.1", 5) > 0 for _ in range(1000))
    assert quota.record("10.0.0.1", 11.5) == 0


def test_an_address_is_held_back_for_a_window_at_most_however_far_its_limit_fell():
    quotas = Quotas()
    quotas.replace({entity(ip=None): {CONNECTION_CREATION_RATE: 100}})
    assert quotas.connections is not None
    assert [quotas.connections.record("10.0.0.1", 0) for _ in range(500)] == [0] * 500
    quotas.replace({entity(ip=None): {CONNECTION_CREATION_RATE: 1}})
    assert quotas.connections.record("10.0.0.1", 0) == 1000


def test_an_addresss_own_limit_wins_over_the_default():
    quota = connection_quota({None: 1, "10.0.0.1": 100})
    assert [quota.record("10.0.0.1", 0) for _ in range(1000)] == [0] * 1000


# Memory.


def test_inventing_client_ids_does_not_make_the_broker_remember_them_all(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(quotas_module, "SENSORS_MAX", 100)
    rates = produce_quota({entity(client_id=None): 100})
    mutations = Quotas()
    mutations.replace({entity(client_id=None): {CONTROLLER_MUTATION_RATE: 1}})
    assert mutations.controller is not None
    for number in range(1000):
        rates.record(ALICE, f"client-{number}", 1, 0)
        mutations.controller.record(ALICE, f"client-{number}", 1, 0)
    remembered = [
        len(rates._sensors),  # pyright: ignore[reportPrivateUsage]
        len(rates.limits._found),  # pyright: ignore[reportPrivateUsage]
        len(mutations.controller._buckets),  # pyright: ignore[reportPrivateUsage]
        len(mutations.controller.limits._found),  # pyright: ignore[reportPrivateUsage]
    ]
    assert all(count <= 100 for count in remembered), remembered


def test_idle_clients_are_forgotten():
    quota = produce_quota({entity(client_id=None): 100})
    for number in range(50):
        quota.record(ALICE, f"client-{number}", 1, 0)
    quota.record(ALICE, "still-here", 1, 30)
    assert len(quota._sensors) == 1  # pyright: ignore[reportPrivateUsage]


def test_a_client_that_still_owes_is_remembered_while_others_are_forgotten(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(quotas_module, "SENSORS_MAX", 10)
    quotas = Quotas()
    quotas.replace({entity(client_id=None): {CONTROLLER_MUTATION_RATE: 1}})
    assert quotas.controller is not None
    quotas.controller.record(ALICE, "debtor", 100, 0)
    for number in range(100):
        quotas.controller.record(ALICE, f"client-{number}", 0, 1)
    assert quotas.controller.exceeded_ms(ALICE, "debtor", 1) > 0


# What may be asked for.


@pytest.mark.parametrize(
    ("who", "key", "value"),
    [
        (entity(), PRODUCER_BYTE_RATE, 1),
        (entity(group="g"), PRODUCER_BYTE_RATE, 1),
        (entity(ip="10.0.0.1", user="alice"), CONNECTION_CREATION_RATE, 1),
        (entity(ip="not-an-address"), CONNECTION_CREATION_RATE, 1),
        (entity(ip="10.0.0.1"), PRODUCER_BYTE_RATE, 1),
        (entity(user="alice"), CONNECTION_CREATION_RATE, 1),
        (entity(user="alice"), "tea_rate", 1),
        (entity(user=""), PRODUCER_BYTE_RATE, 1),
        (entity(user="alice"), PRODUCER_BYTE_RATE, 0),
        (entity(user="alice"), PRODUCER_BYTE_RATE, -1),
        (entity(user="alice"), PRODUCER_BYTE_RATE, 1.5),
        (entity(user="alice"), REQUEST_PERCENTAGE, math.nan),
        (entity(user="alice"), REQUEST_PERCENTAGE, math.inf),
    ],
)
def test_a_quota_that_makes_no_sense_is_refused(who: Entity, key: str, value: float):
    with pytest.raises(InvalidRequest):
        validate_quota(who, key, value)


def test_a_quota_for_one_user_named_twice_is_refused():
    with pytest.raises(InvalidRequest):
        validate_quota([("user", "alice"), ("user", "bob")], PRODUCER_BYTE_RATE, 1)


@pytest.mark.parametrize("who", [entity(user="a"), entity(user=None, client_id="b"), entity(client_id=None)])
def test_a_quota_for_a_user_a_client_id_or_both_is_taken(who: Entity):
    validate_quota(who, PRODUCER_BYTE_RATE, 5)
    validate_quota(who, REQUEST_PERCENTAGE, 0.5)
    validate_quota(entity(ip="::1"), CONNECTION_CREATION_RATE, 5)
