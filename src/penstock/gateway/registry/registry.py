"""The registry: schemas in memory, followed from their topic; changes decided, written, and read back.

Made by the room's routes() and used by every part of the gateway; all of it runs on the event loop. Laws:
- Questions are answered from memory, also while the cluster is away.
- A change is answered when this gateway has read its own record back: whoever asks here next sees it.
- A change is decided on a state that holds everything committed before; it is written only if nobody has written since.
- A gateway that has not read the whole topic yet answers nothing: an unknown id would look like a fact.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Generic, TypeVar

from penstock.clock import Rng
from penstock.gateway.registry import finding, questions, registering
from penstock.gateway.registry.closure import closure_of_content
from penstock.gateway.registry.deciding import Decision, Written, encode
from penstock.gateway.registry.finding import Candidate
from penstock.gateway.registry.follower import Follower
from penstock.gateway.registry.parsing import Parser
from penstock.gateway.registry.questions import Deleted
from penstock.gateway.registry.reader import ReaderEnded
from penstock.gateway.registry.refusals import Refusal, schema_too_large, store_failed, timed_out, unavailable
from penstock.gateway.registry.registered import RegisteredSchema
from penstock.gateway.registry.registering import Registered
from penstock.gateway.registry.scope import config_in_scope
from penstock.gateway.registry.subjects import checked_subject
from penstock.gateway.registry.writer import WriteFailed, Writer
from penstock.schemas.schema import ParsedSchema, Reference, SchemaError
from penstock.schemas.stored.content import Version
from penstock.schemas.stored.state import State

T = TypeVar("T")

WRITE_DEADLINE_S = 30.0
WRITES_WAITING_MAX = 200
# After being fenced: long enough for the other gateway to write what it has, and never the same twice.
BACKOFF_S = 0.02
BACKOFF_MAX_S = 1.0
FAILURES_MAX = 3
"""How often a write may fail otherwise than by another writer."""
SCHEMAS_KEPT_MAX = 10_000


@dataclass(frozen=True, slots=True)
class _Unsure(Generic[T]):
    """A write that may have been made, by its last record, and the answer it would have had."""

    record: Written
    since: int
    answer: T


class Registry:
    def __init__(
        self,
        bootstrap: str,
        properties: Mapping[str, str],
        topic: str,
        parser: Parser | None = None,
        cluster_id: Callable[[], str | None] = lambda: None,
    ) -> None:
        self.parser = parser or Parser()
        self.cluster_id = cluster_id
        self._follower = Follower(bootstrap, properties, topic)
        self._writer = Writer(bootstrap, properties, topic)
        self._writing = ThreadPoolExecutor(1, thread_name_prefix="registry-write")
        self._turn = asyncio.Lock()
        self._waiting = 0
        self._kept: dict[tuple[int, str, int], RegisteredSchema] = {}
        self._rng = Rng()

    async def start(self) -> None:
        """Returns at once; `trouble` tells how far it is."""
        self._follower.start()

    async def close(self) -> None:
        await self._follower.close()
        self.parser.close()
        await asyncio.get_running_loop().run_in_executor(self._writing, self._writer.give_up)
        self._writing.shutdown(wait=False, cancel_futures=True)

    @property
    def trouble(self) -> str | None:
        """Why nothing can be changed, or not even be answered, now."""
        return self._follower.trouble

    @property
    def is_loaded(self) -> bool:
        return self._follower.is_loaded

    @property
    def state(self) -> State:
        """Once it is whole."""
        if not self._follower.is_loaded:
            raise self._not_now()
        return self._follower.state

    # Asked by the other parts of the gateway

    async def schema_by_id(self, schema_id: int, *, subject: str | None = None) -> RegisteredSchema | None:
        """The schema that a value was written with; of the subject's context."""
        found = questions.content_by_id(self.state, schema_id, subject or "")
        if found is None:
            return None
        context, content = found
        holders = self.state.holders(context, schema_id)
        assert holders is not None
        candidates = [one for one in holders.versions.values() if one.content is content]
        return await self._registered(min(candidates, key=lambda one: (one.deleted, one.subject != subject)))

    async def latest(self, subject: str) -> RegisteredSchema | None:
        return await self.version(subject, questions.LATEST)

    async def version(self, subject: str, version: int) -> RegisteredSchema | None:
        held = questions.find_version(self.state, checked_subject(subject), version)
        return None if held is None else await self._registered(held)

    async def register(
        self, subject: str, kind: str, text: str, references: Sequence[Reference] = (), *, normalize: bool = False
    ) -> int:
        """The schema's id. Raises HttpProblem where the schema is refused or cannot be written now."""
        candidate = Candidate(checked_subject(subject), kind, text, tuple(references), normalize=normalize)
        return (await self.add(candidate)).id

    def subjects(self, prefix: str = questions.EVERY_CONTEXT, *, deleted: bool = False) -> list[str]:
        return list(questions.subjects(self.state, prefix, Deleted.SHOWN if deleted else Deleted.HIDDEN))

    def versions(self, subject: str, *, deleted: bool = False) -> list[int]:
        shown = Deleted.SHOWN if deleted else Deleted.HIDDEN
        return [one.version for one in questions.versions(self.state, checked_subject(subject), shown)]

    # Changing

    async def add(self, candidate: Candidate) -> Registered:
        """What most callers register is there already, and is found without asking the cluster."""
        if _may_be_found(self.state, candidate):
            found = await finding.find(self.state, self.parser, candidate)
            if found is not None and candidate.id in (None, found.content.id):
                return Registered(found.content.id, found.version, found.content, False)
        return await self.change(lambda: registering.register(self.state, self.parser, candidate))

    async def decide(self, decide: Callable[[State], Decision[T]]) -> T:
        async def decided() -> Decision[T]:
            return decide(self.state)

        return await self.change(decided)

    async def change(self, decide: Callable[[], Awaitable[Decision[T]]]) -> T:
        """Decide on everything committed so far, write, and read it back; anew for as long as others come between."""
        if not self._follower.is_current:
            raise self._not_now()
        if self._waiting >= WRITES_WAITING_MAX:
            raise unavailable(f"{WRITES_WAITING_MAX} changes are waiting already; try again later.")
        self._waiting += 1
        unsure: list[_Unsure[T]] = []
        try:
            async with asyncio.timeout(WRITE_DEADLINE_S), self._turn:
                return await self._change(decide, unsure)
        except TimeoutError:
            raise _cannot("the cluster does not answer", is_sure=not unsure) from None
        finally:
            self._waiting -= 1

    async def _change(self, decide: Callable[[], Awaitable[Decision[T]]], unsure: "list[_Unsure[T]]") -> T:
        """`unsure`: the writes that may have been made."""
        loop = asyncio.get_running_loop()
        follower = self._follower
        backoff_s = BACKOFF_S
        failures = 0
        while True:
            try:
                await loop.run_in_executor(self._writing, self._writer.claim)
                await follower.catch_up()
            except (WriteFailed, ReaderEnded) as failure:
                raise _cannot(failure, is_sure=not unsure) from None
            for one in unsure:
                if follower.has_read(one.record, one.since):
                    return one.answer
            # What was not committed before this claim never will be.
            unsure.clear()
            decision = await decide()
            if not decision.records:
                return decision.answer
            records = encode(self.state, decision.records)
            self._check_size(records)
            since = follower.position
            unsure.append(_Unsure(records[-1], since, decision.answer))
            try:
                await loop.run_in_executor(self._writing, self._writer.write, records)
            except WriteFailed as failure:
                if not failure.may_be_done:
                    unsure.clear()
                failures += not failure.is_fenced
                if failures >= FAILURES_MAX:
                    raise _cannot(failure, is_sure=not unsure) from None
                await asyncio.sleep(backoff_s * (0.5 + self._rng.below(1000) / 1000))
                backoff_s = min(BACKOFF_MAX_S, backoff_s * 2)
                continue
            await follower.read_back(records[-1], since)
            return decision.answer

    def _not_now(self) -> Refusal:
        if self._follower.is_unfit:
            return store_failed(self.trouble or "")
        return unavailable(f"The registry cannot do this now: {self.trouble}.")

    def _check_size(self, records: list[Written]) -> None:
        for record in records:
            size = len(record.key) + len(record.value or b"")
            if size > self._follower.record_bytes_max:
                raise schema_too_large(size, self._follower.record_bytes_max)

    async def _registered(self, held: Version) -> RegisteredSchema:
        content = held.content
        key = (content.serial, held.subject, held.version)
        found = self._kept.get(key)
        if found is not None:
            return found
        outcome: ParsedSchema | SchemaError
        try:
            outcome = await self.parser.parsed(closure_of_content(self.state, held.subject, content))
        except SchemaError as error:
            outcome = error
        except Refusal as refusal:
            outcome = SchemaError(refusal.message)
        if len(self._kept) >= SCHEMAS_KEPT_MAX:
            self._kept.clear()
        found = RegisteredSchema(
            content.id, held.subject, held.version, content.kind, content.text, content.references, outcome
        )
        self._kept[key] = found
        return found


def _may_be_found(state: State, candidate: Candidate) -> bool:
    """Without contracts, of its own or filled in, a schema is the same wherever it is the same."""
    if candidate.version != 0 or candidate.metadata is not None or candidate.rule_set is not None:
        return False
    config = config_in_scope(state, candidate.subject)
    filled_in = ("defaultMetadata", "overrideMetadata", "defaultRuleSet", "overrideRuleSet")
    return bool(candidate.text.strip()) and not any(name in config for name in filled_in)


def _cannot(failure: object, *, is_sure: bool) -> Refusal:
    return unavailable(f"Nothing can be changed now: {failure}.") if is_sure else timed_out("The change")
