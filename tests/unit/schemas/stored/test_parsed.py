"""What keeps parsed schemas small in memory, whoever asks for them."""

from collections.abc import Sequence

import pytest

from penstock.schemas.schema import ParsedSchema, parse
from penstock.schemas.stored import parsed as parsed_module
from penstock.schemas.stored.closure import Step
from penstock.schemas.stored.parsed import ParsedSchemas


def test_parsed_schemas_are_kept_while_they_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parsed_module, "PARSED_MAX", 3)
    parsed: list[tuple[str, bool]] = []

    def counts(kind: str, text: str, references: Sequence[tuple[str, ParsedSchema]], *, is_new: bool) -> ParsedSchema:
        parsed.append((text, is_new))
        return parse(kind, text, references, is_new=is_new)

    schemas = ParsedSchemas(counts)
    steps = [Step(number, "AVRO", f'{{"type":"fixed","name":"F","size":{number}}}', ()) for number in range(1, 5)]
    for step in (steps[0], steps[1], steps[2], steps[0], steps[3]):
        schemas.parse_now((step,))
    assert len(parsed) == 4
    assert schemas.kept((steps[0],)) is not None, "used last, it stays"
    assert schemas.kept((steps[1],)) is None

    monkeypatch.setattr(parsed_module, "PARSED_BYTES_MAX", 0)
    schemas.parse_now((steps[1],))
    assert schemas.kept((steps[1],)) is None
    schemas.parse_now((Step(None, "AVRO", '"int"', ()),))
    schemas.parse_now((Step(None, "AVRO", '"int"', ()),))
    assert parsed[-2:] == [('"int"', True)] * 2, "what is not registered is not kept"
    assert not any(is_new for _, is_new in parsed[:-2]), "what a registry took stays readable"
