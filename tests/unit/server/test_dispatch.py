"""server.dispatch: every API in every version answers; what cannot be answered closes one connection and no other."""

import asyncio
import logging
from typing import Any
from uuid import UUID

import pytest

from penstock.errors import CoordinatorNotAvailable, ErrorCode
from penstock.server.routes import ROUTES, Operation, Resource, Route
from penstock.testing import EmbeddedBroker
from penstock.wire.apis import APIS, BY_KEY, ApiKey
from penstock.wire.messages import load_entity
from penstock.wire.schema import FIXED, EntityType, FieldSpec, field_specs

PRODUCE, API_VERSIONS = ApiKey.PRODUCE, ApiKey.API_VERSIONS
SERVED = [
    pytest.param(key, version, id=f"{BY_KEY[key].name}-{version}")
    for key in ROUTES
    for version in range(BY_KEY[key].low, BY_KEY[key].high + 1)
]


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Any:
    with EmbeddedBroker(tmp_path_factory.mktemp("broker"), {"group.min.session.timeout.ms": "0"}) as running:
        yield running


# Every API


def test_every_api_has_a_route_that_says_whom_it_is_for() -> None:
    assert {api.key for api in APIS} == ROUTES.keys()
    for key, route in ROUTES.items():
        assert (route.handler is None) != (route.raw is None), key
        assert (route.resource is Resource.NONE) == (route.operation is Operation.NONE) == (key is API_VERSIONS), key


@pytest.mark.parametrize(("key", "version"), SERVED)
def test_a_request_with_nothing_in_it_is_answered(
    broker: EmbeddedBroker, connect: Any, key: ApiKey, version: int
) -> None:
    body = {"acks": 1} if key is PRODUCE else {}
    assert_answered(connect(broker).ask(key, version, **body))


@pytest.mark.parametrize(("key", "version"), SERVED)
def test_a_request_with_one_of_everything_is_answered(
    broker: EmbeddedBroker, connect: Any, key: ApiKey, version: int
) -> None:
    body = one_of_each(load_entity(key, version, "request"))
    if key is PRODUCE:
        body["acks"] = 1
    assert_answered(connect(broker).ask(key, version, **body))


@pytest.mark.parametrize(("key", "version"), SERVED)
def test_a_request_with_everything_twice_is_answered(
    broker: EmbeddedBroker, connect: Any, key: ApiKey, version: int
) -> None:
    body = one_of_each(load_entity(key, version, "request"), times=2)
    if key is PRODUCE:
        body["acks"] = 1
    assert_answered(connect(broker).ask(key, version, **body))


def assert_answered(answer: Any) -> None:
    """Whatever it says, nowhere does it say that the broker is at a loss."""
    assert ErrorCode.UNKNOWN_SERVER_ERROR not in set(error_codes(answer)), answer


def error_codes(message: Any) -> list[int]:
    codes: list[int] = []
    for name in getattr(message, "__dataclass_fields__", ()):
        value = getattr(message, name)
        if name == "error_code":
            codes.append(int(value))
        for inner in value if isinstance(value, tuple) else (value,):
            codes += error_codes(inner)
    return codes


def one_of_each(entity: EntityType, times: int = 1) -> dict[str, Any]:
    """A request in which no array is empty, no number 0 and nothing null."""

    def value(spec: FieldSpec) -> Any:
        if spec.entity is not None:
            return one_of_each(spec.entity, times)
        match spec.kind:
            case "string":
                return "orders"
            case "bytes" | "records":
                return b"something"
            case "uuid":
                return UUID(int=7)
            case "bool":
                return True
            case "float64":
                return 1.5
            case kind:
                assert kind in FIXED
                return 1

    return {spec.name: [value(spec)] * times if spec.is_array else value(spec) for spec in field_specs(entity)}


# What is not served


