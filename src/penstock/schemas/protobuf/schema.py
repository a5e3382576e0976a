"""A Protobuf schema: what parse_protobuf makes of source or of a descriptor.

Implements penstock.schemas.schema.ParsedSchema. Immutable: message classes are made when first needed and never
change. The parts do the work: printer, normalizing, comparing, payload, listing.
"""

from penstock.schemas.protobuf import comparing, listing
from penstock.schemas.protobuf.compiling import Compiled, compile_source
from penstock.schemas.protobuf.imports import DESCRIPTOR_FILE, Imports
from penstock.schemas.protobuf.normalizing import normalized
from penstock.schemas.protobuf.option_text import OptionPrinter
from penstock.schemas.protobuf.payload import Payloads
from penstock.schemas.protobuf.printer import print_file
from penstock.schemas.schema import DIFFERENCES_MAX, Field, Incompatible, Kind, ParsedSchema, kind_changed


class ProtobufSchema:
    def __init__(self, compiled: Compiled, imports: Imports) -> None:
        self.compiled = compiled
        self._imports = imports
        self._canonical = print_file(compiled.file, _option_printer(compiled))
        self._payloads = Payloads(compiled.file, compiled.pool)

    @property
    def kind(self) -> Kind:
        return "PROTOBUF"

    @property
    def canonical(self) -> str:
        return self._canonical

    def normalized(self) -> "ProtobufSchema":
        text = print_file(normalized(self.compiled.file), _option_printer(self.compiled))
        if text == self._canonical:
            return self
        return ProtobufSchema(compile_source(text, self._imports), self._imports)

    def differences(self, older: ParsedSchema) -> list[Incompatible]:
        if not isinstance(older, ProtobufSchema):
            return kind_changed(self, older)
        found = comparing.compare(older.compiled, self.compiled)
        return [one for one in found if one.kind not in comparing.COMPATIBLE][:DIFFERENCES_MAX]

    def validate(self, payload: memoryview) -> str | None:
        return self._payloads.validate(payload)

    def fields(self) -> list[Field]:
        return listing.fields(self.compiled)


def _option_printer(compiled: Compiled) -> OptionPrinter:
    # Without descriptor.proto nothing can extend an option.
    return OptionPrinter(compiled.pool if DESCRIPTOR_FILE in compiled.files else None, compiled.scope)
