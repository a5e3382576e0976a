"""The last values clients pushed, as /metrics shows them: `org.apache.kafka.producer.record.send.total` of a client is
`mq_client_producer_record_send_total{client_id="…",client_instance_id="…"}`.

Called by handlers.telemetry (take, forget) and metrics.registry (families, when the page is read).
Invariants:
- However much clients invent: at most NAMES_MAX names, SERIES_MAX series, SERIES_PER_CLIENT_MAX of one instance.
- A counter never falls while its client lives: what comes as a difference is added up.
"""

import re
from collections.abc import Iterator
from uuid import UUID

from penstock.metrics import Counter
from penstock.metrics.registry import FreeFamily, FreeRow
from penstock.telemetry.otlp import Attributes, Point, Push

NAMES_MAX = 400
SERIES_MAX = 20_000
SERIES_PER_CLIENT_MAX = 500
NAME_PREFIX = "org.apache.kafka."
# Of what all points of a client share: one value for each client, and the one by which people look for it.
RESOURCE_LABELS = frozenset({"group_id", "transactional_id", "client_rack"})
_OWN_LABELS = frozenset({"client_id", "client_instance_id"})
_NO_NAME = re.compile(r"[^a-zA-Z0-9_]+")

Key = tuple[str, Attributes]


class ClientValues:
    def __init__(self, left_out: Counter) -> None:
        self._left_out = left_out
        self._clients: dict[UUID, tuple[Attributes, dict[Key, float]]] = {}
        self._names: dict[str, int] = {}  # how many series have it
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def take(self, instance_id: UUID, client_id: str, push: Push) -> None:
        shared = [("client_id", client_id), ("client_instance_id", str(instance_id))]
        shared += [(name, text) for name, text in push.resource if name in RESOURCE_LABELS]
        former = self._clients.get(instance_id)
        values = former[1] if former is not None else {}
        self._clients[instance_id] = (tuple(shared), values)
        self._left_out.value += push.left_out
        taken = {name for name, _ in shared}
        for point in push.points:
            self._keep(values, point, taken)

    def forget(self, instance_id: UUID) -> None:
        gone = self._clients.pop(instance_id, None)
        if gone is None:
            return
        self._count -= len(gone[1])
        for name, _ in gone[1]:
            self._names[name] -= 1
            if not self._names[name]:
                del self._names[name]

    def families(self) -> Iterator[FreeFamily]:
        rows: dict[str, list[FreeRow]] = {}
        for shared, values in self._clients.values():
            for (name, attributes), value in values.items():
                rows.setdefault(name, []).append(((*shared, *attributes), value))
        for name in sorted(rows):
            yield FreeFamily(name, "Pushed by clients (KIP-714).", rows[name])

    def _keep(self, values: dict[Key, float], point: Point, taken: set[str]) -> None:
        name = metric_name(point.name, is_counter=point.is_counter)
        labels = {label_name(each): text for each, text in point.attributes}
        key = (name, tuple((label, text) for label, text in labels.items() if label not in taken))
        known = values.get(key)
        if known is None:
            is_full = len(values) >= SERIES_PER_CLIENT_MAX or self._count >= SERIES_MAX
            if is_full or (name not in self._names and len(self._names) >= NAMES_MAX):
                self._left_out.value += 1
                return
            self._count += 1
            self._names[name] = self._names.get(name, 0) + 1
        values[key] = point.value + (known or 0) if point.is_delta and point.is_counter else point.value


def metric_name(name: str, *, is_counter: bool) -> str:
    """The name in Prometheus' spelling."""
    plain = _NO_NAME.sub("_", name.removeprefix(NAME_PREFIX)).strip("_").lower()
    spelled = f"mq_client_{plain}"
    return f"{spelled}_total" if is_counter and not spelled.endswith("_total") else spelled


def label_name(name: str) -> str:
    """A label's name in Prometheus' spelling; one of ours is not given to a client's attribute."""
    plain = _NO_NAME.sub("_", name).strip("_").lower() or "attribute"
    return f"pushed_{plain}" if plain[0].isdigit() or plain in _OWN_LABELS else plain