@pytest.mark.parametrize("version", [5, 6, 99, 32767])
def test_an_unknown_version_of_api_versions_is_answered_in_version_0_with_the_range_to_try(
    broker: EmbeddedBroker, connect: Any, frames: Any, version: int
) -> None:
    wire = connect(broker)
    request = bytearray(frames.make(API_VERSIONS, 4, 77, client_software_name="x", client_software_version="1"))
    request[6:8] = version.to_bytes(2, "big")
    wire.send(bytes(request))
    correlation_id, answer = wire.receive(API_VERSIONS, 0)
    assert correlation_id == 77
    assert answer.error_code == ErrorCode.UNSUPPORTED_VERSION
    assert [(api.api_key, api.min_version, api.max_version) for api in answer.api_keys] == [(18, 0, 4)]
    assert wire.ask(API_VERSIONS, 4, client_software_name="x", client_software_version="1").error_code == 0


@pytest.mark.parametrize(
    ("key", "version"),
    [(-1, 0), (7, 0), (17, 0), (200, 0), (32767, 0), (0, 2), (0, 14), (0, -1), (1, 3), (1, 19), (3, 14), (19, 1)],
)
def test_an_unknown_api_or_version_closes_that_connection_only(
    broker: EmbeddedBroker, connect: Any, frames: Any, inside: Any, key: int, version: int
) -> None:
    wire, other = connect(broker), connect(broker)
    before = inside(broker).closed("malformed")
    request = bytearray(frames.make(ApiKey.METADATA, 1, 1))
    request[4:8] = key.to_bytes(2, "big", signed=True) + version.to_bytes(2, "big", signed=True)
    wire.send(bytes(request))
    assert wire.is_hung_up_on()
    assert inside(broker).closed("malformed") == before + 1
    assert other.ask(API_VERSIONS, 0).error_code == 0


def test_what_is_advertised_is_what_is_served(broker: EmbeddedBroker, connect: Any) -> None:
    answer = connect(broker).ask(API_VERSIONS, 4, client_software_name="x", client_software_version="1")
    advertised = {api.api_key: (api.min_version, api.max_version) for api in answer.api_keys}
    # Offered only once somebody has asked for clients' metrics.
    telemetry = (ApiKey.GET_TELEMETRY_SUBSCRIPTIONS, ApiKey.PUSH_TELEMETRY)
    assert advertised == {api.key: (api.advertised_low, api.high) for api in APIS if api.key not in telemetry}
    assert advertised[PRODUCE][0] == 0  # or librdkafka stops compressing


# What fails


def failing(monkeypatch: pytest.MonkeyPatch, key: ApiKey, error: Exception, *, later: bool) -> None:
    async def fail_later() -> Any:
        await asyncio.sleep(0)
        raise error

    def fail(context: Any, request: Any) -> Any:
        if later:
            return fail_later()
        raise error

    route = ROUTES[key]
    monkeypatch.setitem(ROUTES, key, Route(route.resource, route.operation, fail))


@pytest.mark.parametrize("later", [False, True])
@pytest.mark.parametrize(
    ("key", "version", "has_message"),
    [
        (ApiKey.HEARTBEAT, 0, False),
        (ApiKey.HEARTBEAT, 4, False),
        (ApiKey.DESCRIBE_CLUSTER, 0, True),
        (ApiKey.METADATA, 13, False),
        (ApiKey.FIND_COORDINATOR, 0, False),
        (ApiKey.FIND_COORDINATOR, 3, True),
    ],
)
def test_a_request_that_fails_as_a_whole_says_so_where_its_version_has_a_place_for_it(
    broker: EmbeddedBroker,
    connect: Any,
    monkeypatch: pytest.MonkeyPatch,
    later: bool,
    key: ApiKey,
    version: int,
    has_message: bool,
) -> None:
    failing(monkeypatch, key, CoordinatorNotAvailable("not now"), later=later)
    answer = connect(broker).ask(key, version)
    assert answer.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    if has_message:
        assert answer.error_message == "not now"


@pytest.mark.parametrize("later", [False, True])
@pytest.mark.parametrize(
    ("key", "version"), [(ApiKey.METADATA, 12), (ApiKey.FIND_COORDINATOR, 4), (ApiKey.CREATE_TOPICS, 7)]
)
def test_a_request_that_fails_as_a_whole_is_hung_up_on_where_an_empty_answer_would_be_a_lie(
    broker: EmbeddedBroker,
    connect: Any,
    frames: Any,
    monkeypatch: pytest.MonkeyPatch,
    later: bool,
    key: ApiKey,
    version: int,
) -> None:
    failing(monkeypatch, key, CoordinatorNotAvailable("not now"), later=later)
    wire = connect(broker)
    wire.send(frames.make(key, version, 1))
    assert wire.is_hung_up_on()


