"""What a broker says of itself when it joins, and what it is told of who has its place already.

Called by membership, and by broker, which says who it is.
"""

import base64
import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from penstock.clock import Rng
from penstock.cluster.layout import Layout, decode, encode
from penstock.cluster.store import Get, MetadataStore, Put, created_at
from penstock.errors import PenstockError
from penstock.model import Endpoint, NodeId


class NodeIdInUse(PenstockError):
    """Another live broker, on another data directory, is registered under this node id."""

    def __init__(self, node_id: int, fields: Mapping[str, Any], ttl_s: float) -> None:
        self.node_id, self.endpoint = node_id, Endpoint(*fields["endpoint"])
        self.pid, self.host = int(fields["pid"]), str(fields.get("host", ""))
        super().__init__(
            f"node id {node_id} belongs to another broker at {self.endpoint} (pid {self.pid} on host "
            f"{self.host or 'unknown'}, another data directory): give this one its own id; if the other is gone for "
            f"good, its claim ends {ttl_s:g} s after its last sign of life"
        )


class NodeIdTaken(PenstockError):
    """Since this broker last joined, or said what it lost, another data directory has been this node."""

    def __init__(self, node_id: int) -> None:
        super().__init__(
            f"node id {node_id} was taken by another data directory while this broker was away: what the cluster knows "
            "of that node is no longer known of this one; restart it, and it joins as a new disk does"
        )
        self.node_id = node_id


@dataclass(frozen=True, slots=True)
class Registration:
    node_id: NodeId
    endpoint: Endpoint
    rack: str | None
    directory_id: UUID
    host: str = ""
    # One start of this broker; and what its disk knows of those before.
    life: str = ""
    former_lives: frozenset[str] = frozenset()

    @property
    def directory(self) -> str:
        """The data directory, as the store names it."""
        return str(self.directory_id)

    @property
    def storage(self) -> dict[str, str]:
        """What the store remembers of the disk when the broker is gone."""
        return {"directory": self.directory, "life": self.life}

    def value(self, *, is_stopping: bool) -> bytes:
        return encode(
            {
                "endpoint": [self.endpoint.host, self.endpoint.port],
                "rack": self.rack,
                "directory": self.directory,
                "pid": os.getpid(),
                "host": self.host,
                "stopping": is_stopping,
            }
        )


async def ensure_cluster_id(store: MetadataStore, layout: Layout, rng: Rng) -> str:
    """The cluster's id, made by whichever broker comes first: 22 characters, as Kafka prints a UUID."""
    mine = base64.urlsafe_b64encode(rng.uuid().bytes).decode().rstrip("=")
    result = await store.txn(
        [created_at(layout.cluster_id, 0)],
        [Put(layout.cluster_id, encode({"id": mine}))],
        [Get(layout.cluster_id)],
    )
    if result.ok:
        return mine
    (present,) = result.reads
    assert present is not None
    return decode(present.value)["id"]
