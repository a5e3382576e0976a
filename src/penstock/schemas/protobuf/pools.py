"""A descriptor pool per schema, filled by the protobuf library itself: the last judge of a schema.

Used by compiling (custom options), schema (values) and the printer. No pool is shared: two schemas may well disagree
about a name.
"""

from typing import Any

from google.protobuf import descriptor_pool
from google.protobuf.descriptor_pb2 import DescriptorProto, FileDescriptorProto

from penstock.schemas.protobuf.imports import DESCRIPTOR_FILE, Files, known_file
from penstock.schemas.schema import SchemaError

_OWN_NAME = "schema.proto"


def own_name(files: Files) -> str:
    """A name for the schema's own file that none of its imports has."""
    name = _OWN_NAME
    while name in files:
        name = f"_{name}"
    return name


def build_pool(file: FileDescriptorProto, files: Files, *, has_options: bool = False) -> Any:
    """`files`: all that `file` imports, each after what it needs. `has_options`: the pool is to know descriptor.proto,
    whether or not the schema imports it."""
    wanted: list[FileDescriptorProto] = []
    if has_options and DESCRIPTOR_FILE not in files:
        known = known_file(DESCRIPTOR_FILE)
        assert known is not None
        wanted.append(known)
    for name, needed in (*files.items(), (own_name(files), file)):
        named = FileDescriptorProto()
        named.CopyFrom(needed)
        named.name = name
        wanted.append(named)
    try:
        try:
            return _filled(wanted)
        except TypeError as error:
            if "json_name" not in str(error):
                raise
            # proto2 lets fields share a name in JSON, the library does not. Nothing here reads or writes JSON.
            for named in wanted:
                for message in named.message_type:
                    _use_names_in_json(message)
            return _filled(wanted)
    except (TypeError, KeyError, ValueError) as error:
        reason = str(error).replace("Couldn't build proto file into descriptor pool: ", "").strip()
        raise SchemaError(f"the schema and its imports do not fit together: {reason}") from error


def _filled(files: list[FileDescriptorProto]) -> Any:
    pool: Any = descriptor_pool.DescriptorPool()
    for file in files:
        pool.AddSerializedFile(file.SerializeToString())
    # Some of the library's checks wait until a file is asked for.
    pool.FindFileByName(files[-1].name)
    return pool


def _use_names_in_json(message: DescriptorProto) -> None:
    for field in message.field:
        field.json_name = field.name
    for nested in message.nested_type:
        _use_names_in_json(nested)
