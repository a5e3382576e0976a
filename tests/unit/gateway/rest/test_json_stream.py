"""Where JSON documents end in a stream that is cut anywhere."""

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.gateway.errors import HttpProblem
from penstock.gateway.rest.json_stream import DocumentSplitter

_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)
_DOCUMENTS = st.lists(st.dictionaries(st.text(), _VALUES, max_size=4), max_size=6)


@settings(deadline=None)
@given(_DOCUMENTS, st.sampled_from(["", "\n", " , ", "\r\n\t"]), st.data())
def test_the_cuts_make_no_difference(documents: list[Any], between: str, data: st.DataObject) -> None:
    text = between.join(json.dumps(one, ensure_ascii=data.draw(st.booleans())) for one in documents).encode()
    cuts = sorted(data.draw(st.lists(st.integers(0, len(text)), max_size=20)))
    splitter = DocumentSplitter(1_000_000)
    found: list[bytes] = []
    for start, end in zip([0, *cuts], [*cuts, len(text)], strict=True):
        found += splitter.feed(text[start:end])
    splitter.end()
    assert [json.loads(one) for one in found] == documents


def test_a_cut_after_a_backslash_is_a_cut_like_any_other() -> None:
    documents = [{'a"}': "}\\"}, {"\\": ["{", '"', {"[": '\\"'}]}]
    text = "".join(map(json.dumps, documents)).encode()
    for size in range(1, len(text)):
        splitter = DocumentSplitter(1000)
        pieces = [text[start : start + size] for start in range(0, len(text), size)]
        found = [one for piece in pieces for one in splitter.feed(piece)]
        splitter.end()
        assert [json.loads(one) for one in found] == documents, size


@pytest.mark.parametrize("text", [b"1", b"[{}]", b"}", b"{} x", b'"{}"', b"\xff"])
def test_what_is_no_object_is_refused_at_once(text: bytes) -> None:
    with pytest.raises(HttpProblem) as refused:
        DocumentSplitter(1000).feed(text)
    assert refused.value.status == 400


@pytest.mark.parametrize("text", [b"{", b'{"a": "}', b'{} {"a', b'{"\\'])
def test_half_an_object_at_the_end_is_told(text: bytes) -> None:
    splitter = DocumentSplitter(1000)
    splitter.feed(text)
    with pytest.raises(HttpProblem):
        splitter.end()


def test_an_object_without_end_is_not_kept_for_ever() -> None:
    splitter = DocumentSplitter(1000)
    assert splitter.feed(b"{}" * 10_000) == [b"{}"] * 10_000
    assert splitter.feed(b'{"a": "' + b"x" * 900) == []
    with pytest.raises(HttpProblem) as refused:
        splitter.feed(b"x" * 100)
    assert refused.value.status == 413
