"""Where each fact lives in the metadata store, and how it is written there.

Called by image and by everybody who writes metadata. Keys are paths under /penstock/<cluster>/, values are JSON.

    brokers/<id>              leased: endpoint, rack, directory, whether it is stopping; mod revision = broker epoch
    storage/<id>              the data directory this broker last joined with, and in which life: another directory
                              means a new disk, another life one put back from a copy
    controller                leased: broker id; create revision = fencing token
    controller-epoch          counter
    cluster-id                22 characters, as Kafka prints them
    topics/<name>             id, number of partitions, configs; a topic exists exactly as long as this key
    partitions/<id>/<n>       leader, leader epoch, ISR, replicas, who else may lead, a running reassignment
    creating/<id>             leased: partitions of this topic are being written ahead of the topic's own key
    configs/<kind>/<name>     overrides of a broker ("" = all brokers) or a group; a client metrics subscription
    quotas/<entity>           limits of a user, client id or address
    ids/producer              first producer id not handed out yet
"""

import json
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote, unquote
from uuid import UUID

# A quota's entity: pairs of type ("user", "client-id", "ip") and name; None stands for "all others of this type".
QuotaEntity = frozenset[tuple[str, str | None]]

_ALL_OTHERS = "<default>"


class Layout:
    __slots__ = ("cluster_id", "controller", "controller_epoch", "prefix", "producer_ids")

    def __init__(self, cluster: str = "default") -> None:
        self.prefix = f"/penstock/{cluster}/"
        self.controller = f"{self.prefix}controller"
        self.controller_epoch = f"{self.prefix}controller-epoch"
        self.cluster_id = f"{self.prefix}cluster-id"
        self.producer_ids = f"{self.prefix}ids/producer"

    def broker(self, node_id: int) -> str:
        return f"{self.prefix}brokers/{node_id}"

    def storage(self, node_id: int) -> str:
        return f"{self.prefix}storage/{node_id}"

    def creating(self, topic_id: UUID) -> str:
        return f"{self.prefix}creating/{topic_id.hex}"

    def topic(self, name: str) -> str:
        return f"{self.prefix}topics/{name}"

    def partition(self, topic_id: UUID, index: int) -> str:
        return f"{self.prefix}partitions/{topic_id.hex}/{index}"

    def config(self, kind: str, name: str) -> str:
        return f"{self.prefix}configs/{kind}/{quote(name, safe='')}"

    def quota(self, entity: QuotaEntity) -> str:
        named = sorted((kind, _ALL_OTHERS if name is None else quote(name, safe="")) for kind, name in entity)
        return f"{self.prefix}quotas/{','.join(f'{kind}={name}' for kind, name in named)}"

    def split(self, key: str) -> tuple[str, str]:
        """The family a key belongs to and the rest of its path."""
        assert key.startswith(self.prefix), key
        family, _, rest = key[len(self.prefix) :].partition("/")
        return family, rest


def parse_config_path(rest: str) -> tuple[str, str]:
    kind, _, name = rest.partition("/")
    return kind, unquote(name)


def parse_quota_path(rest: str) -> QuotaEntity:
    # quote() escapes "<", "," and "=", so neither the stand-in nor the separators can be part of a name.
    pairs = (part.partition("=") for part in rest.split(","))
    return frozenset((kind, None if name == _ALL_OTHERS else unquote(name)) for kind, _, name in pairs)


def encode(value: Mapping[str, Any]) -> bytes:
    return json.dumps(value, separators=(",", ":"), sort_keys=True).encode()


def decode(value: bytes) -> dict[str, Any]:
    # Text, not bytes: json would first guess the encoding, which costs as much as reading a small value.
    return json.loads(value.decode())
