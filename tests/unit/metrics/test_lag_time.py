"""How long ago an offset was written, told from notes of where the log ended."""

import pytest

from penstock.metrics import lag_time
from penstock.metrics.lag_time import EndTimes


@pytest.fixture
def ends() -> EndTimes:
    """A log that grew by ten a second until offset 1000, at time 100."""
    ends = EndTimes()
    for second in range(0, 101, 10):
        ends.note("p", second * 10, float(second))
    return ends


@pytest.mark.parametrize(
    ("offset", "now", "age_s"),
    [
        (999, 100, 0),  # the newest
        (1000, 100, 0),  # not there yet
        (499, 100, 50),  # noted
        (544, 100, 45.5),  # between two notes
        (499, 160, 110),  # nothing was noted since, and it is older all the same
    ],
)
def test_a_record_is_as_old_as_the_note_of_its_end(ends: EndTimes, offset: int, now: float, age_s: float) -> None:
    assert ends.age_s("p", offset, now) == pytest.approx(age_s)


def test_what_was_there_before_the_first_note_is_at_least_as_old_as_that() -> None:
    ends = EndTimes()
    ends.note("p", 500, 10.0)
    assert ends.age_s("p", 3, 25.0) == 15
    assert ends.age_s("other", 3, 25.0) == 0


def test_a_log_that_stands_still_takes_two_notes_however_often_it_is_seen() -> None:
    ends = EndTimes()
    for second in range(1000):
        ends.note("p", 7, float(second))
    ends.note("p", 17, 1000.0)
    assert ends.age_s("p", 16, 1001.0) == 1.0
    assert ends.age_s("p", 6, 1001.0) == 1001.0
    assert 1 <= ends.age_s("p", 7, 1001.0) <= 2, "written after it was last seen to stand still"


def test_a_log_that_was_cut_begins_anew(ends: EndTimes) -> None:
    ends.note("p", 300, 110.0)
    assert ends.age_s("p", 250, 120.0) == 10
    assert ends.age_s("p", 500, 120.0) == 0


def test_notes_reach_back_ever_further_and_are_never_too_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lag_time, "PARTITIONS_MAX", 2)
    ends = EndTimes()
    for second in range(10_000):
        ends.note("p", second * 10, float(second))
    notes = ends._notes["p"]
    assert len(notes[0]) == len(notes[1]) <= lag_time.SAMPLES_MAX
    assert notes[0] == sorted(notes[0])
    assert ends.age_s("p", 0, 10_000.0) == pytest.approx(10_000, abs=10)
    assert ends.age_s("p", 50_000, 10_000.0) == pytest.approx(5_000, rel=0.01)
    ends.note("q", 1, 0.0)
    ends.note("r", 1, 0.0)
    assert ends.age_s("r", 0, 5.0) == 0, "there is room for two"
    ends.keep_only({"q"})
    ends.note("r", 1, 0.0)
    assert (ends.age_s("r", 0, 5.0), ends.age_s("p", 0, 5.0)) == (5, 0)
