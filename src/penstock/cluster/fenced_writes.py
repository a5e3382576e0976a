"""Transactions that compare the writer's right to write, besides whatever else they compare.

Called by controller, setting_changes and orphans, each with its fence.
"""

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

from penstock.cluster.store import Compare, Delete, Get, MetadataStore, Operation, TxnResult, holds
from penstock.cluster.topic_plan import OPERATIONS_PER_TXN
from penstock.errors import PenstockError, RegistrationLost

T = TypeVar("T")


class FencedWrites:
    """`fence` gives what must hold for this broker to write; it may raise, where the broker knows that it may not."""

    def __init__(self, store: MetadataStore, fence: Callable[[], Sequence[Compare]]) -> None:
        self._store = store
        self._fence = fence

    async def commit(self, compare: Sequence[Compare], then: Sequence[Operation], look: Sequence[str]) -> TxnResult:
        """Where a comparison failed, `reads` has the keys of `look`; raises RegistrationLost if it was the fence's."""
        fence = self._fence()
        seen = [Get(key) for key in (*(each.key for each in fence), *look)]
        result = await self._store.txn([*fence, *compare], then, seen)
        if result.ok:
            return result
        for each, present in zip(fence, result.reads, strict=False):
            if not holds(each, present):
                raise RegistrationLost("the cluster has taken this broker for gone, or another one is in its place")
        return TxnResult(result.ok, result.revision, result.reads[len(fence) :])

    async def commit_pieces(
        self, compare: Sequence[Compare], then: Sequence[Operation], look: Sequence[str]
    ) -> TxnResult:
        """Like `commit` for any number of operations: in order, each piece under the same comparisons."""
        result = TxnResult(True, 0)
        for piece in chunks(then):
            result = await self.commit(compare, piece, look)
            if not result.ok:
                break
        return result

    async def forget(self, keys: Sequence[str]) -> None:
        """Delete keys no reader sees; what fails here is left to orphans."""
        with contextlib.suppress(PenstockError):
            await self.commit_pieces([], [Delete(key) for key in keys], [])


def chunks(items: Sequence[T]) -> Iterator[Sequence[T]]:
    """As many as fit into one transaction beside its fence."""
    return (items[at : at + OPERATIONS_PER_TXN] for at in range(0, len(items), OPERATIONS_PER_TXN))
