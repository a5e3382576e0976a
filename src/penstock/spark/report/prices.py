"""The price file of a report: what a gigabyte and a partition cost.

Called by cli.report.

    currency: EUR
    storage_gb_month: 0.10      # a gigabyte (10^9 bytes) kept for 30 days, replicas counted
    incoming_gb: 0.02           # a gigabyte produced
    outgoing_gb: 0.05           # a gigabyte consumed …
    fan_out: 2                  # … by as many readers as this; the log does not know who reads it
    partition_hour: 0.0015      # one partition for one hour

Everything may be left out and is then free. A mistake names its line.
"""

import math
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, cast

from penstock.spark.errors import SparkFailure
from penstock.spark.pipeline.nearest import did_you_mean
from penstock.spark.pipeline.text import Document, read_document

CURRENCY_CHARACTERS_MAX = 12


class BadPrices(SparkFailure):
    """A price file that cannot be used; the message begins with file:line."""


@dataclass(frozen=True, slots=True)
class Prices:
    currency: str = ""
    storage_gb_month: float = 0.0
    incoming_gb: float = 0.0
    outgoing_gb: float = 0.0
    fan_out: float = 1.0
    partition_hour: float = 0.0


def read_prices(file: Path) -> Prices:
    document = read_document(file)
    if not isinstance(document.data, dict):
        raise BadPrices(f"{document.where(())}: the file must hold names and values, as `storage_gb_month: 0.10`")
    known = {field.name for field in fields(Prices)}
    found: dict[str, Any] = {}
    for name, value in cast(dict[str, Any], document.data).items():
        if name not in known:
            raise BadPrices(f"{document.where((name,))}: nothing is called `{name}`{did_you_mean(name, known)}")
        found[name] = _currency(document, value) if name == "currency" else _amount(document, name, value)
    return Prices(**found)


def _amount(document: Document, name: str, value: Any) -> float:
    where = document.where((name,), at_key=False)
    try:
        # The document keeps numbers as they were written.
        amount = float(value) if isinstance(value, str | float | int) and not isinstance(value, bool) else math.nan
    except ValueError:
        amount = math.nan
    if not math.isfinite(amount):
        raise BadPrices(f"{where}: `{name}` must be a number, not {value!r}")
    if amount < 0:
        raise BadPrices(f"{where}: `{name}` must not be below 0, and {value} is")
    return amount


def _currency(document: Document, value: Any) -> str:
    if not isinstance(value, str) or not value.strip() or len(value) > CURRENCY_CHARACTERS_MAX:
        where = document.where(("currency",), at_key=False)
        raise BadPrices(f"{where}: `currency` must be a short text, as EUR, not {value!r}")
    return value.strip()
