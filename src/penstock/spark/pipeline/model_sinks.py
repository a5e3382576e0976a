"""What a pipeline file may say of a sink: a topic, a table (Delta, Iceberg, Parquet, PostgreSQL), or the console.

Called by pipeline.model. Each sink becomes one streaming query with a checkpoint of its own.
"""

from typing import Any, Literal

from pydantic import Field, field_validator, model_validator

from penstock.spark.pipeline.model_sources import Scalar, Strict, only_one

SINK_KINDS = ("topic", "delta", "iceberg", "parquet", "postgres", "console")
TABLE_KINDS = ("delta", "iceberg", "parquet", "postgres")


class FileTable(Strict):
    """A Delta table or a folder of Parquet files. `keys` say which row is replaced with `mode: update`."""

    path: str
    keys: list[str] = Field(default_factory=list[str])
    partition_by: list[str] = Field(default_factory=list[str])
    merge_schema: bool = False
    options: dict[str, Any] = Field(default_factory=dict[str, Any])


class IcebergTable(Strict):
    """A table of a pyiceberg catalog by its properties; without one, of a SQLite catalog in the folder `path`."""

    path: str | None = None
    table: str | None = None
    partition_by: list[str] = Field(default_factory=list[str])
    merge_schema: bool = False
    catalog: dict[str, str] = Field(default_factory=dict[str, str])
    options: dict[str, Any] = Field(default_factory=dict[str, Any])


class PostgresSink(Strict):
    url: str
    table: str
    keys: list[str] = Field(default_factory=list[str])
    merge_schema: bool = False
    options: dict[str, Any] = Field(default_factory=dict[str, Any])


class Console(Strict):
    rows: int = Field(20, ge=1, le=10_000)


class Sink(Strict):
    input: str
    mode: Literal["append", "update", "complete"] = "append"
    topic: str | None = None
    delta: FileTable | None = None
    iceberg: IcebergTable | None = None
    parquet: FileTable | None = None
    postgres: PostgresSink | None = None
    console: Console | None = None
    # Of a topic: `json` makes the whole row the value, `rows` takes the columns key and value as they are.
    format: Literal["rows", "json"] = "rows"
    key: str | None = None
    delivery: Literal["exactly-once", "at-least-once"] = "exactly-once"
    options: dict[str, Scalar] = Field(default_factory=dict[str, Scalar])

    @field_validator("console", mode="before")
    @classmethod
    def _console_alone(cls, value: Any) -> Any:
        # `console:` and `console: true` say enough.
        return {} if value is None or value is True else value

    @model_validator(mode="after")
    def _fits_its_kind(self) -> "Sink":
        kind = self.kind
        wrong = sorted({"format", "key", "delivery", "options"} & self.model_fields_set)
        if kind != "topic" and wrong:
            raise ValueError(f"`{wrong[0]}` goes with a topic only, not with `{kind}`")
        if kind in {"iceberg", "parquet"} and self.mode == "update":
            raise ValueError(f"`mode: update` would need rows to be replaced, which `{kind}` does not do here")
        keyed = self.delta or self.postgres or self.parquet
        if keyed is not None and bool(keyed.keys) != (self.mode == "update"):
            raise ValueError("`mode: update` and `keys` (the columns that say which row is replaced) go together")
        return self

    @property
    def kind(self) -> str:
        return only_one(self, SINK_KINDS)
