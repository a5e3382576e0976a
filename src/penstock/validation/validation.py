"""Batches on their way through validation: unpacked and judged in threads, against schemas looked up on the loop.

Called by handlers.validated_produce; made by broker, which costs nothing: threads, connections and imports come with
the first batch of a topic that validates. Laws:
- A batch is judged by schemas that were registered when it was, or it is not judged: NotNow.
- At most THREADS batches are unpacked at once, each within the limits of its topic (`max.message.bytes` times
  `penstock.decompression.ratio.max`), each for at most JUDGE_S_MAX.
"""

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, NamedTuple

from penstock.client.peers import Peers
from penstock.config import TopicConfig
from penstock.errors import RecordListTooLarge
from penstock.log.intake import RECORD_BYTES_MIN
from penstock.metrics import BrokerMetrics
from penstock.model import TopicPartition
from penstock.records.batch import BatchHeader, read_header
from penstock.validation.rules import DEAD_LETTER, MARK, REJECT, Fault, RecordsRefused, Rule
from penstock.wire.apis import ApiKey

if TYPE_CHECKING:
    from penstock.schemas.stored.parsed import ParsedSchemas
    from penstock.validation.dead_letters import DeadLetters
    from penstock.validation.judging import Judged, Known, MustLookUp
    from penstock.validation.log_reading import Requests
    from penstock.validation.schema_topic import SchemaTopic

THREADS = 2
JUDGE_S_MAX = 10.0
PEER_S_MAX = 5.0


class Outcome(NamedTuple):
    """What is written in place of a batch, and what goes to the dead-letter topic before it."""

    batch: memoryview
    header: BatchHeader
    letters: Sequence[bytearray] = ()
    faults: int = 0


class _Parts(NamedTuple):
    topic: "SchemaTopic"
    letters: "DeadLetters"
    schemas: "ParsedSchemas"
    threads: ThreadPoolExecutor
    # One for each purpose: on a shared connection a letter that waits to be safe would hold up what is read.
    peers: tuple[Peers, Peers]


class SchemaValidation:
    def __init__(
        self,
        make_peers: Callable[[str], Peers],
        metrics: BrokerMetrics,
        make_topic: "Callable[[Requests], SchemaTopic]",
        make_letters: "Callable[[Requests], DeadLetters]",
    ) -> None:
        self._make_peers = make_peers
        self._metrics = metrics
        self._make_topic = make_topic
        self._make_letters = make_letters
        self._made: _Parts | None = None

    async def check(
        self, rule: Rule, at: TopicPartition, batch: memoryview, header: BatchHeader, config: TopicConfig
    ) -> Outcome:
        """What becomes of the batch. Raises RecordsRefused, NotNow, or what is wrong with the batch itself."""
        if header.record_count > config.max_message_bytes // RECORD_BYTES_MIN:
            raise RecordListTooLarge(f"{header.record_count} records in one batch are more than are looked through")
        parts = self._parts()
        unpacked_max = min(
            config.unpacked_bytes_max, max(config.max_message_bytes, len(batch) * config.decompression_ratio_max)
        )
        work = _Work(rule, at, batch, header, unpacked_max, config.max_message_bytes, parts.schemas)
        done = await self._run(parts, work, await parts.topic.known(), None)
        if not isinstance(done, Outcome | RecordsRefused):
            done = await self._run(parts, work, await parts.topic.look_up(done.ids), done.ids)
            assert isinstance(done, Outcome | RecordsRefused)
        self._metrics.schema_records_checked.child(rule.topic).value += header.record_count
        if isinstance(done, RecordsRefused):
            self._metrics.schema_records_refused.child(rule.topic).value += done.count
            raise done
        if rule.on_failure == MARK:
            self._metrics.schema_records_marked.child(rule.topic).value += done.faults
        return done

    async def bury(self, rule: Rule, at: TopicPartition, outcome: Outcome) -> None:
        """Write the dead letters of a batch, before the batch. Raises NotNow."""
        await self._parts().letters.write(rule.dead_letter_topic, at, outcome.letters)
        self._metrics.schema_records_dead_lettered.child(rule.topic).value += outcome.faults

    async def close(self) -> None:
        made, self._made = self._made, None
        if made is not None:
            await made.topic.close()
            made.threads.shutdown(wait=False, cancel_futures=True)
            for peers in made.peers:
                await peers.close()

    async def _run(
        self, parts: _Parts, work: "_Work", known: "Known", looked_up: frozenset[int] | None
    ) -> "Outcome | RecordsRefused | MustLookUp":
        return await asyncio.get_running_loop().run_in_executor(parts.threads, work.run, known, looked_up)

    def _parts(self) -> _Parts:
        if self._made is None:
            from penstock.schemas.stored.parsed import ParsedSchemas

            peers = self._make_peers("schemas"), self._make_peers("dead-letters")
            self._made = _Parts(
                self._make_topic(_requests(peers[0])),
                self._make_letters(_requests(peers[1])),
                ParsedSchemas(),
                ThreadPoolExecutor(THREADS, thread_name_prefix="schema-validation"),
                peers,
            )
        return self._made


def _requests(peers: Peers) -> "Requests":
    async def ask(node_id: int, api_key: ApiKey, version: int, body: Mapping[str, Any]) -> Any:
        return await peers.request(node_id, api_key, version, body, timeout_s=PEER_S_MAX)

    return ask


class _Work(NamedTuple):
    """One batch, for a thread to work on."""

    rule: Rule
    at: TopicPartition
    batch: memoryview
    header: BatchHeader
    unpacked_max: int
    letter_max: int
    schemas: "ParsedSchemas"

    def run(self, known: "Known", looked_up: frozenset[int] | None) -> "Outcome | RecordsRefused | MustLookUp":
        from penstock.validation.judging import Judged, judge

        # Counted from here: what waits for a thread has not begun.
        judged = judge(
            self.batch,
            self.header,
            self.unpacked_max,
            self.rule,
            known,
            self.schemas,
            time.monotonic() + JUDGE_S_MAX,
            looked_up,
        )
        return self._outcome(judged) if isinstance(judged, Judged) else judged

    def _outcome(self, judged: "Judged") -> Outcome | RecordsRefused:
        from penstock.validation import rewriting

        body, faults = judged
        if not faults:
            return Outcome(self.batch, self.header)
        if self.rule.on_failure == REJECT:
            return RecordsRefused(faults)
        letters: Sequence[bytearray] = ()
        if self.rule.on_failure == DEAD_LETTER:
            letters = self._letters(faults)
            batch = rewriting.without(self.header, body, faults)
        else:
            batch = rewriting.marked(self.header, body, faults, self.unpacked_max)
        return Outcome(memoryview(batch), read_header(batch), letters, len(faults))

    def _letters(self, faults: Sequence[Fault]) -> list[bytearray]:
        from penstock.validation.rewriting import dead_letters

        return dead_letters(self.batch, self.header, self.unpacked_max, faults, self.at, self.letter_max)
