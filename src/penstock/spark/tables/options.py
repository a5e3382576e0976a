"""The options of the table sinks: each described once, read once.

Called by open_sink, read_table and compact_table. Names are taken as a pipeline file, a Spark option or Python write
them: merge_schema, mergeSchema and merge-schema are one.
"""

import json
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple, cast, get_args

from penstock.spark.errors import BadOption
from penstock.spark.tables.model import Kind, Mode

_ALL = frozenset(get_args(Kind))
_FILES = frozenset(("delta", "iceberg", "parquet"))
_MODES = {"append": "append", "overwrite": "overwrite", "complete": "overwrite", "upsert": "upsert", "update": "upsert"}
_UPSERTING = frozenset(("delta", "postgres"))
_COMPRESSIONS = ("zstd", "snappy", "gzip", "lz4", "none")


class Option(NamedTuple):
    name: str
    kinds: frozenset[str]
    default: str
    text: str


OPTIONS = (
    Option("path", _FILES, "", "folder or URI of the table; for Iceberg the warehouse folder"),
    Option("url", frozenset(("postgres",)), "", "postgresql://user:password@host:port/database"),
    Option("table", frozenset(("iceberg", "postgres")), "", "name of the table, with its namespace or schema"),
    Option("mode", _ALL, "append", "append | overwrite (= complete) | upsert (= update; Delta and PostgreSQL)"),
    Option("keys", _UPSERTING, "", "columns that name a row, for upsert"),
    Option("order_by", _UPSERTING, "", "column whose highest value wins among rows of one key in one batch"),
    Option("partition_by", _FILES, "", "columns of text, whole numbers, dates or booleans"),
    Option("merge_schema", _ALL, "false", "add the new columns of a batch to the table instead of failing"),
    Option("on_old_batch", _ALL, "fail", "fail | skip a batch older than the last one stored"),
    Option("compression", _FILES, "zstd", " | ".join(_COMPRESSIONS)),
    Option("target_file_bytes", _FILES, str(256 << 20), "a task begins a new file past this size"),
    Option("storage_options", frozenset(("delta",)), "", "settings of the object store, as deltalake has them"),
    Option("catalog", frozenset(("iceberg",)), "", "properties of a pyiceberg catalog; without: SQLite in `path`"),
)


@dataclass(frozen=True)
class SinkOptions:
    kind: Kind
    path: str = ""
    # Holds a password, as those below may: none of them shows in a repr.
    url: str = field(default="", repr=False)
    table: str = ""
    mode: Mode = "append"
    keys: tuple[str, ...] = ()
    order_by: str = ""
    partition_by: tuple[str, ...] = ()
    merge_schema: bool = False
    on_old_batch: str = "fail"
    compression: str = "zstd"
    target_file_bytes: int = 256 << 20
    storage_options: dict[str, str] = field(default_factory=dict[str, str], repr=False)
    catalog: dict[str, str] = field(default_factory=dict[str, str], repr=False)


def sink_options(kind: str, options: Mapping[str, Any]) -> SinkOptions:
    """BadOption for a name nobody knows, a value that cannot be, or a choice this kind of table does not have."""
    if kind not in _ALL:
        raise BadOption(f"there is no table of kind {kind}: choose one of {', '.join(sorted(_ALL))}")
    by_name = {_squash(option.name): option for option in OPTIONS if kind in option.kinds}
    values: dict[str, Any] = {"kind": kind}
    for name, given in options.items():
        # catalog.uri=… in a flat map of options is the property uri of the catalog.
        group, dot, rest = name.partition(".")
        option = by_name.get(_squash(group if dot else name))
        if option is None or (dot and option.name not in ("catalog", "storage_options")):
            raise BadOption.unknown(name, [known.name for known in by_name.values()])
        if dot:
            values.setdefault(option.name, {})[rest] = str(given)
        elif given is not None:
            values[option.name] = _parse(option.name, given, values.get(option.name))
    parsed = SinkOptions(**values)
    _check(parsed)
    return parsed


def _parse(name: str, given: Any, so_far: Any) -> Any:
    match name:
        case "keys" | "partition_by":
            parts = cast(list[Any], given) if isinstance(given, list | tuple) else str(given).split(",")
            return tuple(str(part).strip() for part in parts if str(part).strip())
        case "merge_schema":
            return _truth(name, given)
        case "target_file_bytes":
            if not str(given).isdigit() or int(given) < 1:
                raise BadOption(f"target_file_bytes must be a whole number above 0, not {given}")
            return int(given)
        case "catalog" | "storage_options":
            return {**(so_far or {}), **_mapping(name, given)}
        case "path":
            return _absolute(str(given))
        case "mode":
            if str(given).lower() not in _MODES:
                raise BadOption(f"mode must be one of {', '.join(_MODES)}, not {given}")
            return _MODES[str(given).lower()]
        case _:
            return str(given)


def _absolute(path: str) -> str:
    """Tasks run in working folders of their own: what is relative means the driver's."""
    return path if not path or re.match(r"[A-Za-z][A-Za-z0-9+.-]+:", path) else os.path.abspath(path)


def _mapping(name: str, given: Any) -> dict[str, str]:
    if isinstance(given, str):
        try:
            given = json.loads(given)
        except ValueError:
            given = None
    if not isinstance(given, Mapping):
        raise BadOption(f"{name} must be a mapping of names to values, or such a one as JSON")
    return {str(key): str(value) for key, value in cast(Mapping[Any, Any], given).items()}


def _truth(name: str, given: Any) -> bool:
    text = str(given).lower()
    if text not in ("true", "false", "yes", "no", "1", "0"):
        raise BadOption(f"{name} must be true or false, not {given}")
    return text in ("true", "yes", "1")


def _check(options: SinkOptions) -> None:
    kind = options.kind
    if kind == "postgres":
        if not options.url.startswith(("postgresql://", "postgres://")):
            raise BadOption("a PostgreSQL table needs url=postgresql://user:password@host:port/database")
        if not options.table:
            raise BadOption("a PostgreSQL table needs table=name or table=schema.name")
    elif kind == "iceberg" and options.catalog:
        if not options.table:
            raise BadOption("an Iceberg table of a catalog needs table=namespace.name")
    elif not options.path:
        raise BadOption(f"a {kind} table needs path=FOLDER")
    if kind == "parquet" and re.match(r"[a-z][a-z0-9+.-]+://", options.path) and not options.path.startswith("file://"):
        raise BadOption(
            f"a parquet folder needs a file system that renames in one step, which {options.path} does not promise: "
            "use a delta or iceberg table there"
        )
    if options.on_old_batch not in ("fail", "skip"):
        raise BadOption(f"on_old_batch must be fail or skip, not {options.on_old_batch}")
    if options.compression not in _COMPRESSIONS:
        raise BadOption(f"compression must be one of {', '.join(_COMPRESSIONS)}, not {options.compression}")
    if options.mode == "upsert":
        if kind not in _UPSERTING:
            raise BadOption(f"a table of kind {kind} cannot upsert: use delta or postgres, or mode=append")
        if not options.keys:
            raise BadOption("mode=upsert needs keys=COLUMN,… that name a row")
    elif options.keys or options.order_by:
        raise BadOption(f"keys and order_by mean something with mode=upsert only, not with mode={options.mode}")


def _squash(name: str) -> str:
    return re.sub(r"[_\-]", "", name).lower()
