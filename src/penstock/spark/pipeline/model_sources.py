"""What a pipeline file may say of a source: topics, files, or a PostgreSQL table.

Called by pipeline.model. A source says exactly one of topic, topics, pattern, files and postgres.
"""

from datetime import datetime
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from penstock.spark.offsets import parse_per_partition
from penstock.spark.pipeline.durations import DurationMs

Scalar = str | int | float | bool


class Strict(BaseModel):
    """A name that is not known is a mistake, never passed over."""

    model_config = ConfigDict(extra="forbid", frozen=True)


def only_one(holder: Any, names: tuple[str, ...]) -> str:
    """The one of the names that is set; ValueError where none or several are."""
    given = [name for name in names if getattr(holder, name) is not None]
    if len(given) != 1:
        found = " and ".join(f"`{name}`" for name in given) if given else "none of them"
        raise ValueError(f"give exactly one of {', '.join(names)}; here is {found}")
    return given[0]


def start_options(text: str) -> dict[str, str]:
    """`earliest`, `latest`, offsets as JSON, or a date and time, in the source's words; ValueError for all else."""
    if text.lower() in {"earliest", "latest"}:
        return {"startingOffsets": text.lower()}
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        pass
    else:
        if moment.tzinfo is None:
            raise ValueError(f"a time needs its zone; write it as {moment.isoformat()}Z or with an offset")
        moment_ms = int(moment.timestamp() * 1000)
        return {"startingTimestamp": str(moment_ms), "startingOffsetsByTimestampStrategy": "latest"}
    try:
        parse_per_partition("start", text, -2)
    except ValueError:
        example = '{"orders":{"0":23,"1":-2}}'
        raise ValueError(
            f"write `earliest`, `latest`, a time as 2026-03-01T00:00:00Z, or offsets as {example}"
        ) from None
    return {"startingOffsets": text}


class Watermark(Strict):
    """Rows later than `delay` behind the newest event time may be dropped, and state older than that is let go."""

    column: str
    delay: DurationMs

    @model_validator(mode="after")
    def _is_a_column(self) -> "Watermark":
        if "." in self.column:
            raise ValueError("a watermark needs a column, not a field in one; select it under a name of its own first")
        return self


class Files(Strict):
    path: str
    format: Literal["json", "csv", "parquet"]
    schema_: str | None = Field(None, alias="schema")
    stream: bool = False
    options: dict[str, Scalar] = Field(default_factory=dict[str, Scalar])

    @model_validator(mode="after")
    def _knows_its_columns(self) -> "Files":
        if self.schema_ is None and (self.stream or self.format != "parquet"):
            raise ValueError("`schema` is missing: say the columns as `id STRING, price DOUBLE`")
        return self


class PostgresTable(Strict):
    """Read once, when the pipeline starts."""

    url: str
    table: str | None = None
    query: str | None = None

    @model_validator(mode="after")
    def _says_what(self) -> "PostgresTable":
        only_one(self, ("table", "query"))
        return self


class Source(Strict):
    topic: str | None = None
    topics: list[str] | None = Field(None, min_length=1)
    pattern: str | None = None
    files: Files | None = None
    postgres: PostgresTable | None = None
    # Of topics:
    start: str = "earliest"
    format: Literal["bytes", "string", "json", "avro", "protobuf"] = "bytes"
    schema_: str | None = Field(None, alias="schema")
    schema_file: str | None = None
    key_format: Literal["bytes", "string", "json", "avro", "protobuf"] | None = None
    bad_records: Literal["fail", "deadletter", "null"] | None = None
    dead_letters: str | None = None
    static: bool = False
    watermark: Watermark | None = None
    options: dict[str, Scalar] = Field(default_factory=dict[str, Scalar])

    @field_validator("start")
    @classmethod
    def _can_be_found(cls, start: str) -> str:
        start_options(start)
        return start

    @model_validator(mode="after")
    def _fits_its_kind(self) -> "Source":
        kind = only_one(self, ("topic", "topics", "pattern", "files", "postgres"))
        of_topics = {"start", "format", "schema_", "schema_file", "key_format", "bad_records", "dead_letters", "static"}
        if kind in {"files", "postgres"} and (wrong := sorted(of_topics & self.model_fields_set)):
            raise ValueError(f"`{wrong[0].rstrip('_')}` goes with topics only; `{kind}` has its own inside")
        if kind in {"files", "postgres"} and self.options:
            raise ValueError(f"`options` goes with topics only; `{kind}` has its own inside")
        if self.bad_records == "deadletter" and self.dead_letters is None:
            raise ValueError("`bad_records: deadletter` needs `dead_letters: TOPIC` to send them to")
        if self.dead_letters is not None and self.bad_records not in (None, "deadletter"):
            raise ValueError("`dead_letters` goes with `bad_records: deadletter` only")
        if self.format == "bytes" and (self.schema_ is not None or self.schema_file is not None):
            raise ValueError("a `schema` needs a `format`: json, avro or protobuf")
        if self.watermark is not None and not self.is_streaming:
            raise ValueError("a `watermark` goes with what flows; this source is read once")
        return self

    @property
    def is_streaming(self) -> bool:
        if self.files is not None:
            return self.files.stream
        return self.postgres is None and not self.static

    @property
    def identity(self) -> str:
        """What it reads, in a word for its kind and then by name; no secrets."""
        if self.files is not None:
            return f"files {self.files.path}"
        if self.postgres is not None:
            return "postgres"
        return f"topics {self.pattern or ','.join(self.topics or [self.topic or ''])}"
