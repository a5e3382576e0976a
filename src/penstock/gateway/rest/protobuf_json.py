"""Protobuf's JSON mapping to a framed value's payload and back: message indexes, then the message.

Called by rest.schemas, which imports it only for Protobuf schemas: the library is large.
Laws: what is written is the schema's first message, as Confluent's proxy does it; what is read is the one its indexes
name. Depth is bounded by the library's own limit.
"""

from collections.abc import Callable
from typing import Any, cast

from google.protobuf import json_format, message_factory
from google.protobuf.descriptor_pb2 import DescriptorProto

from penstock.gateway.rest.payloads import BadPayload
from penstock.schemas.protobuf.payload import read_indexes
from penstock.schemas.protobuf.schema import ProtobufSchema
from penstock.schemas.schema import ParsedSchema, SchemaError

DEPTH_MAX = 100
_FIRST_MESSAGE = b"\x00"


def writer(parsed: ParsedSchema) -> Callable[[Any], bytes]:
    assert isinstance(parsed, ProtobufSchema)
    message_class = _class(parsed, (0,))
    if message_class is None:
        raise SchemaError("it has no message")

    def write(data: Any) -> bytes:
        if not isinstance(data, dict):
            raise BadPayload("the data of a Protobuf message must be an object")
        try:
            made = json_format.ParseDict(cast("dict[str, Any]", data), message_class(), max_recursion_depth=DEPTH_MAX)
            return _FIRST_MESSAGE + made.SerializeToString()
        except Exception as fault:
            # ParseError for most, but odd values leave as whatever the library trips over.
            raise BadPayload(
                f"the data does not fit {message_class.DESCRIPTOR.full_name}: {str(fault)[:300]}"
            ) from None

    return write


def read(parsed: ParsedSchema, payload: memoryview) -> Any:
    """For bytes that validate() has found to be a value."""
    assert isinstance(parsed, ProtobufSchema)
    indexes, start = read_indexes(payload)
    message_class = _class(parsed, indexes)
    if message_class is None:
        raise BadPayload("its message indexes point to no message of the schema")
    try:
        return json_format.MessageToDict(
            message_class.FromString(bytes(payload[start:])), preserving_proto_field_name=True
        )
    except Exception as fault:
        # A google.protobuf.Any of a type nobody knows, a time outside the calendar.
        raise BadPayload(f"it cannot be told as JSON: {str(fault)[:300]}") from None


def _class(parsed: ProtobufSchema, indexes: tuple[int, ...]) -> Any:
    file = parsed.compiled.file
    names = [file.package] if file.package else []
    level: list[DescriptorProto] = list(file.message_type)
    for index in indexes:
        if index >= len(level):
            return None
        names.append(level[index].name)
        level = list(level[index].nested_type)
    pool: Any = parsed.compiled.pool
    return message_factory.GetMessageClass(pool.FindMessageTypeByName(".".join(names)))
