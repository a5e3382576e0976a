"""The cluster a command talks to: an admin client, consumers and producers, and requests librdkafka does not know.

Called by every command but `serve` and `log`. Works with any Kafka cluster, not only with penstock.
confluent_kafka is imported when first needed, so that `--help` and mistyped options answer at once.
"""

import asyncio
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeVar

from penstock.admin.failures import ASKED_WRONGLY, CommandFailed, explain
from penstock.admin.reach import Attempt, Reached, reach
from penstock.client.connection import ClientConnection
from penstock.config.addresses import parse_bootstrap
from penstock.errors import ApiNotServed, PenstockError
from penstock.model import Endpoint
from penstock.wire.apis import BY_KEY, ApiKey

K = TypeVar("K")
T = TypeVar("T")

# The admin client's own deadline lies before ours, so that its words reach the user.
_SLACK_S = 5.0
_PLAIN = "plaintext"


def admin_types() -> Any:
    """confluent_kafka.admin, which exports its classes to people but not to type checkers."""
    import confluent_kafka.admin

    return confluent_kafka.admin


@dataclass(frozen=True)
class Cluster:
    bootstrap: str
    properties: Mapping[str, str]
    timeout_s: float
    as_json: bool = False
    client_id: str = "penstock-cli"

    # What librdkafka knows

    @cached_property
    def admin(self) -> Any:
        """An AdminClient."""
        return self._make(admin_types().AdminClient, {})

    def consumer(self, settings: Mapping[str, Any]) -> Any:
        from confluent_kafka import Consumer

        return self._make(Consumer, settings)

    def producer(self, settings: Mapping[str, Any]) -> Any:
        from confluent_kafka import Producer

        return self._make(Producer, settings)

    def metadata(self) -> Any:
        """librdkafka's ClusterMetadata. Always of all topics: asking for one by name may create it."""
        from confluent_kafka import KafkaException

        try:
            return self.admin.list_topics(timeout=self.timeout_s)
        except KafkaException as error:
            raise explain(error, f"asking {self.bootstrap} for its topics") from None

    def ask(self, call: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
        """Call a method of the admin client with the deadline of this command; gives its future or futures."""
        from confluent_kafka import KafkaException

        try:
            return call(*arguments, request_timeout=self.timeout_s, **options)
        except (KafkaException, ValueError, TypeError) as error:
            raise explain(error, "the request was refused here") from None

    def result(self, future: "Future[T]", doing: str) -> T:
        """What a future of the admin client gives, or the failure of what was being done."""
        value, error = self.outcome(future)
        if error is not None:
            raise explain(error, doing)
        return value  # pyright: ignore[reportReturnType]: no error means there is a value

    def outcome(self, future: "Future[T]") -> tuple[T | None, Any]:
        """The value, or else librdkafka's error."""
        from confluent_kafka import KafkaError, KafkaException

        try:
            return future.result(self.timeout_s + _SLACK_S), None
        except KafkaException as error:
            return None, error.args[0]
        except TimeoutError:
            return None, KafkaError(KafkaError.REQUEST_TIMED_OUT, f"no answer within {self.timeout_s:g} s")

    def results(self, futures: "Mapping[K, Future[T]]", doing: str) -> dict[K, T]:
        return {key: self.result(future, f"{doing} {key}") for key, future in futures.items()}

    # What it does not

    def request(
        self, api_key: ApiKey, body: Mapping[str, Any], endpoint: Endpoint | None = None, version_min: int = 0
    ) -> Any:
        """One request to the given broker, or to one of --bootstrap, over a plaintext connection of our own.

        `version_min`: the first version that has what the body asks for; in an older one it would go unsaid.
        """
        asked = endpoint or self.find_listener()

        async def run() -> Any:
            async with await ClientConnection.connect(
                asked, client_id=self.client_id, timeout_s=self.timeout_s
            ) as connection:
                if connection.versions.get(api_key, (0, -1))[1] < version_min:
                    raise ApiNotServed(f"{asked} is too old for this option of {BY_KEY[api_key].name}")
                return await connection.request(api_key, None, body)

        try:
            return asyncio.run(run())
        except (OSError, PenstockError) as error:
            raise CommandFailed(f"asking {asked}: {error}", "`penstock doctor` may find out why.") from None

    @property
    def is_plaintext(self) -> bool:
        """Whether our own connections can speak to this cluster: they know neither TLS nor SASL."""
        return self.properties.get("security.protocol", _PLAIN).lower() == _PLAIN

    def require_plaintext(self, what: str) -> None:
        if not self.is_plaintext:
            raise CommandFailed(
                f"{what} works over plaintext connections only",
                "librdkafka has no request for it, and penstock's own connection speaks neither TLS nor SASL.",
                ASKED_WRONGLY,
            )

    @cached_property
    def endpoints(self) -> list[Endpoint]:
        try:
            return parse_bootstrap(self.bootstrap)
        except ValueError as fault:
            raise CommandFailed(str(fault), "Check --bootstrap.", ASKED_WRONGLY) from None

    def find_listener(self) -> Endpoint:
        """The first address of --bootstrap where somebody listens; the failure says why nobody does.

        librdkafka would try until its deadline, and nobody wants to wait ten seconds for "connection refused".
        """
        tried: list[Attempt] = []
        for endpoint in self.endpoints:
            tried.append(reach(endpoint, self.timeout_s))
            if tried[-1].state is Reached.YES:
                return endpoint
        raise CommandFailed(
            f"cannot reach the cluster: {'; '.join(map(str, tried))}",
            "Is the broker running there? Start one with `penstock serve`, or name another with --bootstrap.",
        )

    def _make(self, client: Callable[..., Any], settings: Mapping[str, Any]) -> Any:
        """A client of librdkafka that is silent: what matters comes back as an error of a call."""
        from confluent_kafka import KafkaException

        self.find_listener()
        quiet = {"bootstrap.servers": self.bootstrap, "client.id": self.client_id, "log_level": 0}
        try:
            return client({**quiet, **settings, **self.properties, "error_cb": lambda _: None})  # pyright: ignore[reportUnknownLambdaType]
        except KafkaException as error:
            raise CommandFailed(f"librdkafka: {error.args[0].str()}", "Check -X.", ASKED_WRONGLY) from None
