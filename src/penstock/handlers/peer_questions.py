"""Questions to other brokers, gathered: to each broker one request at a time, with all that came up meanwhile.

Called by handlers.marker_sending and handlers.inquiries. A broker that is slow, or gone, thus gets few large requests
instead of many small ones, and whoever asks something of it waits for no more than the request before and its own.
Invariants:
- Every question that was taken is answered: by `send`, or by PeerUnreachable when we close.
- Two questions with the same key never share a request: their answers could not be told apart.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Hashable, Sequence
from typing import Any, Generic, Protocol, TypeVar

from penstock.errors import PeerUnreachable

log = logging.getLogger(__name__)

WAITING_MAX = 10_000  # questions to one broker; beyond that whoever asks is told to come again
PER_REQUEST_MAX = 1_000


class Question(Protocol):
    @property
    def key(self) -> Hashable: ...

    @property
    def answer(self) -> asyncio.Future[Any]: ...


Q = TypeVar("Q", bound=Question)


class PeerQuestions(Generic[Q]):
    def __init__(self, send: Callable[[int, Sequence[Q]], Awaitable[None]]) -> None:
        """`send` asks a broker all of these at once, and settles the answer of each, whatever comes."""
        self._send = send
        self._waiting: dict[int, list[Q]] = {}
        self._senders: dict[int, asyncio.Task[None]] = {}

    def put(self, node_id: int, question: Q) -> bool:
        """False: too much waits for that broker already."""
        waiting = self._waiting.setdefault(node_id, [])
        if len(waiting) >= WAITING_MAX:
            return False
        waiting.append(question)
        if node_id not in self._senders:
            # It starts in the next turn of the loop, so what is asked in this one goes with it.
            self._senders[node_id] = asyncio.get_running_loop().create_task(self._send_all(node_id))
        return True

    async def close(self) -> None:
        senders = list(self._senders.values())
        for sender in senders:
            sender.cancel()
        await asyncio.gather(*senders, return_exceptions=True)

    async def _send_all(self, node_id: int) -> None:
        try:
            while waiting := self._waiting.get(node_id):
                asked, self._waiting[node_id] = _split(waiting)
                try:
                    await self._send(node_id, asked)
                finally:
                    # None is left, unless we close or `send` has a bug: then nobody may wait for ever.
                    _give_up(node_id, asked)
        except Exception:
            log.exception("what was asked of broker %d is lost", node_id)
        finally:
            del self._senders[node_id]
            _give_up(node_id, self._waiting.pop(node_id, ()))


def _split(waiting: list[Q]) -> tuple[list[Q], list[Q]]:
    """Those of the next request, and those who wait for the one after it."""
    asked: dict[Hashable, Q] = {}
    rest: list[Q] = []
    for question in waiting:
        if question.answer.done():
            continue  # whoever asked has gone
        if question.key in asked or len(asked) >= PER_REQUEST_MAX:
            rest.append(question)
        else:
            asked[question.key] = question
    return list(asked.values()), rest


def _give_up(node_id: int, questions: Sequence[Question]) -> None:
    for question in questions:
        if not question.answer.done():
            question.answer.set_exception(PeerUnreachable(node_id, None, "it is asked nothing more"))
            question.answer.exception()  # seen: whoever asked may be gone
