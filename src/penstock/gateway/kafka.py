"""The gateway's side of Kafka: the one place that owns librdkafka's handles.

Called by every part of the gateway. All of it is awaitable and none of it holds the loop: one producer
(gateway.producer), one Cluster asked from a few threads (`ask`), consumers made on demand (gateway.consumer).
Laws:
- A cluster that is not there yet is waited for: `is_connected` says whether it answered last time.
- Asking about a topic never makes it.
- A cluster that does not let the gateway in is said so, once; until it does nobody waits for a time-out to hear it.
"""

import asyncio
import contextlib
import logging
import re
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple, TypeVar

from penstock.admin.cluster import Cluster
from penstock.admin.failures import CommandFailed
from penstock.clock import Rng
from penstock.errors import PenstockError
from penstock.gateway.consumer import AsyncConsumer
from penstock.gateway.errors import Busy, KafkaFailed
from penstock.gateway.producer import BulkProducer, Delivered, Outcome, Outgoing

__all__ = ["AsyncConsumer", "Busy", "Delivered", "Kafka", "KafkaFailed", "Outcome", "Outgoing", "TopicFacts"]

log = logging.getLogger(__name__)

T = TypeVar("T")

CLIENT_ID = "penstock-gateway"
WATCH_S = 5.0
WATCH_FIRST_S = 0.25
# How long what is known of a topic is taken for true: its partitions are checked with every produce request.
TOPIC_FRESH_S = 5.0
TOPICS_KEPT_MAX = 10_000
CONSUMERS_MAX = 200
# librdkafka's names for being sent away at the door; it goes on trying, at longer and longer intervals.
_SENT_AWAY = frozenset({"_AUTHENTICATION", "_SSL"})
# Which broker it was and how long it took: all of them say the same, and it is to be said once.
_CIRCUMSTANCES = re.compile(r"^\w+://\S+: | \(after \d+ms in state .*\)$")


class TopicFacts(NamedTuple):
    """What a produce request must know."""

    partitions: int
    known_at: float


