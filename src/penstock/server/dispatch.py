"""From a frame to its handler: one row per API, and the one place where unexpected failures are caught.

Called by server.connection for every frame. Every row names the resource and the operation its requests are to be
authorised for; a row without them does not exist (TRAPS S8).
"""

import asyncio
import inspect
import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from enum import Enum, auto
from typing import Any

from penstock.errors import ErrorCode, MalformedFrame, PenstockError
from penstock.handlers import configs, log_dirs, metadata, offsets, producer_ids, quotas, topics
from penstock.handlers.context import Answer, ConnectionState, HandlerContext, Hangup, RawRequest, Reply, Request
from penstock.handlers.fetch import handle_fetch
from penstock.handlers.produce import handle_produce
from penstock.metrics import Counter, Histogram
from penstock.wire.apis import APIS, BY_KEY, Api, ApiKey
from penstock.wire.frame import RequestHeader, parse_request_header, response_frame
from penstock.wire.messages import decode_request, encode_response

logger = logging.getLogger(__name__)

Body = Mapping[str, Any]
RawHandler = Callable[[HandlerContext, RawRequest], Answer]
Handler = Callable[[HandlerContext, Request], Body | Awaitable[Body]]


class Resource(Enum):
    NONE = auto()  # the bare protocol: what a client may ask before it says who it is
    TOPIC = auto()
    GROUP = auto()
    CLUSTER = auto()
    TRANSACTIONAL_ID = auto()


class Operation(Enum):
    NONE = auto()
    READ = auto()
    WRITE = auto()
    CREATE = auto()
    DELETE = auto()
    ALTER = auto()
    DESCRIBE = auto()
    DESCRIBE_CONFIGS = auto()
    ALTER_CONFIGS = auto()
    IDEMPOTENT_WRITE = auto()


@dataclass(frozen=True, slots=True)
class Route:
    resource: Resource
    operation: Operation
    handler: Handler | None = None
    raw: RawHandler | None = None


ROUTES: dict[ApiKey, Route] = {
    ApiKey.PRODUCE: Route(Resource.TOPIC, Operation.WRITE, raw=handle_produce),
    ApiKey.FETCH: Route(Resource.TOPIC, Operation.READ, raw=handle_fetch),
    ApiKey.API_VERSIONS: Route(Resource.NONE, Operation.NONE, metadata.handle_api_versions),
    ApiKey.METADATA: Route(Resource.TOPIC, Operation.DESCRIBE, metadata.handle_metadata),
    ApiKey.DESCRIBE_CLUSTER: Route(Resource.CLUSTER, Operation.DESCRIBE, metadata.handle_describe_cluster),
    ApiKey.DESCRIBE_TOPIC_PARTITIONS: Route(
        Resource.TOPIC, Operation.DESCRIBE, metadata.handle_describe_topic_partitions
    ),
    ApiKey.LIST_OFFSETS: Route(Resource.TOPIC, Operation.DESCRIBE, offsets.handle_list_offsets),
    ApiKey.OFFSET_FOR_LEADER_EPOCH: Route(Resource.TOPIC, Operation.DESCRIBE, offsets.handle_offset_for_leader_epoch),
    ApiKey.DELETE_RECORDS: Route(Resource.TOPIC, Operation.DELETE, offsets.handle_delete_records),
    ApiKey.INIT_PRODUCER_ID: Route(Resource.CLUSTER, Operation.IDEMPOTENT_WRITE, producer_ids.handle_init_producer_id),
    ApiKey.CREATE_TOPICS: Route(Resource.TOPIC, Operation.CREATE, topics.handle_create_topics),
    ApiKey.DELETE_TOPICS: Route(Resource.TOPIC, Operation.DELETE, topics.handle_delete_topics),
    ApiKey.CREATE_PARTITIONS: Route(Resource.TOPIC, Operation.ALTER, topics.handle_create_partitions),
    ApiKey.DESCRIBE_CONFIGS: Route(Resource.TOPIC, Operation.DESCRIBE_CONFIGS, configs.handle_describe_configs),
    ApiKey.ALTER_CONFIGS: Route(Resource.TOPIC, Operation.ALTER_CONFIGS, configs.handle_alter_configs),
    ApiKey.INCREMENTAL_ALTER_CONFIGS: Route(
        Resource.TOPIC, Operation.ALTER_CONFIGS, configs.handle_incremental_alter_configs
    ),
    ApiKey.LIST_CONFIG_RESOURCES: Route(
        Resource.CLUSTER, Operation.DESCRIBE_CONFIGS, configs.handle_list_config_resources
    ),
    ApiKey.DESCRIBE_CLIENT_QUOTAS: Route(
        Resource.CLUSTER, Operation.DESCRIBE_CONFIGS, quotas.handle_describe_client_quotas
    ),
    ApiKey.ALTER_CLIENT_QUOTAS: Route(Resource.CLUSTER, Operation.ALTER_CONFIGS, quotas.handle_alter_client_quotas),
    ApiKey.DESCRIBE_LOG_DIRS: Route(Resource.CLUSTER, Operation.DESCRIBE, log_dirs.handle_describe_log_dirs),
}