@pytest.mark.parametrize("later", [False, True])
def test_a_bug_in_a_handler_is_logged_and_answered_and_the_connection_goes_on(
    broker: EmbeddedBroker, connect: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, later: bool
) -> None:
    failing(monkeypatch, ApiKey.HEARTBEAT, ZeroDivisionError("a bug"), later=later)
    wire = connect(broker)
    with caplog.at_level(logging.ERROR):
        assert wire.ask(ApiKey.HEARTBEAT, 4).error_code == ErrorCode.UNKNOWN_SERVER_ERROR
    assert "ZeroDivisionError" in caplog.text
    assert wire.ask(API_VERSIONS, 0).error_code == 0


@pytest.mark.parametrize("answer", [{"no_such_field": 1}, {"error_code": 2**40}])
def test_an_answer_that_cannot_be_written_is_a_bug_like_any_other(
    broker: EmbeddedBroker, connect: Any, monkeypatch: pytest.MonkeyPatch, answer: dict[str, int]
) -> None:
    route = ROUTES[ApiKey.HEARTBEAT]
    monkeypatch.setitem(ROUTES, ApiKey.HEARTBEAT, Route(route.resource, route.operation, lambda *_: answer))
    assert connect(broker).ask(ApiKey.HEARTBEAT, 4).error_code == ErrorCode.UNKNOWN_SERVER_ERROR


@pytest.mark.parametrize("key", [PRODUCE, ApiKey.FETCH])
def test_a_bug_on_the_hot_walks_costs_the_connection(
    broker: EmbeddedBroker,
    connect: Any,
    frames: Any,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    key: ApiKey,
) -> None:
    def fail(*_: Any) -> Any:
        raise ZeroDivisionError("a bug")

    monkeypatch.setitem(ROUTES, key, Route(ROUTES[key].resource, ROUTES[key].operation, raw=fail))
    broker.restart()  # which reads the routes anew
    wire, other = connect(broker), connect(broker)
    with caplog.at_level(logging.ERROR):
        wire.send(frames.make(key, 11, 1))
        assert wire.is_hung_up_on()
    assert "ZeroDivisionError" in caplog.text
    assert other.ask(API_VERSIONS, 0).error_code == 0


def test_what_a_client_asked_for_is_done_though_it_hangs_up(
    broker: EmbeddedBroker, connect: Any, frames: Any, inside: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    look = inside(broker)
    steps: list[str] = []
    gate: asyncio.Future[None] = look.read(lambda: asyncio.get_running_loop().create_future())

    def handle(*_: Any) -> Any:
        async def work() -> Any:
            steps.append("begun")
            await gate
            steps.append("done")
            return {}

        return work()

    route = ROUTES[ApiKey.HEARTBEAT]
    monkeypatch.setitem(ROUTES, ApiKey.HEARTBEAT, Route(route.resource, route.operation, handle))
    wire = connect(broker)
    before = look.read(lambda: broker.broker.listener.connection_count)
    wire.send(frames.make(ApiKey.HEARTBEAT, 4, 1))
    look.until(lambda: steps == ["begun"])
    wire.close()
    look.until(lambda: broker.broker.listener.connection_count < before)
    look.read(lambda: gate.set_result(None))
    look.until(lambda: steps == ["begun", "done"])


def test_requests_are_counted_and_timed(broker: EmbeddedBroker, connect: Any, inside: Any) -> None:
    look, metrics = inside(broker), broker.broker.metrics
    latency = metrics.request_latency.child("Heartbeat")
    before = look.requests("Heartbeat"), sum(latency.counts)
    connect(broker).ask(ApiKey.HEARTBEAT, 4)
    look.until(lambda: sum(latency.counts) == before[1] + 1)
    assert look.requests("Heartbeat") == before[0] + 1
