"""What librdkafka is told: the user's settings, ours where the user is silent, and what no user may change.

Called by producing.py in workers, and by the writers in the driver so that a setting that breaks the promise is refused
before anything runs.
"""

from typing import TYPE_CHECKING

from penstock.spark.errors import BadOption

if TYPE_CHECKING:
    from penstock.spark.options import WriteOptions

DELIVERY_TIMEOUT_MS = 120_000

# Throughput before latency: a task is over when all of it is flushed, which does not wait for linger.
_DEFAULTS = {
    "linger.ms": "20",
    "batch.size": str(1 << 20),
    "batch.num.messages": "100000",
    "queue.buffering.max.messages": "500000",
    "queue.buffering.max.kbytes": str(64 << 10),
    # As Java's producers place keys, and so Spark's own connector.
    "partitioner": "murmur2_random",
    "client.id": "penstock-spark",
}
# Two names of one setting.
_ALIASES = {
    "request.required.acks": "acks",
    "delivery.timeout.ms": "message.timeout.ms",
    "queue.buffering.max.ms": "linger.ms",
    "compression.codec": "compression.type",
}
_DURABLE_ACKS = ("all", "-1")


def producer_config(options: "WriteOptions", transactional_id: str | None) -> dict[str, str]:
    """The settings of one producer; without an id, of one that writes at least once."""
    given = {_ALIASES.get(name, name): value for name, value in options.librdkafka.items()}
    check(given)
    chosen = {**_DEFAULTS, **given, "enable.idempotence": "true", "acks": "all"}
    chosen["message.timeout.ms"] = str(delivery_timeout_ms(options))
    chosen.pop("transaction.timeout.ms", None)
    if transactional_id is not None:
        chosen["transactional.id"] = transactional_id
        chosen["transaction.timeout.ms"] = str(transaction_timeout_ms(options))
    return chosen


def check(given: dict[str, str]) -> None:
    """Refuse what would break the promise. Rows are never written in a way that may lose or double them unsaid."""
    if given.get("enable.idempotence", "true").strip().lower() in ("false", "f", "0"):
        raise BadOption("kafka.enable.idempotence=false would double rows when a broker is slow: leave it out")
    if given.get("acks", "all").strip().lower() not in _DURABLE_ACKS:
        raise BadOption(f"kafka.acks={given['acks']} would lose rows when a broker is lost: leave it out, or set all")
    if "transactional.id" in given:
        raise BadOption(
            "kafka.transactional.id cannot be set, since every task needs one of its own: "
            "set transactional.id.prefix, or delivery=at-least-once"
        )


def delivery_timeout_ms(options: "WriteOptions") -> int:
    """How long brokers may be silent before the task gives up."""
    given = options.librdkafka.get("delivery.timeout.ms") or options.librdkafka.get("message.timeout.ms")
    wanted = _milliseconds("kafka.delivery.timeout.ms", given) if given else DELIVERY_TIMEOUT_MS
    if options.delivery == "exactly-once":
        # librdkafka refuses to wait longer for a record than its transaction may take.
        return min(wanted, transaction_timeout_ms(options))
    return wanted


def transaction_timeout_ms(options: "WriteOptions") -> int:
    given = options.librdkafka.get("transaction.timeout.ms")
    return _milliseconds("kafka.transaction.timeout.ms", given) if given else options.transaction_timeout_ms


def _milliseconds(name: str, text: str) -> int:
    if not text.strip().isdecimal() or int(text) < 1000:
        raise BadOption(f"{name} is {text}; it must be a number of milliseconds of at least 1000")
    return int(text)
