"""Ids for producers: InitProducerId, and the blocks of ids this broker hands out from.

Called by server.dispatch; broker builds the one ProducerIds.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterator, Mapping
from typing import Any

from penstock.errors import ErrorCode, PenstockError
from penstock.handlers.context import HandlerContext, Request
from penstock.handlers.groups import milliseconds
from penstock.model import NO_PRODUCER, ProducerId

logger = logging.getLogger(__name__)

Body = Mapping[str, Any]

FIRST_EPOCH = 0
FENCED_FROM = 4  # clients tell a fenced producer from a wrong epoch
NO_PRODUCER_EPOCH = -1


class ProducerIds:
    """Ids no producer of the cluster has had before. A block is fetched when the last one is used up, not earlier.

    What is left of a block when the broker stops is never used: of 2^63 ids that is no loss.
    """

    def __init__(self, allocate_block: Callable[[], Awaitable[range]]) -> None:
        self._allocate_block = allocate_block
        self._left: Iterator[int] = iter(())
        self._refill: asyncio.Future[None] | None = None

    async def allocate(self) -> ProducerId:
        while True:
            producer_id = next(self._left, None)
            if producer_id is not None:
                return ProducerId(producer_id)
            if self._refill is None:
                await self._fetch_block()
            else:
                # Shielded: one client that hangs up must not take the block from the others that wait for it.
                await asyncio.shield(self._refill)

    async def _fetch_block(self) -> None:
        """One fetch for all who wait. If it is called off, the next of them tries."""
        refill = self._refill = asyncio.get_running_loop().create_future()
        try:
            self._left = iter(await self._allocate_block())
        except PenstockError as error:
            refill.set_exception(error)
            refill.exception()  # seen: nobody else may have been waiting
            raise
        finally:
            self._refill = None
            if not refill.done():
                refill.set_result(None)


async def handle_init_producer_id(context: HandlerContext, request: Request) -> Body:
    body = request.body
    producer_id: int = getattr(body, "producer_id", NO_PRODUCER)
    epoch: int = getattr(body, "producer_epoch", NO_PRODUCER_EPOCH)
    if body.transactional_id == "" or (producer_id == NO_PRODUCER) != (epoch == NO_PRODUCER_EPOCH):
        return _refusal(ErrorCode.INVALID_REQUEST)
    if body.transactional_id is not None:
        timeout_ms = milliseconds(body.transaction_timeout)
        return await _init_transactional(
            context, request.version, body.transactional_id, timeout_ms, producer_id, epoch
        )
    try:
        # An idempotent producer that lost its state sends its old id; as in Kafka it gets a new one all the same.
        return {"producer_id": await context.producer_ids.allocate(), "producer_epoch": FIRST_EPOCH}
    except PenstockError as error:
        # Old clients do not expect REQUEST_TIMED_OUT here and die of it (KAFKA-14417); this they retry.
        logger.warning("no producer ids to give: %s", error)
        return _refusal(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)


async def _init_transactional(
    context: HandlerContext, version: int, transactional_id: str, timeout_ms: int, producer_id: int, epoch: int
) -> Body:
    """The one producer of this id from now on: whoever had it before is fenced, and what it left open is aborted."""
    try:
        code, producer_id, epoch = await context.transactions.init_producer_id(
            transactional_id, timeout_ms, producer_id, epoch
        )
    except PenstockError as error:
        code = error.code
    match code:
        case ErrorCode.NONE:
            return {"producer_id": producer_id, "producer_epoch": epoch}
        case ErrorCode.PRODUCER_FENCED if version < FENCED_FROM:
            return _refusal(ErrorCode.INVALID_PRODUCER_EPOCH)
        case ErrorCode.REQUEST_TIMED_OUT:
            return _refusal(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)  # as above
        case _:
            return _refusal(code)


def _refusal(code: ErrorCode) -> Body:
    return {"error_code": code, "producer_id": NO_PRODUCER, "producer_epoch": NO_PRODUCER_EPOCH}
