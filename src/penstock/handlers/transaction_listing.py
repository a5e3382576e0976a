"""Transactions as operators see them: DescribeTransactions, ListTransactions, DescribeProducers (KIP-664).

Called by server.dispatch. What is open, since when, and which producer keeps committed readers of a partition waiting.
"""

from collections.abc import Mapping
from typing import Any

from penstock.cluster.topic_plan import check_name
from penstock.errors import ErrorCode, PenstockError
from penstock.groups.subscription_regex import compile_pattern
from penstock.handlers.context import HandlerContext, Request
from penstock.transactions.transaction import State

Body = Mapping[str, Any]

STATES = frozenset(state.label for state in State)


def handle_describe_producers(context: HandlerContext, request: Request) -> Body:
    # A partition named twice is described once: it may have thousands of producers.
    indexes: dict[str, dict[int, None]] = {}
    for topic in request.body.topics:
        indexes.setdefault(topic.name, {}).update(dict.fromkeys(topic.partition_indexes))
    return {
        "topics": [
            {"name": name, "partitions": [_producers(context, name, index) for index in wanted]}
            for name, wanted in indexes.items()
        ]
    }


def _producers(context: HandlerContext, name: str, index: int) -> Body:
    try:
        check_name(name)
        states = context.replicas.find(name, index).log.producer_states()
    except PenstockError as error:
        return {"partition_index": index, "error_code": error.code, "error_message": str(error)}
    return {
        "partition_index": index,
        "error_code": ErrorCode.NONE,
        "active_producers": [
            {
                "producer_id": state.producer_id,
                "producer_epoch": state.producer_epoch,
                "last_sequence": state.last_sequence,
                "last_timestamp": state.last_timestamp,
                "coordinator_epoch": state.coordinator_epoch,
                "current_txn_start_offset": state.current_txn_start_offset,
            }
            for state in states
        ],
    }


def handle_describe_transactions(context: HandlerContext, request: Request) -> Body:
    transactional_ids = dict.fromkeys(request.body.transactional_ids)
    return {"transaction_states": [_described(context, transactional_id) for transactional_id in transactional_ids]}


def _described(context: HandlerContext, transactional_id: str) -> Body:
    try:
        found = context.transactions.describe(transactional_id)
    except PenstockError as error:
        return {"error_code": error.code, "transactional_id": transactional_id}
    topics: dict[str, list[int]] = {}
    for at in found.partitions:
        topics.setdefault(at.topic, []).append(at.partition)
    return {
        "error_code": ErrorCode.NONE,
        "transactional_id": transactional_id,
        "transaction_state": found.state,
        "transaction_timeout": found.timeout_ms,
        "transaction_start_time": found.started_ms,
        "producer_id": found.producer_id,
        "producer_epoch": found.producer_epoch,
        "topics": [{"topic": name, "partitions": indexes} for name, indexes in topics.items()],
    }


def handle_list_transactions(context: HandlerContext, request: Request) -> Body:
    body = request.body
    pattern: str | None = getattr(body, "transactional_id_pattern", None)
    try:
        compiled = compile_pattern(pattern) if pattern else None
        found = context.transactions.list_transactions(
            frozenset(body.producer_id_filters),
            frozenset(body.state_filters),
            getattr(body, "duration_filter", -1),
            None if compiled is None else lambda name: compiled.fullmatch(name) is not None,
        )
    except PenstockError as error:
        return {"error_code": error.code}
    return {
        "error_code": ErrorCode.NONE,
        "unknown_state_filters": [name for name in dict.fromkeys(body.state_filters) if name not in STATES],
        "transaction_states": [
            {
                "transactional_id": transaction.transactional_id,
                "producer_id": transaction.producer_id,
                "transaction_state": transaction.state,
            }
            for transaction in found
        ],
    }
