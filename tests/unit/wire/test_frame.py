"""Request headers and response frames: which versions carry tagged fields, and what a bad header does."""

import pytest

from penstock.errors import MalformedFrame
from penstock.wire.apis import ApiKey
from penstock.wire.frame import parse_request_header, request_frame, response_frame

METADATA_9_NO_BODY = request_frame(ApiKey.METADATA, 9, 5, "café", b"")[4:]


def test_a_header_before_flexible_versions_ends_with_the_client_id() -> None:
    frame = request_frame(ApiKey.METADATA, 8, 5, "café", b"body")[4:]
    header = parse_request_header(memoryview(frame))
    assert header[:4] == (3, 8, 5, "café")
    assert frame[header.body_offset :] == b"body"


def test_a_flexible_header_has_tagged_fields_which_are_skipped() -> None:
    head = request_frame(ApiKey.METADATA, 9, 5, None, b"")[4:-1]
    tags = b"\x02\x00\x03abc\x07\x00"  # two fields: tag 0 of three bytes, tag 7 of none
    frame = head + tags + b"body"
    header = parse_request_header(memoryview(frame))
    assert header[:4] == (3, 9, 5, None)
    assert frame[header.body_offset :] == b"body"


def test_the_header_of_an_api_we_do_not_serve_can_still_be_answered() -> None:
    header = parse_request_header(memoryview(b"\x03\xe7\x00\x09\x00\x00\x00\x05\x00\x01x\x00rest"))
    assert header[:4] == (999, 9, 5, "x")


def test_the_header_of_a_newer_api_versions_can_still_be_answered() -> None:
    frame = request_frame(ApiKey.API_VERSIONS, 99, 5, "x", b"whatever")[4:]
    assert parse_request_header(memoryview(frame))[:4] == (18, 99, 5, "x")


@pytest.mark.parametrize("cut", range(len(METADATA_9_NO_BODY)))
def test_a_header_cut_anywhere_is_malformed(cut: int) -> None:
    with pytest.raises(MalformedFrame):
        parse_request_header(memoryview(METADATA_9_NO_BODY[:cut]))


@pytest.mark.parametrize(
    "tail",
    [
        b"\xff\xfe\x00",  # client id of -2 bytes
        b"\x7f\xffx",  # client id past the frame
        b"\x00\x01\xff\x00",  # not UTF-8
        b"\xff\xff\x01\x00\x7fx",  # a tagged field past the frame
        b"\xff\xff\xff\xff\xff\xff\x0f",  # four billion tagged fields
        b"\xff\xff\x80\x80\x80\x80\x80\x00",  # a varint of six bytes
        b"\xff\xff\x80\x80\x80\x80\x70",  # a varint of 35 bits
    ],
)
def test_a_header_that_lies_is_malformed(tail: bytes) -> None:
    with pytest.raises(MalformedFrame):
        parse_request_header(memoryview(b"\x00\x03\x00\x09\x00\x00\x00\x05" + tail))


def test_only_flexible_responses_have_tagged_fields_in_their_header() -> None:
    assert response_frame(ApiKey.METADATA, 8, 5, b"body") == b"\x00\x00\x00\x08\x00\x00\x00\x05body"
    assert response_frame(ApiKey.METADATA, 9, 5, b"body") == b"\x00\x00\x00\x09\x00\x00\x00\x05\x00body"


@pytest.mark.parametrize("version", range(5))
def test_an_api_versions_response_never_has_tagged_fields_in_its_header(version: int) -> None:
    frame = response_frame(ApiKey.API_VERSIONS, version, 5, b"body")
    assert frame == b"\x00\x00\x00\x08\x00\x00\x00\x05body"
