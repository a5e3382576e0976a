"""The table of names that only some versions of a message have."""

from collections.abc import Iterator

import pytest

from penstock.wire.apis import APIS, Api
from penstock.wire.messages import load_entity
from penstock.wire.names import Kind, varying_names
from penstock.wire.schema import EntityType, field_specs


def names_of(entity: EntityType, path: str = "") -> Iterator[str]:
    for spec in field_specs(entity):
        yield path + spec.name
        if spec.entity is not None:
            yield from names_of(spec.entity, f"{path}{spec.name}.")


@pytest.mark.parametrize("kind", ["request", "response"])
@pytest.mark.parametrize("api", APIS, ids=lambda api: api.name)
def test_the_table_has_the_names_that_some_version_served_lacks_and_no_other(api: Api, kind: Kind) -> None:
    versions = [set(names_of(load_entity(api.key, version, kind))) for version in range(api.low, api.high + 1)]
    assert varying_names(api.key, kind) == set().union(*versions) - set.intersection(*versions)
