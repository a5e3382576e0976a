"""What a benchmark measured, and the same as a document for `--json`, which `penstock capacity --measured` reads.

Made by bench.sending, bench.receiving and bench.round_trip; shown by cli.bench_view.
"""

from dataclasses import dataclass, field
from typing import Any

from penstock.bench.histogram import Histogram

PERCENTILES = {"p50": 0.5, "p95": 0.95, "p99": 0.99, "p99_9": 0.999}
# Below this share of its time spent waiting for room in the queue, a sender was itself what limited the rate.
CLIENT_LIMITED_BELOW = 0.1
# A sender that is further behind than this at its end did not hold its rate; a sleeping thread wakes sooner.
BEHIND_S_MAX = 0.25


@dataclass(slots=True)
class Measurement:
    """One run, or as much of it as there was before it was stopped."""

    size_bytes: int = 0
    messages: int = 0
    received_bytes: int = 0
    failed: int = 0
    first_error: Any = None
    elapsed_s: float = 0.0
    # How long the sender waited for answers: because librdkafka's queue was full, and at the end.
    waited_s: float = 0.0
    # How late the next message of a fixed rate was when the sender ended.
    behind_s: float = 0.0
    # How long a consumer took to join its group.
    join_s: float | None = None
    histograms: dict[str, Histogram] = field(default_factory=dict[str, Histogram])

    @property
    def messages_per_s(self) -> float:
        return self.messages / self.elapsed_s if self.elapsed_s > 0 else 0.0

    @property
    def bytes_per_s(self) -> float:
        return self.received_bytes / self.elapsed_s if self.elapsed_s > 0 else 0.0

    def is_client_limited(self, asked_per_s: int | None) -> bool:
        """Whether more would have gone through had the client offered more."""
        if asked_per_s is not None:
            return False
        return self.messages > 0 and self.waited_s < self.elapsed_s * CLIENT_LIMITED_BELOW

    @property
    def is_behind(self) -> bool:
        """Whether the rate that was asked for was not held."""
        return self.behind_s > BEHIND_S_MAX

    def document(self) -> dict[str, Any]:
        found: dict[str, Any] = {
            "messages": self.messages,
            "failed": self.failed,
            "elapsed_s": round(self.elapsed_s, 6),
            "messages_per_s": round(self.messages_per_s, 3),
            "bytes_per_s": round(self.bytes_per_s, 3),
        }
        if self.behind_s:
            found["behind_s"] = round(self.behind_s, 6)
        if self.join_s is not None:
            found["join_s"] = round(self.join_s, 6)
        return found | {name: latency_document(held) for name, held in self.histograms.items()}


def latency_document(histogram: Histogram) -> dict[str, float | None]:
    """Milliseconds; null where nothing was measured."""
    found: dict[str, float | None] = {"avg_ms": _ms(histogram.mean_us)}
    for name, share in PERCENTILES.items():
        found[f"{name}_ms"] = _ms(histogram.percentile_us(share))
    return found | {"max_ms": _ms(histogram.max_us if histogram.count else None)}


def _ms(value_us: float | None) -> float | None:
    return None if value_us is None else round(value_us / 1000, 3)
