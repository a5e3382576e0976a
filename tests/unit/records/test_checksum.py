"""The checksum: Castagnoli's, whichever way its function was found."""

import importlib.machinery
from typing import Any

import crc32c as package
import pytest

from penstock.records import checksum

CHECK = 0xE3069283  # of the nine digits, as every description of CRC-32C gives it


@pytest.fixture(params=["compiled", "package"])
def crc32c(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Any:
    if request.param == "package":  # a release that is laid out otherwise
        monkeypatch.setattr(importlib.machinery.PathFinder, "find_spec", lambda *_: None)
    found = checksum._load_function()
    assert (found is package.crc32c) == (request.param == "package")
    return found


def test_it_is_the_checksum_of_record_batches(crc32c: Any) -> None:
    assert crc32c(b"123456789") == CHECK
    assert crc32c(memoryview(bytearray(b"x123456789"))[1:]) == CHECK
    assert crc32c(b"") == 0


def test_it_goes_on_from_what_came_before(crc32c: Any) -> None:
    assert crc32c(b"56789", crc32c(b"1234")) == CHECK
