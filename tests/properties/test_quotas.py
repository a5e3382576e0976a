"""Client quotas against a plain model, and what they promise whatever a client does."""

import math

from hypothesis import given
from hypothesis import strategies as st

from penstock.model import Principal
from penstock.security.quotas import CONTROLLER_MUTATION_RATE, PRODUCER_BYTE_RATE, Quotas, RateSensor

ALICE = Principal("User", "alice")

windows = st.tuples(st.integers(1, 12), st.sampled_from([0.5, 1.0, 2.0]))
# Quarters of a second and whole amounts: sums are exact, so the model may be compared with ==.
steps = st.lists(st.tuples(st.integers(0, 60).map(lambda n: n / 4), st.integers(0, 1000)), min_size=1, max_size=80)

short_windows = st.tuples(st.integers(2, 4), st.sampled_from([0.5, 1.0]))
hasty_steps = st.lists(st.tuples(st.sampled_from([0, 0, 0, 0.25, 2]), st.integers(500, 1000)), min_size=30, max_size=80)


class ModelSensor:
    """The definition, without any care for speed: every use kept for ever, samples cut anew each time."""

    def __init__(self, window_num: int, window_seconds: float) -> None:
        self.num, self.size = window_num, window_seconds
        self.uses: list[tuple[float, float]] = []

    def record(self, amount: float, limit: float, now: float) -> float:
        self.uses.append((now, amount))
        samples: list[list[tuple[float, float]]] = []
        for at, used in self.uses:
            samples = [sample for sample in samples if at - sample[-1][0] < self.num * self.size]
            if not samples or at - samples[-1][0][0] >= self.size:
                samples.append([])
            samples[-1].append((at, used))
        samples = samples[-(self.num + 1) :]
        elapsed = now - samples[0][0][0]
        quiet = max(0, self.num - 1 - math.floor(elapsed / self.size))
        return sum(used for sample in samples for _, used in sample) / limit - (elapsed + quiet * self.size)


@given(windows, steps, st.integers(1, 500))
def test_a_sensor_answers_as_the_definition_does(window: tuple[int, float], uses: list[tuple[float, int]], limit: int):
    sensor, model = RateSensor(*window), ModelSensor(*window)
    now = 0.0
    for pause, amount in uses:
        now += pause
        assert sensor.record(amount, limit, now) == model.record(amount, limit, now)


@given(short_windows, hasty_steps, st.integers(2000, 3000))
def test_who_waits_when_told_stays_within_the_quota(
    window: tuple[int, float], uses: list[tuple[float, int]], limit: int
):
    # No request is more than a window's worth: after a wait longer than all windows a client starts anew, as in Kafka.
    quotas = Quotas(window)
    quotas.replace({frozenset({("user", "alice")}): {PRODUCER_BYTE_RATE: limit}})
    assert quotas.produce is not None
    now = sent = 0.0
    for pause, amount in uses:
        wait_ms = quotas.produce.record(ALICE, "app", amount, now)
        sent += amount
        now += pause + wait_ms / 1000
        # Beyond the limit it may have what was saved up before it began; half a millisecond a request is rounding.
        assert sent <= limit * (now + window[0] * window[1] + len(uses) / 1000)


@given(steps, st.integers(1, 50))
def test_changes_allowed_never_outrun_the_bucket(uses: list[tuple[float, int]], limit: int):
    quotas = Quotas()
    quotas.replace({frozenset({("user", "alice")}): {CONTROLLER_MUTATION_RATE: limit}})
    assert quotas.controller is not None
    now, made, last = 0.0, 0, 0
    for pause, mutations in uses:
        now += pause
        if quotas.controller.exceeded_ms(ALICE, "app", now) == 0:
            quotas.controller.record(ALICE, "app", mutations, now)
            made, last = made + mutations, mutations
        assert made - last <= limit * (now + 11) + 1e-6


@given(steps, st.integers(1, 500))
def test_nothing_used_is_never_a_reason_to_wait(uses: list[tuple[float, int]], limit: int):
    quotas = Quotas()
    quotas.replace({frozenset({("user", None)}): {PRODUCER_BYTE_RATE: limit}})
    assert quotas.produce is not None
    now = 0.0
    for pause, amount in uses:
        now += pause
        quotas.produce.record(ALICE, "app", amount, now)
        assert quotas.produce.record(Principal("User", "bob"), "app", 0, now) == 0
