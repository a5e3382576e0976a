"""The price file: what it takes, and that a mistake names its line."""

from pathlib import Path

import pytest

from penstock.spark.errors import SparkFailure
from penstock.spark.report.prices import Prices, read_prices


def written(folder: Path, text: str) -> Path:
    file = folder / "prices.yaml"
    file.write_text(text)
    return file


def test_what_is_left_out_is_free(tmp_path: Path) -> None:
    found = read_prices(written(tmp_path, "currency: EUR\nstorage_gb_month: 0.10\nfan_out: 3\n"))
    assert found == Prices("EUR", storage_gb_month=0.1, fan_out=3.0)


@pytest.mark.parametrize(
    ("text", "line", "told"),
    [
        ("currency: EUR\nstorage_gb_moth: 1\n", 2, "storage_gb_month"),
        ("\n\nincoming_gb: much\n", 3, "number"),
        ("incoming_gb: true\n", 1, "number"),
        ("outgoing_gb: -1\n", 1, "below 0"),
        ("currency: [EUR]\n", 1, "short text"),
        ("- 1\n- 2\n", 1, "names and values"),
        ("a: &x [1]\nb: *x\n", 2, "alias"),
        ("fan_out: [1\n", 2, "YAML"),
    ],
)
def test_a_mistake_names_its_line(tmp_path: Path, text: str, line: int, told: str) -> None:
    with pytest.raises(SparkFailure) as caught:
        read_prices(written(tmp_path, text))
    assert f"prices.yaml:{line}" in str(caught.value)
    assert told in str(caught.value)


def test_a_missing_file_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(SparkFailure, match="cannot be read"):
        read_prices(tmp_path / "nowhere.yaml")
