"""The table of APIs: complete, consistent with kio's layouts, and printed in docs/protocol.md."""

import subprocess
import sys
from pathlib import Path

import pytest

from penstock.wire.apis import APIS, BY_KEY, Api, ApiKey
from penstock.wire.messages import load_entity

REPOSITORY = Path(__file__).parents[3]


def test_every_key_has_one_row_and_every_row_its_key() -> None:
    assert len(APIS) == len(BY_KEY) == len(ApiKey)
    assert all(BY_KEY[key].key is key for key in ApiKey)


@pytest.mark.parametrize("api", APIS, ids=lambda api: api.name)
def test_kio_has_every_version_served_and_agrees_which_are_flexible(api: Api) -> None:
    for version in range(api.low, api.high + 1):
        for kind in ("request", "response"):
            entity = load_entity(api.key, version, kind)
            assert entity.__api_key__ == api.key
            assert entity.__flexible__ == api.is_flexible(version)
    assert not api.serves(api.low - 1)
    assert not api.serves(api.high + 1)


def test_produce_is_advertised_from_zero_so_that_librdkafka_compresses() -> None:
    produce = BY_KEY[ApiKey.PRODUCE]
    assert (produce.advertised_low, produce.low, produce.high) == (0, 3, 13)
    assert all(api.advertised_low == api.low for api in APIS if api is not produce)


def test_the_protocol_page_is_up_to_date() -> None:
    script = REPOSITORY / "scripts" / "protocol_table.py"
    result = subprocess.run([sys.executable, str(script), "--check"], capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
