"""Which content type a caller gets, by what he accepts."""

import pytest
from starlette.requests import Request

from penstock.gateway.errors import HttpProblem, KafkaFailed
from penstock.gateway.rest.v2_media import body_format, choose_format, choose_media, in_v2

V2, JSON = "application/vnd.kafka.v2+json", "application/json"
AVRO, BINARY = "application/vnd.kafka.avro.v2+json", "application/vnd.kafka.binary.v2+json"


def _request(**headers: str) -> Request:
    raw = [(name.replace("_", "-").encode(), value.encode()) for name, value in headers.items()]
    return Request({"type": "http", "headers": raw, "path": "/", "method": "GET", "query_string": b""})


@pytest.mark.parametrize(
    ("accept", "media", "format_media"),
    [
        ("", V2, AVRO),
        ("*/*", V2, AVRO),
        ("application/*;q=0.5", V2, AVRO),
        (JSON, JSON, JSON),
        (f"{JSON};q=0.5, {V2}", V2, V2),
        (f"text/html, {JSON};q=0.1", JSON, JSON),
        ("application/vnd.kafka+json", V2, V2),
        (AVRO, V2, AVRO),
        (f"{BINARY}, {JSON};q=0.9", JSON, JSON),
        (BINARY, V2, 40601),
        ("text/html", 406, 406),
        (f"{V2};q=0", 406, 406),
        (f"{V2};q=x", 406, 406),
        (",,;;,", V2, AVRO),
    ],
)
def test_the_answers_type_is_what_is_accepted(accept: str, media: str | int, format_media: str | int) -> None:
    request = _request(accept=accept) if accept else _request()
    for choose, wanted in (
        (lambda: choose_media(request), media),
        (lambda: choose_format(request, "avro"), format_media),
    ):
        if isinstance(wanted, str):
            assert choose() == wanted
        else:
            with pytest.raises(HttpProblem) as refused:
                choose()
            assert (refused.value.status, refused.value.code) == (406, wanted)


@pytest.mark.parametrize(
    ("kind", "found"),
    [
        (AVRO, "avro"),
        (f"{BINARY}; charset=utf-8", "binary"),
        (V2, "binary"),
        (JSON.upper(), "binary"),
        ("text/plain", None),
    ],
)
def test_a_bodys_type_names_its_format(kind: str, found: str | None) -> None:
    request = _request(content_type=kind)
    if found is not None:
        assert body_format(request) == found
        return
    with pytest.raises(HttpProblem) as refused:
        body_format(request)
    assert refused.value.status == 415


@pytest.mark.parametrize(
    ("name", "is_retriable", "told"),
    [
        ("UNKNOWN_TOPIC_OR_PART", False, (404, 40401, {})),
        ("_STATE", False, (409, 40903, {})),
        ("_TIMED_OUT", True, (503, 50003, {"retry-after": "1"})),
        ("INVALID_CONFIG", False, (400, 40002, {})),
    ],
)
async def test_what_the_cluster_refuses_has_v2s_numbers_and_content_type(
    name: str, is_retriable: bool, told: tuple[int, int, dict[str, str]]
) -> None:
    async def ask() -> None:
        raise KafkaFailed(1, name, "no", is_retriable)

    with pytest.raises(HttpProblem) as refused:
        await in_v2(ask())
    problem = refused.value
    assert (problem.status, problem.code, problem.headers) == told
    assert problem.media_type == V2
