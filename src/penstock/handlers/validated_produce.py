"""Produce to topics that validate: every batch judged, dead letters written, then all appended as usual.

Called by handlers.produce for requests that name such a topic. Everything that has to be waited for comes first; the
appending itself is one turn of the loop, as for any request, and the connection takes nothing more until it is done.
Laws:
- Nothing of a topic that validates is appended unjudged. A batch that is in the log already is not judged again: what
  was right when it was written stays written.
- A batch's dead letters are safe before the rest of it is appended. So a batch that is in the log, and is sent again,
  writes none; one that failed between the two writes them once more. Dead letters are of no transaction: those of one
  that is aborted stay.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from penstock.errors import InvalidRequest, PenstockError
from penstock.handlers.answers import Answer, Reply, made
from penstock.handlers.context import HandlerContext, RawRequest
from penstock.handlers.transactional_produce import AskFirst, Refused, ask_first, verify
from penstock.handlers.verification import Answered
from penstock.log.intake import admit
from penstock.model import INTERNAL_TOPICS, TopicPartition
from penstock.records.batch import BatchHeader
from penstock.replication.partition import ACKS_ALL, Partition
from penstock.replication.replicas import HostedTopic
from penstock.validation.rules import NotNow, Rule, rule_of
from penstock.validation.validation import Outcome
from penstock.wire.produce import ProduceRequest, parse_produce

REQUEST_S_MAX = 20.0
"""After so long the rest of a request's batches is left to the next one: clients give up after 30 s."""

Admitted = tuple[memoryview, BatchHeader]


class Append(Protocol):
    """handlers.produce's own way to append a request's batches."""

    def __call__(
        self,
        context: HandlerContext,
        request: RawRequest,
        produce: ProduceRequest,
        refused: Mapping[TopicPartition, PenstockError],
        admitted: Mapping[TopicPartition, Admitted],
        /,
    ) -> Answer: ...


@dataclass(slots=True)
class _Judged:
    refused: dict[TopicPartition, PenstockError] = field(default_factory=dict[TopicPartition, PenstockError])
    outcomes: dict[TopicPartition, tuple[Rule, Outcome]] = field(
        default_factory=dict[TopicPartition, tuple[Rule, Outcome]]
    )
    # In the log already when they came, or none that the log will take: they are left to it, unjudged.
    unjudged: dict[TopicPartition, Admitted] = field(default_factory=dict[TopicPartition, Admitted])


async def validate_and_append(context: HandlerContext, request: RawRequest, append: Append) -> Reply:
    """The request's view is its own, and its connection holds back the next, when this is called."""
    connection = request.connection
    try:
        produce = parse_produce(request.version, request.view, request.body_offset)
        judged = await _judge_all(context, produce)
        verdict, answered = await _settle(context, request.version, produce, None)
        if await _bury_all(context, produce, judged, verdict):
            verdict, _ = await _settle(context, request.version, produce, answered)
        # From here to the end of `append` nothing is waited for.
        request.started = context.clock.monotonic()
        _refuse_undecided(context, judged)
        admitted = {at: (outcome.batch, outcome.header) for at, (_, outcome) in judged.outcomes.items()}
        answer = append(context, request, produce, {**judged.refused, **verdict}, admitted | judged.unjudged)
    finally:
        connection.holds_back_the_next = False
    request.view = memoryview(b"")  # appended: the answer waits without it
    connection.take_more()
    return await made(answer)


async def _judge_all(context: HandlerContext, produce: ProduceRequest) -> _Judged:
    judged = _Judged()
    started = context.clock.monotonic()
    seen: set[TopicPartition] = set()
    for name, topic_id, partitions in produce.topics:
        replicas = context.replicas
        topic = replicas.topics.get(name) if name is not None else None
        if topic_id is not None:
            topic = replicas.topics_by_id.get(topic_id)
        if topic is None or not topic.config.validates or topic.name in INTERNAL_TOPICS:
            continue
        for index, records in partitions:
            at = TopicPartition(topic.name, index)
            try:
                if at in seen:
                    raise InvalidRequest(f"{at} is named twice in one request")
                seen.add(at)
                if context.clock.monotonic() - started > REQUEST_S_MAX:
                    raise NotNow("nothing was written: the batches before this one took too long to validate")
                if records is not None:
                    await _judge(context, topic, at, records, produce.acks, judged)
            except PenstockError as error:
                judged.refused[at] = error
    return judged


async def _judge(
    context: HandlerContext, topic: HostedTopic, at: TopicPartition, records: memoryview, acks: int, judged: _Judged
) -> None:
    partition = context.replicas.partition_of(topic, at.partition)
    if acks == ACKS_ALL:
        partition.check_in_sync()
    config = topic.config
    batch, header = admit(records, config, context.clock.now_ms())
    if _is_decided(partition, header):
        judged.unjudged[at] = batch, header
        return
    assert context.validation is not None
    rule = rule_of(topic.name, config)
    judged.outcomes[at] = rule, await context.validation.check(rule, at, batch, header, config)


async def _settle(
    context: HandlerContext, version: int, produce: ProduceRequest, answered: Answered | None
) -> tuple[Mapping[TopicPartition, Refused], Answered | None]:
    """Which batches their transaction does not cover, and what its coordinator said if it was asked."""
    if produce.transactional_id is None:
        return {}, None
    verdict = verify(context, version, produce, answered)
    if isinstance(verdict, AskFirst):
        answered = await ask_first(context, verdict)
        verdict = verify(context, version, produce, answered)
        assert not isinstance(verdict, AskFirst)
    return verdict, answered


async def _bury_all(
    context: HandlerContext, produce: ProduceRequest, judged: _Judged, verdict: Mapping[TopicPartition, Refused]
) -> bool:
    """Whether there were dead letters to write: then time has passed."""
    is_waited = False
    for at, (rule, outcome) in list(judged.outcomes.items()):
        if not outcome.letters or at in verdict or not -1 <= produce.acks <= 1:
            continue
        is_waited = True
        try:
            # Asked again: letters of a batch that cannot be appended would be written once more with its next try.
            partition = context.replicas.find(at.topic, at.partition)
            if produce.acks == ACKS_ALL:
                partition.check_in_sync()
            assert context.validation is not None
            await context.validation.bury(rule, at, outcome)
        except PenstockError as error:
            judged.refused[at] = error
    return is_waited


def _is_decided(partition: Partition, header: BatchHeader) -> bool:
    """Whether the log will not write this batch whatever is in it: it has it, or its sequence does not fit."""
    if header.producer_id < 0:
        return False
    try:
        return partition.log.producers.check(header) is not None
    except PenstockError:
        return True


def _refuse_undecided(context: HandlerContext, judged: _Judged) -> None:
    """What the log would not have written when it came, and now would, was never judged."""
    for at, (_, header) in judged.unjudged.items():
        topic = context.replicas.topics.get(at.topic)
        partition = None if topic is None else topic.partitions.get(at.partition)
        if partition is not None and not _is_decided(partition, header):
            judged.refused[at] = NotNow(f"nothing was written: {at} has changed since the batch came")
