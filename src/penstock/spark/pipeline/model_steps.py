"""What a pipeline file may say of a step: SQL, a Python function, deduplication, a window, a join, or state of its own.

Called by pipeline.model. A step does exactly one of these; `watermark` may be added to any of them.
"""

from typing import Annotated, Any, Literal

from pydantic import Field, StringConstraints, field_validator, model_validator

from penstock.spark.pipeline.durations import DurationMs
from penstock.spark.pipeline.model_sources import Strict, Watermark, only_one

STEP_KINDS = ("sql", "python", "deduplicate", "window", "join", "stateful", "select")
CodeName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z_][\w.]*:[A-Za-z_]\w*$")]


class Deduplicate(Strict):
    """The first row of each key. With a watermark before it, keys that old are let go; else they all stay."""

    keys: list[str] = Field(min_length=1)
    within_watermark: bool = True


class Window(Strict):
    """Groups of rows by time and the columns of `by`; rows of each: start, end, `by`, and the aggregates by name."""

    column: str
    size: DurationMs
    slide: DurationMs | None = None
    by: list[str] = Field(default_factory=list[str])
    aggregate: dict[str, str] = Field(min_length=1)

    @model_validator(mode="after")
    def _slides_forward(self) -> "Window":
        if self.size < 1 or (self.slide is not None and not 1 <= self.slide <= self.size):
            raise ValueError("`size` must be more than nothing, and `slide` no longer than it")
        return self


class Join(Strict):
    """Two inputs; their columns go by their names, `orders.id = refunds.order_id`."""

    left: str
    right: str
    on: str | list[str]
    # What of both is kept; needed where they have columns of the same name.
    select: list[str] | None = Field(None, min_length=1)
    type: Literal["inner", "left", "right", "full", "semi", "anti"] = "inner"


class Stateful(Strict):
    """Spark's transformWithState: `processor` is a StatefulProcessor; `args` go to its constructor."""

    processor: CodeName
    key: list[str] = Field(min_length=1)
    schema_: str = Field(alias="schema")
    time: Literal["none", "processing", "event"] = "none"
    output: Literal["append", "update", "complete"] = "append"
    rows: Literal["row", "pandas"] = "row"
    event_time: str = ""
    args: dict[str, Any] = Field(default_factory=dict[str, Any])

    @field_validator("key", mode="before")
    @classmethod
    def _one_or_many(cls, value: Any) -> Any:
        return [value] if isinstance(value, str) else value


class Step(Strict):
    sql: str | None = None
    select: list[str] | None = Field(None, min_length=1)
    python: CodeName | None = None
    deduplicate: Deduplicate | None = None
    window: Window | None = None
    join: Join | None = None
    stateful: Stateful | None = None
    input: str | None = None
    inputs: list[str] | None = None
    args: dict[str, Any] | None = None
    watermark: Watermark | None = None

    @model_validator(mode="after")
    def _fits_its_kind(self) -> "Step":
        kind = self.kind
        if kind in {"deduplicate", "window", "stateful", "select"}:
            if self.input is None:
                raise ValueError(f"`input` is missing: `{kind}` reads one source or step")
        elif self.input is not None:
            raise ValueError(f"`input` does not go with `{kind}`, which names what it reads itself")
        if self.inputs is not None and kind not in {"sql", "python"}:
            raise ValueError(f"`inputs` goes with sql and python, not with `{kind}`")
        if self.args is not None and kind != "python":
            raise ValueError(f"`args` goes with python, not with `{kind}`")
        return self

    @property
    def kind(self) -> str:
        return only_one(self, STEP_KINDS)
