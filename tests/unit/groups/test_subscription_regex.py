"""Patterns to subscribe with: what matches, what is refused, and that no pattern is dangerous."""

import subprocess
import sys

import pytest

from penstock.errors import ErrorCode, InvalidRegularExpression
from penstock.groups.subscription_regex import PROGRAM_STEPS_MAX, REPEATING_STEPS_MAX, compile_pattern, resolve

NAMES = ["orders", "orders-eu", "orders-us", "Orders", "payments", "x.orders", "größe"]


@pytest.mark.parametrize(
    ("pattern", "matching"),
    [
        ("orders", {"orders"}),
        ("orders.*", {"orders", "orders-eu", "orders-us"}),
        (".*orders", {"orders", "x.orders"}),
        ("orders-(eu|us)", {"orders-eu", "orders-us"}),
        ("^orders$", {"orders"}),
        ("(?i)orders", {"orders", "Orders"}),
        ("orders|payments", {"orders", "payments"}),
        ("orders-[^e].", {"orders-us"}),
        (r"\w+", {"orders", "Orders", "payments"}),
        ("[[:alpha:]]+", {"orders", "Orders", "payments"}),
        ("gr..e", {"größe"}),
        ("", set()),
        ("nothing", set()),
        (".*", set(NAMES)),
    ],
)
def test_a_pattern_matches_whole_names(pattern: str, matching: set[str]) -> None:
    assert resolve(compile_pattern(pattern), NAMES) == matching


@pytest.mark.parametrize("pattern", ["(", "[a", "a{2,1}", "*", r"(a)\1", "(?=a)b", "(?<!a)b", "a++", r"\Qa\E\8"])
def test_what_re2_does_not_know_is_refused_and_named(pattern: str) -> None:
    with pytest.raises(InvalidRegularExpression) as refused:
        compile_pattern(pattern)
    assert refused.value.code is ErrorCode.INVALID_REGULAR_EXPRESSION
    assert repr(pattern) in str(refused.value)


@pytest.mark.parametrize("pattern", ["a" * 100_000, r"\pL{900}", "((a{30}){30}){30}", "(ab|cd){1000}" * 3, "\ud800"])
def test_a_pattern_that_would_take_much_memory_or_time_is_refused_in_few_words(pattern: str) -> None:
    with pytest.raises(InvalidRegularExpression) as refused:
        compile_pattern(pattern)
    assert len(str(refused.value)) < 400


def test_a_thousand_topics_can_be_named_one_by_one() -> None:
    names = [f"topic-{number:05}-orders" for number in range(1000)]
    pattern = compile_pattern("|".join(names))
    assert resolve(pattern, [*names, "topic-00000"]) == set(names)


@pytest.mark.timeout(20)
@pytest.mark.parametrize("pattern", ["(a+)+", "(a|aa)+", "(.*a){30}", "([a-z]+)*", "(a?){200}a{200}"])
def test_patterns_that_hold_other_engines_for_years_are_answered(pattern: str) -> None:
    """Python's own `re` needs more than 2**200 steps for most of these."""
    assert resolve(compile_pattern(pattern), ["a" * 199 + "!"] * 100) == set()


def test_the_limit_on_programs_is_what_refuses_a_long_pattern() -> None:
    assert compile_pattern("a" * (PROGRAM_STEPS_MAX - 10))
    with pytest.raises(InvalidRegularExpression, match="too large"):
        compile_pattern("a" * PROGRAM_STEPS_MAX)
    assert compile_pattern("a" * (REPEATING_STEPS_MAX - 20) + "b*")
    with pytest.raises(InvalidRegularExpression, match="too large"):
        compile_pattern("a" * REPEATING_STEPS_MAX + "b*")


def test_a_refused_pattern_leaves_nothing_on_standard_error_and_re2_is_loaded_only_when_needed() -> None:
    script = (
        "import sys\n"
        "from penstock.groups.subscription_regex import InvalidRegularExpression, compile_pattern\n"
        "assert 're2' not in sys.modules\n"
        "try: compile_pattern('(')\n"
        "except InvalidRegularExpression: print('refused')\n"
    )
    ran = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert (ran.stdout, ran.stderr) == ("refused\n", "")
