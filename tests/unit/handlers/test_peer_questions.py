"""handlers.peer_questions: what is asked of a broker at the same time is asked in one request."""

import asyncio
from collections.abc import Sequence
from typing import Any, NamedTuple

import pytest

from penstock.errors import PeerUnreachable
from penstock.handlers import peer_questions
from penstock.handlers.peer_questions import PeerQuestions


class Asked(NamedTuple):
    key: str
    answer: asyncio.Future[str]


class Broker:
    """Answers each request when the test says so."""

    def __init__(self) -> None:
        self.requests: list[tuple[int, list[str]]] = []
        self.gate = asyncio.Event()
        self.gate.set()

    async def send(self, node_id: int, asked: Sequence[Asked]) -> None:
        self.requests.append((node_id, [each.key for each in asked]))
        await self.gate.wait()
        for each in asked:
            if not each.answer.done():
                each.answer.set_result(each.key.upper())


@pytest.fixture
def broker() -> Broker:
    return Broker()


@pytest.fixture
def questions(broker: Broker) -> PeerQuestions[Asked]:
    return PeerQuestions(broker.send)


def put(questions: Any, key: str, node_id: int = 2) -> asyncio.Future[str]:
    answer: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    assert questions.put(node_id, Asked(key, answer))
    return answer


async def test_questions_of_one_turn_share_a_request_and_each_broker_has_its_own(
    questions: Any, broker: Broker
) -> None:
    answers = [put(questions, "a"), put(questions, "b"), put(questions, "c", 3)]
    assert await asyncio.gather(*answers) == ["A", "B", "C"]
    assert broker.requests == [(2, ["a", "b"]), (3, ["c"])]


async def test_what_comes_while_a_request_is_out_waits_for_the_next(questions: Any, broker: Broker) -> None:
    broker.gate.clear()
    answers = [put(questions, "a")]
    await asyncio.sleep(0)
    answers += [put(questions, "b"), put(questions, "c")]
    await asyncio.sleep(0)
    assert broker.requests == [(2, ["a"])]
    broker.gate.set()
    assert await asyncio.gather(*answers) == ["A", "B", "C"]
    assert broker.requests == [(2, ["a"]), (2, ["b", "c"])]


async def test_questions_whose_answers_could_be_confused_do_not_share_a_request(questions: Any, broker: Broker) -> None:
    answers = [put(questions, "a"), put(questions, "b"), put(questions, "a")]
    assert await asyncio.gather(*answers) == ["A", "B", "A"]
    assert broker.requests == [(2, ["a", "b"]), (2, ["a"])]


async def test_who_has_gone_is_not_asked_for(questions: Any, broker: Broker) -> None:
    put(questions, "a").cancel()
    assert await put(questions, "b") == "B"
    assert broker.requests == [(2, ["b"])]


async def test_no_more_wait_for_a_broker_than_there_is_room_for(
    questions: Any, broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(peer_questions, "WAITING_MAX", 2)
    monkeypatch.setattr(peer_questions, "PER_REQUEST_MAX", 1)
    answers = [put(questions, "a"), put(questions, "b")]
    assert not questions.put(2, Asked("c", asyncio.get_running_loop().create_future()))
    assert await asyncio.gather(*answers) == ["A", "B"]
    assert broker.requests == [(2, ["a"]), (2, ["b"])]


async def test_closing_leaves_nobody_waiting(questions: Any, broker: Broker) -> None:
    broker.gate.clear()
    out = put(questions, "a")
    await asyncio.sleep(0)
    waiting = put(questions, "b")
    await questions.close()
    for answer in (out, waiting):
        with pytest.raises(PeerUnreachable):
            await answer


async def test_a_bug_in_sending_leaves_nobody_waiting_and_the_next_is_sent() -> None:
    calls = 0

    async def send(node_id: int, asked: Sequence[Asked]) -> None:
        nonlocal calls
        calls += 1
        if calls == 1:
            raise KeyError("a bug")
        for each in asked:
            each.answer.set_result("sent")

    questions = PeerQuestions(send)
    with pytest.raises(PeerUnreachable):
        await put(questions, "a")
    assert await put(questions, "a") == "sent"
