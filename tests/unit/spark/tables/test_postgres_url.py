"""PostgreSQL urls that are not valid: refused before libpq sees them, which quotes pieces of the password."""

from pathlib import Path
from typing import Any, cast

import pytest

from penstock.spark.errors import BadOption, BadPipeline, SparkFailure
from penstock.spark.pipeline.loading import parse_pipeline
from penstock.spark.pipeline.reading import open_source
from penstock.spark.tables.postgres import connect

# Nobody listens on port 1; those that pass the check fail there.
HOST = "127.0.0.1:1"
SECRETS = ("s3", "cret", "word")
TORN = [
    f"postgres://me:s3%zzcret@{HOST}/db",
    f"postgresql:/me:s3cret@{HOST}/db",
    f"postgresql://me:p@s3:word@{HOST}/db",
    f"postgresql://me:p@s3cret@{HOST}/db",
    f"postgresql://me:12/s3cret@{HOST}/db",
    f"postgresql://me:12/x?s3cret@{HOST}/db",
    f"postgresql://me:s3 cret@{HOST}/db",
    f"postgresql://me:s3%00cret@{HOST}/db",
    f"postgresql://me:s3\0cret@{HOST}/db",
    "postgresql://me:s3cret@[::1/db",
    f"postgresql://{HOST}/db?password=p&s3cret",
    "host=127.0.0.1 port=1 password=s3 cret",
]


@pytest.mark.parametrize("url", TORN)
def test_a_url_that_is_not_valid_shows_nothing_of_its_password(url: str) -> None:
    with pytest.raises(BadOption, match=r"url is not valid.*percent-encode") as caught:
        connect(url)
    assert not [secret for secret in SECRETS if secret in str(caught.value).replace("password", "")]


def test_nor_does_a_pipeline_that_reads_from_it(tmp_path: Path) -> None:
    text = """\
name: p
checkpoint: c
kafka: {bootstrap: "b:9092"}
sources:
  shops: {postgres: {url: "postgres://me:s3%zzcret@127.0.0.1:1/db", table: shops}}
  orders: {topic: orders}
sinks:
  out: {input: orders, topic: t}
"""
    loaded = parse_pipeline(text, tmp_path, "p.yaml")
    with pytest.raises(BadPipeline, match=r"^p.yaml:5:\d+: source `shops`: the PostgreSQL url is not valid") as caught:
        open_source(cast(Any, None), loaded, "shops", "q")
    assert "cret" not in str(caught.value)


@pytest.mark.parametrize(
    "url",
    [
        f"postgresql://me:s3:c?r#e[t]%40%2F@{HOST}/db",
        f"postgres://me@{HOST}",
        f"postgresql://{HOST}?user=me&password=s3cret&application_name=a%20b",
        f"postgresql://me:s3cret@{HOST},[::1]:1/db?target_session_attrs=any",
        "postgresql:///db?host=/no/such/folder",
        "postgresql://%2Fno%2Fsuch%2Ffolder/db",
    ],
)
def test_what_libpq_takes_is_taken(url: str) -> None:
    with pytest.raises(SparkFailure, match=r"PostgreSQL cannot be reached: .*connection to server") as caught:
        connect(url)
    assert "s3" not in str(caught.value)
