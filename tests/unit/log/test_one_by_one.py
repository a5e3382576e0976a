"""Work in the order in which it was asked for, one at a time, to its end whoever still waits for it."""

import asyncio
import gc
from typing import Any

import pytest

from penstock.log.one_by_one import OneByOne, Work


class Recorder:
    """Makes work that says when it begins and ends, and goes on when it is told."""

    def __init__(self) -> None:
        self.said: list[str] = []
        self.go_on = asyncio.Event()

    def work(self, name: str, error: Exception | None = None) -> Work:
        async def run() -> None:
            self.said.append(f"{name} begins")
            await self.go_on.wait()
            self.said.append(f"{name} ends")
            if error is not None:
                raise error

        return run


@pytest.fixture
async def recorder() -> Recorder:
    return Recorder()


async def turns(count: int = 5) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


async def test_what_is_asked_for_second_begins_when_the_first_has_ended(recorder: Recorder) -> None:
    queue = OneByOne()
    asked = [asyncio.ensure_future(queue.run(recorder.work(name))) for name in ("first", "second")]
    await turns()
    assert recorder.said == ["first begins"]
    recorder.go_on.set()
    await asyncio.gather(*asked)
    assert recorder.said == ["first begins", "first ends", "second begins", "second ends"]


async def test_those_who_ask_before_it_begins_share_it_and_those_after_do_not(recorder: Recorder) -> None:
    queue = OneByOne()
    asked = [asyncio.ensure_future(queue.run_shared(recorder.work("one")))]
    await turns()
    asked += [asyncio.ensure_future(queue.run_shared(recorder.work(name))) for name in ("two", "three")]
    await turns()
    recorder.go_on.set()
    await asyncio.gather(*asked)
    assert recorder.said == ["one begins", "one ends", "two begins", "two ends"]


async def test_it_goes_on_when_its_asker_is_cancelled(recorder: Recorder) -> None:
    queue = OneByOne()
    asker = asyncio.ensure_future(queue.run(recorder.work("it")))
    await turns()
    asker.cancel()
    await turns()
    recorder.go_on.set()
    await queue.idle()
    assert asker.cancelled()
    assert recorder.said == ["it begins", "it ends"]


async def test_the_next_begins_though_the_one_before_failed(recorder: Recorder) -> None:
    queue = OneByOne()
    recorder.go_on.set()
    failing = asyncio.ensure_future(queue.run(recorder.work("bad", OSError("no space"))))
    following = asyncio.ensure_future(queue.run(recorder.work("good")))
    with pytest.raises(OSError, match="no space"):
        await failing
    await following
    assert recorder.said[-1] == "good ends"


async def test_a_failure_that_nobody_waits_for_any_more_is_said_and_not_lost(
    recorder: Recorder, caplog: pytest.LogCaptureFixture
) -> None:
    lost: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: lost.append(context))
    queue = OneByOne()
    asker = asyncio.ensure_future(queue.run(recorder.work("it", OSError("no space"))))
    await turns()
    asker.cancel()
    await turns()
    recorder.go_on.set()
    await queue.idle()
    await turns()
    assert "no space" in caplog.text
    del queue, asker
    gc.collect()
    assert lost == []