@dataclass(frozen=True, slots=True)
class Meter:
    """One API's counters, looked up once."""

    requests: Counter
    latency_ms: Histogram


class Dispatcher:
    def __init__(self, context: HandlerContext) -> None:
        self._context = context
        self._tasks: set[asyncio.Task[Reply]] = set()
        self._now = context.clock.monotonic
        metrics = context.metrics
        self._meters = {
            api.key.value: Meter(metrics.requests.child(api.name), metrics.request_latency.child(api.name))
            for api in APIS
        }
        self._meters[ApiKey.PRODUCE] = Meter(metrics.requests.child("Produce"), metrics.produce_latency)

    def handle(self, connection: ConnectionState, frame: memoryview) -> Answer:
        """Start one request. MalformedFrame: the sender speaks something else, and is hung up on."""
        started = self._now()
        header = parse_request_header(frame)
        answer = self._dispatch(connection, frame, header)
        meter = self._meters[header.api_key]
        meter.requests.value += 1
        ended = self._now()
        if isinstance(answer, asyncio.Future):
            answer.add_done_callback(lambda _: meter.latency_ms.observe((self._now() - started) * 1000))
        else:
            meter.latency_ms.observe((ended - started) * 1000)
        quota = self._context.quotas.request
        if quota is not None:
            # Told by muting only: the answer is already made, and its throttle time is that of its own quota.
            throttle_ms = quota.record(connection.principal, header.client_id, (ended - started) * 100, ended)
            connection.throttle(throttle_ms, "request", self._context.metrics)
        return answer

    def _dispatch(self, connection: ConnectionState, frame: memoryview, header: RequestHeader) -> Answer:
        api = BY_KEY.get(header.api_key)
        if api is None:
            raise MalformedFrame(f"API {header.api_key} is not served")
        if not api.serves(header.version):
            return _unsupported(api, header)
        route = ROUTES[api.key]
        if route.raw is not None:
            raw = RawRequest(
                header.version, header.correlation_id, header.client_id, connection, frame, header.body_offset
            )
            try:
                return route.raw(self._context, raw)
            except MalformedFrame:
                raise
            except Exception:
                logger.exception("%s v%d failed", api.name, header.version)
                return Hangup(f"{api.name} failed")
        if api.request_bytes_max is not None and len(frame) > api.request_bytes_max:
            raise MalformedFrame(f"{len(frame)} bytes of {api.name}; at most {api.request_bytes_max} are taken")
        body = decode_request(api.key, header.version, bytes(frame[header.body_offset :]))
        request = Request(api.key, header.version, header.client_id, connection, body)
        assert route.handler is not None
        try:
            answer = route.handler(self._context, request)
        except Exception as error:
            return _failure(api, header, error)
        if inspect.isawaitable(answer):
            return self._start(api, header, answer)
        return _frame(api, header, answer)

    async def close(self) -> None:
        """Give up what is still under way."""
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _start(self, api: Api, header: RequestHeader, answer: Awaitable[Body]) -> asyncio.Future[Reply]:
        async def finish() -> Reply:
            try:
                return _frame(api, header, await answer)
            except Exception as error:
                return _failure(api, header, error)

        task = asyncio.get_running_loop().create_task(finish())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task


def _frame(api: Api, header: RequestHeader, body: Body) -> bytes:
    encoded = encode_response(api.key, header.version, body)
    return response_frame(api.key, header.version, header.correlation_id, encoded)


def _unsupported(api: Api, header: RequestHeader) -> Reply:
    if api.key is not ApiKey.API_VERSIONS:
        raise MalformedFrame(f"{api.name} v{header.version} is not served; v{api.low} to v{api.high} are")
    # KIP-511: told in version 0, which every client reads, together with the versions it may try instead.
    body = {
        "error_code": ErrorCode.UNSUPPORTED_VERSION,
        "api_keys": [{"api_key": api.key, "min_version": api.low, "max_version": api.high}],
    }
    return response_frame(api.key, 0, header.correlation_id, encode_response(api.key, 0, body))


def _failure(api: Api, header: RequestHeader, error: Exception) -> Reply:
    """The answer to a request whose handler failed as a whole."""
    if isinstance(error, PenstockError):
        code, message = error.code, str(error)
    else:
        logger.error("%s v%d failed", api.name, header.version, exc_info=error)
        code, message = ErrorCode.UNKNOWN_SERVER_ERROR, "the broker failed; its log says how"
    try:
        return _frame(api, header, {"error_code": code, "error_message": message})
    except AssertionError:
        # This API has no place for an error of the whole request; the client will try elsewhere.
        return Hangup(f"{api.name} failed: {message}")