class Kafka:
    def __init__(
        self,
        bootstrap: str,
        properties: Mapping[str, str],
        *,
        ask_timeout_s: float = 10.0,
        ask_threads: int = 8,
        delivery_timeout_s: float = 30.0,
        queue_records_max: int = 100_000,
        queue_bytes_max: int = 64 * 1024 * 1024,
        consumers_max: int = CONSUMERS_MAX,
    ) -> None:
        self.bootstrap = bootstrap
        self.properties = dict(properties)
        self.admin = Cluster(bootstrap, self.properties, ask_timeout_s, client_id=CLIENT_ID)
        self.ask_timeout_s = ask_timeout_s
        self.is_connected = False
        # Why the cluster does not let us in, while it does not.
        self.refusal: str | None = None
        self.cluster_id: str | None = None
        self._delivery_timeout_s = delivery_timeout_s
        self._queue_records_max = queue_records_max
        self._queue_bytes_max = queue_bytes_max
        self._consumers_max = consumers_max
        self._asking = ThreadPoolExecutor(ask_threads, thread_name_prefix="gateway-ask")
        self._consumers: set[AsyncConsumer] = set()
        self._topics: dict[str, TopicFacts] = {}
        self._producer: BulkProducer | None = None
        self._watching: asyncio.Task[None] | None = None
        self._rng = Rng()

    async def start(self) -> None:
        """Returns at once, whether the cluster is there or not. Raises KafkaFailed for properties that are wrong."""
        if self._producer is not None:
            return
        from confluent_kafka import Producer

        self._producer = BulkProducer(
            # This one is polled all the time, so it hears first what is wrong with the connection.
            lambda settings: self._make(Producer, settings, self._hear_error),
            records_max=self._queue_records_max,
            bytes_max=self._queue_bytes_max,
            delivery_timeout_s=self._delivery_timeout_s,
        )
        self._watching = asyncio.get_running_loop().create_task(self._watch())

    async def close(self) -> None:
        if self._watching is not None:
            self._watching.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._watching
        await asyncio.gather(*(consumer.close() for consumer in list(self._consumers)))
        if self._producer is not None:
            await self._producer.close()
        self._asking.shutdown(wait=False, cancel_futures=True)

    # Producing

    @property
    def producer(self) -> BulkProducer:
        assert self._producer is not None, "start() comes first"
        return self._producer

    def produce_many(self, topic: str, records: Sequence[Outgoing]) -> "asyncio.Future[list[Outcome]]":
        """One future for all; it gives what became of each record, in order. Raises Busy before any is sent."""
        return self.producer.send(topic, records)

    def produce(
        self,
        topic: str,
        value: bytes | None,
        key: bytes | None = None,
        partition: int | None = None,
        headers: Sequence[tuple[str, bytes | None]] = (),
        timestamp_ms: int | None = None,
    ) -> "asyncio.Future[Delivered]":
        """One record. The future raises KafkaFailed where it was not delivered; the call itself raises Busy."""
        sending = self.producer.send(topic, [Outgoing(value, key, partition, headers, timestamp_ms or 0)])
        delivered: asyncio.Future[Delivered] = asyncio.get_running_loop().create_future()

        def pass_on(done: "asyncio.Future[list[Outcome]]") -> None:
            if delivered.done():
                return
            outcome = done.result()[0]
            if isinstance(outcome, KafkaFailed):
                delivered.set_exception(outcome)
            else:
                delivered.set_result(outcome)

        sending.add_done_callback(pass_on)
        return delivered

    @property
    def records_under_way(self) -> int:
        return 0 if self._producer is None else self._producer.records_under_way

    @property
    def bytes_under_way(self) -> int:
        return 0 if self._producer is None else self._producer.bytes_under_way

    # Asking

    async def ask(self, call: Callable[[Cluster], T]) -> T:
        """Run something of penstock.admin, or of librdkafka's admin client, in a thread. Raises KafkaFailed.

        Not to be used for what waits longer than the cluster's time-out: there are only a few threads.
        """
        if self.refusal is not None and not self.is_connected:
            raise KafkaFailed(-169, "_AUTHENTICATION", self.refusal)
        return await self._ask(call)

    async def _ask(self, call: Callable[[Cluster], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._asking, self._guarded, call)

    async def topic(self, name: str) -> TopicFacts | None:
        """How many partitions it has; None where there is no such topic. What was true seconds ago may be told."""
        now = asyncio.get_running_loop().time()
        known = self._topics.get(name)
        if known is not None and now - known.known_at < TOPIC_FRESH_S:
            return known

        def look(cluster: Cluster) -> int:
            from confluent_kafka import TopicCollection

            asked = cluster.admin.describe_topics(TopicCollection([name]), request_timeout=cluster.timeout_s)
            return len(asked[name].result(cluster.timeout_s + 1).partitions)

        try:
            partitions = await self.ask(look)
        except KafkaFailed as failure:
            self._topics.pop(name, None)
            if failure.name in ("UNKNOWN_TOPIC_OR_PART", "_UNKNOWN_TOPIC", "TOPIC_EXCEPTION", "_INVALID_ARG"):
                return None
            raise
        if len(self._topics) >= TOPICS_KEPT_MAX:
            self._topics.clear()
        found = self._topics[name] = TopicFacts(partitions, now)
        return found

    def forget_topic(self, name: str) -> None:
        """It was changed or deleted by us: ask anew."""
        self._topics.pop(name, None)

    # Consuming

    def consumer(self, group: str | None, settings: Mapping[str, Any]) -> AsyncConsumer:
        """Without a group it may only assign(), and commits nothing. Raises KafkaFailed, and Busy past the limit."""
        from confluent_kafka import Consumer

        self._consumers = {one for one in self._consumers if not one.is_closed}
        if len(self._consumers) >= self._consumers_max:
            raise Busy(
                f"{self._consumers_max} consumers are open, as many as the gateway keeps: close one, or try later"
            )
        name = group if group is not None else f"{CLIENT_ID}-{self._rng.uuid().hex}"
        alone: dict[str, Any] = {} if group is not None else {"enable.auto.commit": False}
        made = AsyncConsumer(
            lambda own: self._make(Consumer, {"group.id": name, **alone, **own}), settings, "gateway-consumer"
        )
        self._consumers.add(made)
        return made

    @property
    def consumers_open(self) -> int:
        return sum(not one.is_closed for one in self._consumers)

    # Inside

    def _hear_error(self, error: Any) -> None:
        """In librdkafka's thread."""
        if error.name() in _SENT_AWAY and not self.is_connected:
            told = _CIRCUMSTANCES.sub("", str(error.str()))
            reason = f"the cluster at {self.bootstrap} does not let the gateway in: {told}; check -X (sasl.*, ssl.*)"
            if reason != self.refusal:
                log.warning("%s", reason)
            self.refusal = reason

    def _make(
        self, client: Callable[..., Any], settings: Mapping[str, Any], on_error: Callable[[Any], None] | None = None
    ) -> Any:
        from confluent_kafka import KafkaException

        basis = {"bootstrap.servers": self.bootstrap, "client.id": CLIENT_ID, "log_level": 0}
        try:
            # Silent: what matters comes back as the error of a call.
            return client({**basis, **settings, **self.properties, "error_cb": on_error or _ignore})
        except KafkaException as error:
            raise KafkaFailed.of(error) from None
        except (TypeError, ValueError) as error:
            raise KafkaFailed(-186, "_INVALID_ARG", str(error)) from None

    def _guarded(self, call: Callable[[Cluster], T]) -> T:
        from confluent_kafka import KafkaException

        try:
            return call(self.admin)
        except KafkaException as error:
            raise KafkaFailed.of(error) from None
        except CommandFailed as failure:
            # penstock.admin has put it into words already; most often nobody could be reached.
            raise KafkaFailed(-195, "_TRANSPORT", failure.what, True) from None
        except (TypeError, ValueError) as error:
            # librdkafka's Python side will not send it.
            raise KafkaFailed(-186, "_INVALID_ARG", str(error)) from None
        except TimeoutError:
            raise KafkaFailed(-185, "_TIMED_OUT", "the cluster did not answer in time", True) from None
        except PenstockError as error:
            raise KafkaFailed(int(error.code), error.code.name, str(error)) from None

    async def _watch(self) -> None:
        """Whether the cluster answers: often until it first does, then now and then."""
        told: str | None = None
        while True:
            try:
                self.cluster_id = await self._ask(_find_cluster_id)
                if not self.is_connected:
                    log.info("connected to cluster %s at %s", self.cluster_id, self.bootstrap)
                self.is_connected = True
                self.refusal = told = None
            except KafkaFailed as failure:
                self.is_connected = False
                reason = f"the cluster at {self.bootstrap} does not answer: {failure}"
                if self.refusal is None and reason != told:
                    log.warning("%s", reason)
                told = reason
            # Who is sent away does not come back four times a second.
            is_waiting = not self.is_connected and self.refusal is None
            await asyncio.sleep(WATCH_FIRST_S if is_waiting else WATCH_S)


def _find_cluster_id(cluster: Cluster) -> str:
    described: Any = cluster.ask(cluster.admin.describe_cluster).result(cluster.timeout_s + 1)
    return str(described.cluster_id)


def _ignore(_: Any) -> None:
    pass
