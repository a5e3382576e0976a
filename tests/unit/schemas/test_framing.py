"""The five bytes before a value."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.schemas import join_frame, split_frame


@settings(deadline=None)
@given(st.integers(0, 2**31 - 1), st.binary(max_size=20))
def test_what_is_framed_comes_apart_again(schema_id: int, payload: bytes) -> None:
    found = split_frame(memoryview(join_frame(schema_id, payload)))
    assert found is not None
    assert (found[0], bytes(found[1])) == (schema_id, payload)


def test_the_bytes_are_those_of_every_client() -> None:
    assert join_frame(258, b"x") == b"\x00\x00\x00\x01\x02x"


@pytest.mark.parametrize(
    "value", [b"", b"\x00\x00\x00\x00", b"\x01\x00\x00\x00\x01x", b"{}   ", b"\x00\xff\xff\xff\xff"]
)
def test_other_bytes_are_no_framed_value(value: bytes) -> None:
    assert split_frame(memoryview(value)) is None
