"""Settings of topics, brokers and groups, and quotas: read, altered, written back by compare-and-swap.

Called by controller. What an alteration means is in overrides.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from penstock.cluster.feed import ImageFeed
from penstock.cluster.fenced_writes import FencedWrites
from penstock.cluster.layout import QuotaEntity, decode, encode
from penstock.cluster.overrides import ConfigChange, ConfigResource, altered_configs, altered_quotas, replaced_configs
from penstock.cluster.store import Ambiguous, Delete, KeyValue, MetadataStore, Put, modified_at
from penstock.config import BrokerConfig
from penstock.config.setting import Scope
from penstock.errors import InvalidConfig, InvalidRequest, UnknownTopicOrPartition

# Each round lost means that another writer won one; only a storm of them gets this far.
SWAP_ROUNDS_MAX = 20
VALUE_BYTES_MAX = 500_000


class SettingChanges:
    def __init__(self, store: MetadataStore, feed: ImageFeed, writes: FencedWrites, config: BrokerConfig) -> None:
        self._store = store
        self._feed = feed
        self._layout = feed.image.layout
        self._writes = writes
        self._config = config

    async def alter(self, resource: ConfigResource, changes: Sequence[ConfigChange], *, validate_only: bool) -> None:
        await self._rewrite(
            resource, lambda stored: altered_configs(resource, stored, changes), validate_only=validate_only
        )

    async def replace(
        self, resource: ConfigResource, configs: Mapping[str, str | None], *, validate_only: bool
    ) -> None:
        await self._rewrite(resource, lambda _: replaced_configs(resource, configs), validate_only=validate_only)

    async def alter_client_quotas(
        self, entity: QuotaEntity, changes: Mapping[str, float | None], *, validate_only: bool
    ) -> None:
        def rewrite(present: KeyValue | None) -> Mapping[str, Any] | None:
            return altered_quotas(entity, decode(present.value) if present else {}, changes) or None

        await self._swap(self._layout.quota(entity), rewrite, validate_only=validate_only)

    async def _rewrite(
        self,
        resource: ConfigResource,
        rewrite: Callable[[Mapping[str, str]], dict[str, str]],
        *,
        validate_only: bool,
    ) -> None:
        def rewrite_topic(present: KeyValue | None) -> Mapping[str, Any]:
            if present is None:
                raise UnknownTopicOrPartition(f"there is no topic {resource.name!r}")
            fields = decode(present.value)
            configs = rewrite(fields["configs"])
            self._config.check_topic(configs)
            return {**fields, "configs": configs}

        def rewrite_own_key(present: KeyValue | None) -> Mapping[str, Any] | None:
            configs = rewrite(decode(present.value) if present else {})
            if resource.scope is Scope.GROUP:
                self._config.check_group(configs)
            return configs or None

        if resource.scope is Scope.TOPIC:
            await self._swap(self._layout.topic(resource.name), rewrite_topic, validate_only=validate_only)
            return
        if resource.scope is Scope.BROKER and resource.name and not resource.name.isdecimal():
            raise InvalidRequest(f"{resource.name!r} is no broker id")
        if resource.scope is Scope.GROUP and not resource.name:
            raise InvalidRequest("a group's settings need the name of the group")
        if resource.scope is Scope.CLIENT_METRICS and not resource.name:
            raise InvalidRequest("a client metrics subscription needs a name")
        key = self._layout.config(resource.scope.value, resource.name)
        await self._swap(key, rewrite_own_key, validate_only=validate_only)

    async def _swap(
        self, key: str, rewrite: Callable[[KeyValue | None], Mapping[str, Any] | None], *, validate_only: bool
    ) -> None:
        """Read, rewrite, compare-and-swap; None from `rewrite` means that the key should not be there."""
        present = await self._store.get(key)
        for _ in range(SWAP_ROUNDS_MAX):
            fields = rewrite(present)
            value = None if fields is None else encode(fields)
            if value is not None and len(value) > VALUE_BYTES_MAX:
                raise InvalidConfig(f"{len(value)} bytes of settings, {VALUE_BYTES_MAX} allowed")
            if validate_only:
                return
            if value == (present.value if present else None):
                await self._feed.reached(present.mod_revision if present else 0)
                return
            result = await self._writes.commit(
                [modified_at(key, present.mod_revision if present else 0)],
                [Delete(key) if value is None else Put(key, value)],
                [key],
            )
            if result.ok:
                await self._feed.reached(result.revision)
                return
            present = result.reads[0]
        raise Ambiguous(f"{key} kept changing")
