"""Base64, JSON and text, in and out."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.gateway.rest.payloads import DECODERS, ENCODERS, BadPayload

_JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@settings(deadline=None)
@given(st.one_of(st.none(), st.binary()), _JSON, st.one_of(st.none(), st.text()))
def test_what_goes_in_comes_out(raw: bytes | None, data: Any, text: str | None) -> None:
    assert ENCODERS["binary"](DECODERS["binary"](raw)) == raw
    assert DECODERS["json"](ENCODERS["json"](data)) == data
    assert DECODERS["string"](ENCODERS["string"](text)) == text


@pytest.mark.parametrize("data", [1, [], "a", "a===", "ä", "YQ=", "Y Q==", "YQ==x"])
def test_what_is_no_base64_is_refused(data: Any) -> None:
    with pytest.raises(BadPayload):
        ENCODERS["binary"](data)


def test_what_can_be_read_but_is_nested_too_deeply_to_be_written_is_refused() -> None:
    data: Any = []
    for _ in range(300):
        data = [data]
    with pytest.raises(BadPayload, match="Recursion limit"):
        ENCODERS["json"](data)
