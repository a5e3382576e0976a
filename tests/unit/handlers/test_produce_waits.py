"""handlers.produce_waits: all who wait for the same sync are answered by it, or each when its own time is up."""

import asyncio

from penstock.clock import SystemClock
from penstock.handlers.answers import Hangup, PendingReply
from penstock.handlers.produce_waits import ProduceWaits, Wait

CLOCK = SystemClock()


def pending(waits: ProduceWaits, *on: Wait, within_s: float = 30.0, frame: bytes = b"answer") -> PendingReply:
    reply = PendingReply(lambda: frame, len(on), CLOCK.monotonic() + within_s)
    for wait in on:
        waits.add(wait, reply)
    return reply


def future() -> Wait:
    return asyncio.get_running_loop().create_future()


async def test_one_sync_answers_all_who_wait_for_it() -> None:
    waits, sync = ProduceWaits(CLOCK), future()
    replies = [pending(waits, sync, frame=bytes([number])) for number in range(5)]
    told: list[int] = []
    for number, reply in enumerate(replies):
        reply.add_done_callback(lambda number=number: told.append(number))
    await asyncio.sleep(0)
    assert not any(reply.is_done for reply in replies)
    sync.set_result(None)
    await asyncio.sleep(0)
    assert told == [0, 1, 2, 3, 4]
    assert [reply.reply for reply in replies] == [bytes([number]) for number in range(5)]
    assert waits.is_empty


async def test_who_waits_for_two_is_answered_by_the_last() -> None:
    waits, one, other = ProduceWaits(CLOCK), future(), future()
    reply = pending(waits, one, other)
    one.set_result(None)
    await asyncio.sleep(0)
    assert not reply.is_done
    other.set_result(None)
    assert await reply.wait() == b"answer"
    assert waits.is_empty


async def test_each_has_its_own_time_though_they_share_a_timer() -> None:
    waits, sync = ProduceWaits(CLOCK), future()
    patient = pending(waits, sync, within_s=60)
    hurried = pending(waits, sync, within_s=0.02)
    next_ = pending(waits, sync, within_s=0.04)
    assert await hurried.wait() == b"answer"
    assert not next_.is_done
    assert await next_.wait() == b"answer"
    assert not patient.is_done
    sync.set_result(None)
    assert await patient.wait() == b"answer"
    assert waits.is_empty


async def test_who_was_answered_when_its_time_was_up_is_not_answered_again() -> None:
    waits, one, other = ProduceWaits(CLOCK), future(), future()
    made = 0

    def make() -> bytes:
        nonlocal made
        made += 1
        return b""

    reply = PendingReply(make, 2, CLOCK.monotonic())
    waits.add(one, reply)
    waits.add(other, reply)
    await reply.wait()
    one.set_result(None)
    other.set_result(None)
    await asyncio.sleep(0)
    assert made == 1
    assert waits.is_empty


async def test_an_answer_that_cannot_be_made_is_a_hang_up_and_the_others_have_theirs() -> None:
    waits, sync = ProduceWaits(CLOCK), future()

    def broken() -> bytes:
        raise RuntimeError("a fault of ours")

    lost = PendingReply(broken, 1, CLOCK.monotonic() + 30)
    waits.add(sync, lost)
    fine = pending(waits, sync)
    sync.set_result(None)
    assert await fine.wait() == b"answer"
    assert isinstance(await lost.wait(), Hangup)


async def test_nothing_is_made_for_who_has_hung_up() -> None:
    waits, sync = ProduceWaits(CLOCK), future()
    told: list[bool] = []

    def make() -> bytes:
        raise AssertionError("nobody is there to hear it")

    gone = PendingReply(make, 1, CLOCK.monotonic() + 30)
    waits.add(sync, gone)
    gone.add_done_callback(lambda: told.append(True))
    gone.cancel()
    sync.set_result(None)
    await asyncio.sleep(0)
    assert told == [True]
    assert gone.reply is None
