"""Protobuf schemas: .proto source and descriptors, read, printed, compared, and used to check records.

Called through penstock.schemas.parse(); `serialized` by the registry for `format=serialized`. The walk of a schema:
tokens -> parser (declarations, ranges, option_syntax) -> linking (names) -> interpreting (options) -> checking ->
a descriptor pool of its own -> printer.
"""

from collections.abc import Sequence
from dataclasses import replace

from penstock.schemas.protobuf.compiling import compile_source
from penstock.schemas.protobuf.encoded import decode, docs_of, encode, is_encoded, is_same, source_of
from penstock.schemas.protobuf.imports import Imports
from penstock.schemas.protobuf.schema import ProtobufSchema
from penstock.schemas.schema import SCHEMA_BYTES_MAX, ParsedSchema, SchemaError

__all__ = ["ProtobufSchema", "parse_protobuf", "serialized"]


def parse_protobuf(text: str, references: Sequence[tuple[str, ParsedSchema]]) -> ParsedSchema:
    """The schema in `text`: .proto source, or a FileDescriptorProto in base64. Raises SchemaError."""
    if len(text) > SCHEMA_BYTES_MAX:
        raise SchemaError(f"the schema is longer than {SCHEMA_BYTES_MAX} bytes; split it and use references")
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise SchemaError("the schema holds half a character (a lone surrogate); send valid Unicode") from error
    given = [(name, _protobuf(name, schema).compiled) for name, schema in references]
    imports = Imports([(name, compiled.files, compiled.file) for name, compiled in given])
    if not is_encoded(text):
        return ProtobufSchema(compile_source(text, imports), imports)
    descriptor = decode(text)
    compiled = compile_source(source_of(descriptor, imports), imports)
    if not is_same(descriptor, compiled.file):
        raise SchemaError("the descriptor says something that no .proto source can say; register the source instead")
    return ProtobufSchema(replace(compiled, docs=docs_of(descriptor)), imports)


def serialized(schema: ParsedSchema) -> str:
    """The schema as a FileDescriptorProto in base64, without a name: its reader knows under which it is imported."""
    return encode(_protobuf("", schema).compiled.file)


def _protobuf(name: str, schema: ParsedSchema) -> ProtobufSchema:
    if not isinstance(schema, ProtobufSchema):
        raise SchemaError(f"the reference {name!r} is a schema of kind {schema.kind}, not PROTOBUF")
    return schema
