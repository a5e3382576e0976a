"""Fetches that wait for data: woken by enough of it, and no sooner."""

import pytest

from penstock.replication.waiting import FetchWait


class Place:
    def __init__(self) -> None:
        self.waiting: set[FetchWait] = set()


@pytest.fixture
def places() -> list[Place]:
    return [Place(), Place()]


async def test_a_wait_ends_when_enough_has_come_from_all_its_partitions_together(places: list[Place]) -> None:
    wait = FetchWait(100, places)
    assert all(wait in place.waiting for place in places)
    wait.appended(60)
    assert not wait.done.done()
    wait.appended(40)
    assert wait.done.done()
    assert not any(place.waiting for place in places), "nobody wakes it a second time"


async def test_a_wait_that_is_called_off_is_forgotten_everywhere(places: list[Place]) -> None:
    wait, other = FetchWait(100, places), FetchWait(100, places[:1])
    wait.end()
    wait.end()
    assert wait.done.done()
    assert places[0].waiting == {other}
    assert places[1].waiting == set()


async def test_data_after_the_end_of_a_wait_is_nothing_to_it(places: list[Place]) -> None:
    wait = FetchWait(10, places)
    wait.end()
    wait.appended(100)
    assert wait.done.result() is None
