"""Names that differ in .proto source but not in JSON, nor in the constants of generated code.

Called by checking. Where JSON is only done as well as possible (proto2), fields may meet whose names nobody chose.
"""

from google.protobuf.descriptor_pb2 import DescriptorProto, EnumDescriptorProto

from penstock.schemas.protobuf.features import Features
from penstock.schemas.protobuf.parsed_file import ENUM_VALUE, MESSAGE_FIELD, ParsedFile, Path


def json_name(name: str) -> str:
    """What JSON calls a field that does not say it."""
    first, *rest = name.split("_")
    return first + "".join(part[:1].upper() + part[1:] for part in rest)


def check_json_names(parsed: ParsedFile, message: DescriptorProto, path: Path, features: Features) -> None:
    if message.options.map_entry or message.options.deprecated_legacy_json_field_conflicts:
        return
    # Once by the names that would be made, once by those in force.
    for is_chosen in (False, True):
        seen: dict[str, tuple[str, bool]] = {}
        for index, field in enumerate(message.field):
            chosen = is_chosen and field.HasField("json_name")
            name = field.json_name if chosen else json_name(field.name)
            other, other_chosen = seen.setdefault(name, (field.name, chosen))
            if other != field.name and (features.is_json_strict or (chosen and other_chosen)):
                parsed.refuse(
                    (*path, MESSAGE_FIELD, index),
                    f"{field.name!r} and {other!r} are both {name!r} in JSON; set json_name or rename one",
                )
    for index, field in enumerate(message.field):
        if field.HasField("json_name") and field.json_name[:1] == "[" and field.json_name[-1:] == "]":
            parsed.refuse((*path, MESSAGE_FIELD, index), "a json_name in brackets is kept for extensions")


def check_value_names(parsed: ParsedFile, enum: EnumDescriptorProto, path: Path, features: Features) -> None:
    if enum.options.deprecated_legacy_json_field_conflicts and not features.is_json_strict:
        return
    prefix = enum.name.replace("_", "").lower()
    seen: dict[str, tuple[str, int]] = {}
    for index, value in enumerate(enum.value):
        short = _camel(_without_prefix(value.name, prefix))
        other = seen.setdefault(short, (value.name, value.number))
        if other[0] != value.name and other[1] != value.number:
            parsed.refuse(
                (*path, ENUM_VALUE, index),
                f"{value.name} and {other[0]} are one name without the enum's own and in camel case; rename one",
            )


def _without_prefix(name: str, prefix: str) -> str:
    """A value's name without its enum's, underscores and case aside; the whole name where nothing would be left."""
    at = matched = 0
    while at < len(name) and matched < len(prefix):
        if name[at] != "_":
            if name[at].lower() != prefix[matched]:
                return name
            matched += 1
        at += 1
    rest = name[at:].lstrip("_")
    return rest if matched == len(prefix) and rest else name


def _camel(name: str) -> str:
    return "".join(part[:1].upper() + part[1:].lower() for part in name.split("_"))
