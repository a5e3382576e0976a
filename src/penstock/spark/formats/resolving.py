"""Schemas found: from an option, a file or the registry, once, on the driver.

Called through `formats.resolve`. The reader's schema travels to the tasks inside the options, so a version that is
registered while a query runs changes nothing before its next start.
"""

from dataclasses import replace
from pathlib import Path

from penstock.spark.errors import BadOption
from penstock.spark.formats.options import FormatOptions, FoundSchema, PartOptions, RegistryOptions
from penstock.spark.formats.registry import RegistryFailed, registry_of

FILE_BYTES_MAX = 64 << 20

_KINDS = {"avro": "AVRO", "json": "JSON", "protobuf": "PROTOBUF"}


def resolve(options: FormatOptions) -> FormatOptions:
    return replace(options, value=_found(options.value, options.registry), key=_found(options.key, options.registry))


def _found(part: PartOptions, registry: RegistryOptions | None) -> PartOptions:
    if part.format in ("bytes", "string") or part.found is not None:
        return part
    if part.schema is not None:
        found = FoundSchema(text=part.schema)
    elif part.schema_file is not None:
        found = _from_file(part, part.schema_file)
    else:
        found = _from_registry(part, registry)
    return replace(part, found=found)


def _from_file(part: PartOptions, path: str) -> FoundSchema:
    option = f"{part.part}.schema.file"
    try:
        if Path(path).stat().st_size > FILE_BYTES_MAX:
            raise BadOption(f"{option} {path} is larger than {FILE_BYTES_MAX} bytes")
        raw = Path(path).read_bytes()
        if part.format != "protobuf":
            return FoundSchema(text=raw.decode())
    except (OSError, UnicodeDecodeError) as error:
        raise BadOption(f"{option} {path} cannot be read: {error}") from error
    from penstock.spark.formats.protobuf_schema import files_of_set

    return FoundSchema(files=files_of_set(raw, f"{option} {path}"))


def _from_registry(part: PartOptions, options: RegistryOptions | None) -> FoundSchema:
    # format_options has seen to both.
    assert options is not None
    assert part.subject is not None
    is_protobuf = part.format == "protobuf"
    found = registry_of(options).latest(part.subject, is_serialized=is_protobuf)
    if found.kind != _KINDS[part.format]:
        raise BadOption(
            f"subject {part.subject} holds a schema of type {found.kind}, but {part.part}.format is {part.format}"
        )
    if is_protobuf:
        from penstock.spark.formats.protobuf_schema import files_of_registry

        try:
            return FoundSchema(files=files_of_registry(found.text, found.references))
        except ValueError as error:
            raise RegistryFailed(f"the schema of subject {part.subject}: {error}") from error
    return FoundSchema(found.text, found.references)
