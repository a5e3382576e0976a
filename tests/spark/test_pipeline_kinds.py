"""Sources, steps and sinks of every kind in one pipeline file, run twice; and state with timers while topics appear."""

import io
import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import adbc_driver_postgresql.dbapi as dbapi
import fastavro
import pytest
from deltalake import DeltaTable
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory, text_format, timestamp_pb2
from helpers import Row, Topics
from postgres import running_postgres

from penstock.spark.pipeline.loading import LoadedPipeline, load_pipeline
from penstock.spark.pipeline.running import PipelineRun
from penstock.spark.pipeline.schemas import schemas_of
from penstock.spark.pipeline.writing import ConsoleRows
from penstock.spark.tables.iceberg_catalog import open_iceberg
from penstock.spark.tables.options import sink_options

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

BEGIN = datetime(2026, 3, 2, 10, 0, tzinfo=UTC)

SHOP = """\
name: shop
checkpoint: checkpoint
kafka: {bootstrap: "${BROKERS}"}

sources:
  orders:
    pattern: shop-.*-orders
    format: json
    schema: id STRING, product STRING, quantity INT, at TIMESTAMP
  payments:
    topic: shop-payments
    format: protobuf
    schema_file: payments.desc
    options: {value.message: shop.Payment}
  refunds:
    topic: shop-refunds
    format: avro
    schema_file: refunds.avsc
  products:
    postgres: {url: "${POSTGRES}", query: "SELECT product, price::float8 AS price FROM products"}

steps:
  placed:
    sql: SELECT value.id, value.product, value.quantity, value.at FROM orders
    watermark: {column: at, delay: 1 hour}
  once_each:
    input: placed
    deduplicate: {keys: [id]}
  paid:
    input: payments
    select: [value.order_id, value.cents, value.paid_at]
    watermark: {column: paid_at, delay: 1 hour}
  matched:
    join:
      left: once_each
      right: paid
      on: >-
        once_each.id = paid.order_id AND paid.paid_at >= once_each.at
        AND paid.paid_at <= once_each.at + INTERVAL 10 MINUTES
      select: [once_each.id, product, quantity, cents]
  priced:
    sql: SELECT m.id, m.cents, m.quantity * p.price AS net FROM matched m JOIN products p ON m.product = p.product
  taxed:
    python: steps:taxed
    args: {rate: 0.5}
  given_back:
    input: refunds
    select: [value.shop, value.amount, value.at]
    watermark: {column: at, delay: 10 seconds}
  per_minute:
    input: given_back
    window:
      column: at
      size: 1 minute
      by: [shop]
      aggregate: {refunds: count(*), amount: sum(amount)}

sinks:
  invoices:
    input: taxed
    iceberg: {path: warehouse, table: shop.invoices}
  minutes:
    input: per_minute
    postgres: {url: "${POSTGRES}", table: minutes}
  log:
    input: given_back
    delta: {path: refunds, partition_by: [shop]}
"""

STEPS = """\
def taxed(priced, rate):
    return priced.withColumn("gross", priced.net * (1 + rate))
"""

PAYMENT = """
name: "shop/payment.proto" package: "shop" syntax: "proto3" dependency: "google/protobuf/timestamp.proto"
message_type { name: "Other" }
message_type {
  name: "Payment"
  field { name: "order_id" number: 1 type: TYPE_STRING label: LABEL_OPTIONAL }
  field { name: "cents" number: 2 type: TYPE_INT64 label: LABEL_OPTIONAL }
  field { name: "paid_at" number: 3 type: TYPE_MESSAGE type_name: ".google.protobuf.Timestamp" label: LABEL_OPTIONAL }
}
"""

REFUND: dict[str, Any] = {
    "type": "record",
    "name": "Refund",
    "fields": [
        {"name": "shop", "type": "string"},
        {"name": "amount", "type": "long"},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
    ],
}


@pytest.fixture(scope="module")
def postgres() -> Iterator[str]:
    with running_postgres() as url:
        yield url


def ask(url: str, question: str) -> list[tuple[Any, ...]]:
    with dbapi.connect(url) as connection, connection.cursor() as cursor:
        cursor.execute(question)
        found = cursor.fetchall()
        connection.commit()
        return found


def tell(url: str, *statements: str) -> None:
    with dbapi.connect(url) as connection, connection.cursor() as cursor:
        for statement in statements:
            cursor.execute(statement)
        connection.commit()


def at(seconds: int) -> datetime:
    return BEGIN + timedelta(seconds=seconds)


def order(name: str, product: str, quantity: int, seconds: int) -> str:
    return json.dumps({"id": name, "product": product, "quantity": quantity, "at": at(seconds).isoformat()})


class Payments:
    """What protoc would make: a descriptor file for the reader, messages by protobuf's own library."""

    def __init__(self) -> None:
        file = text_format.Parse(PAYMENT, descriptor_pb2.FileDescriptorProto())
        self.descriptors = descriptor_pb2.FileDescriptorSet(file=[file]).SerializeToString()
        pool = descriptor_pool.DescriptorPool()
        pool.AddSerializedFile(timestamp_pb2.DESCRIPTOR.serialized_pb)
        pool.AddSerializedFile(file.SerializeToString())
        self._message: Any = message_factory.GetMessageClass(pool.FindMessageTypeByName("shop.Payment"))

    def encode(self, order_id: str, cents: int, seconds: int) -> bytes:
        message = self._message(order_id=order_id, cents=cents)
        message.paid_at.FromDatetime(at(seconds))
        return message.SerializeToString()


def refund(shop: str, amount: int, seconds: int) -> bytes:
    stream = io.BytesIO()
    fastavro.schemaless_writer(
        stream, fastavro.parse_schema(REFUND), {"shop": shop, "amount": amount, "at": at(seconds)}
    )
    return stream.getvalue()


def run_once(spark: "SparkSession", loaded: LoadedPipeline) -> dict[str, tuple[str, int, int | None]]:
    with PipelineRun(loaded, spark, is_once=True) as run:
        run.wait()
    return {one.sink: (one.state, one.rows_in, one.rows_out) for one in run.progress}


def forget_last_commit(checkpoint: Path) -> None:
    """As a driver leaves it that was killed between the sink's commit and Spark's: the batch is run again."""
    commits = checkpoint / "commits"
    last = max(int(name.name) for name in commits.iterdir() if name.name.isdecimal())
    (commits / str(last)).unlink()
    (commits / f".{last}.crc").unlink(missing_ok=True)


@pytest.mark.timeout(240)
def test_every_kind_of_source_step_and_table_works_together_and_a_restart_doubles_nothing(
    spark: "SparkSession", topics: Topics, postgres: str, tmp_path: Path
) -> None:
    payments = Payments()
    (tmp_path / "pipeline.yaml").write_text(SHOP)
    (tmp_path / "steps.py").write_text(STEPS)
    (tmp_path / "payments.desc").write_bytes(payments.descriptors)
    (tmp_path / "refunds.avsc").write_text(json.dumps(REFUND))
    tell(
        postgres,
        "CREATE TABLE products (product text, price numeric(8,2))",
        "INSERT INTO products VALUES ('tea', 2.5), ('coffee', 4)",
    )
    for name in ("shop-a-orders", "shop-payments", "shop-refunds"):
        topics.make(name)
    loaded = load_pipeline(tmp_path / "pipeline.yaml", environment={"BROKERS": topics.bootstrap, "POSTGRES": postgres})
    columns = {name: {one.name: one.type for one in each} for name, each in schemas_of(spark, loaded).items()}
    assert columns["payments"]["value"] == "struct<order_id:string,cents:bigint,paid_at:timestamp>"
    assert columns["refunds"]["value"] == "struct<shop:string,amount:bigint,at:timestamp>"
    assert columns["products"] == {"product": "string", "price": "double"}
    assert list(columns["per_minute"]) == ["start", "end", "shop", "refunds", "amount"]

    topics.produce(
        "shop-a-orders", [order("o1", "tea", 2, 10), order("o1", "tea", 2, 10), order("o2", "coffee", 1, 40)]
    )
    topics.produce("shop-payments", [payments.encode("o1", 500, 60), payments.encode("o3", 250, 120)])
    # The last one moves the watermark past the first minute.
    topics.produce("shop-refunds", [refund("a", 1, 5), refund("a", 2, 30), refund("b", 4, 50), refund("a", 8, 120)])
    assert run_once(spark, loaded) == {
        "invoices": ("finished", 5, 1),
        "minutes": ("finished", 4, 2),
        "log": ("finished", 4, 4),
    }
    assert invoices(tmp_path) == [("o1", 500, 5.0, 7.5)]
    assert minutes(postgres) == [(at(0), "a", 2, 3), (at(0), "b", 1, 4)]

    for sink in loaded.pipeline.sinks:
        forget_last_commit(tmp_path / "checkpoint" / sink)
    # A topic that the pattern finds by now; in it an order that came before, and one whose payment did.
    topics.make("shop-b-orders")
    topics.produce("shop-b-orders", [order("o1", "tea", 2, 10), order("o3", "tea", 1, 90)])
    topics.produce("shop-payments", [payments.encode("o2", 400, 300), payments.encode("o3", 1, 9000)])
    # Later than the watermark allows, and one that ends the third minute.
    topics.produce("shop-refunds", [refund("a", 16, 20), refund("b", 32, 300)])
    # What is read once is read again when a query starts again.
    tell(postgres, "UPDATE products SET price = 5 WHERE product = 'coffee'")

    again = run_once(spark, loaded)
    assert {sink: state for sink, (state, _, _) in again.items()} == dict.fromkeys(again, "finished")
    assert invoices(tmp_path) == [("o1", 500, 5.0, 7.5), ("o2", 400, 5.0, 7.5), ("o3", 250, 2.5, 3.75)]
    assert minutes(postgres) == [(at(0), "a", 2, 3), (at(0), "b", 1, 4), (at(120), "a", 1, 8)]
    table = DeltaTable(str(tmp_path / "refunds"))
    assert table.metadata().partition_columns == ["shop"]
    found = table.to_pyarrow_table()
    assert sorted(found["amount"].to_pylist()) == [1, 2, 4, 8, 16, 32]
    assert ask(postgres, "SELECT tablename FROM pg_tables WHERE tablename LIKE 'penstock_stage%'") == []


def invoices(folder: Path) -> list[tuple[Any, ...]]:
    table = open_iceberg(sink_options("iceberg", {"path": str(folder / "warehouse"), "table": "shop.invoices"}))
    rows = table.scan().to_arrow().to_pylist()
    return sorted((row["id"], row["cents"], row["net"], row["gross"]) for row in rows)


def minutes(postgres: str) -> list[tuple[Any, ...]]:
    question = "SELECT start, shop, refunds, amount FROM minutes WHERE \"end\" = start + interval '1 minute'"
    return sorted(ask(postgres, question))


VISITS = """\
name: visits
checkpoint: checkpoint
kafka: {bootstrap: "${BROKERS}"}
sources:
  visits: {pattern: "visits-.*", format: string, key_format: string}
steps:
  counted:
    input: visits
    stateful:
      processor: counting:Counter
      key: key
      schema: who STRING, visits LONG, timer STRING
      time: processing
      rows: pandas
      args: {timer: rang}
sinks:
  out: {input: counted, console: }
"""

COUNTING = """\
import pandas as pd
from pyspark.sql.streaming import StatefulProcessor


class Counter(StatefulProcessor):
    \"\"\"Says nothing when rows come; says how many there were in all when its timer rings.\"\"\"

    def __init__(self, timer):
        self._timer = timer

    def init(self, handle):
        self._handle = handle
        self._count = handle.getValueState("count", "n LONG")

    def handleInputRows(self, key, rows, timerValues):
        before = self._count.get()[0] if self._count.exists() else 0
        self._count.update((before + sum(len(each) for each in rows),))
        self._handle.registerTimer(timerValues.getCurrentProcessingTimeInMs() + 1)
        return iter(())

    def handleExpiredTimer(self, key, timerValues, expiredTimerInfo):
        yield pd.DataFrame({"who": [key[0]], "visits": [self._count.get()[0]], "timer": [self._timer]})

    def close(self):
        pass
"""


@pytest.mark.timeout(180)
def test_a_timer_of_processing_time_rings_over_pandas_state_and_topics_that_appear_are_read(
    spark: "SparkSession", topics: Topics, tmp_path: Path
) -> None:
    (tmp_path / "pipeline.yaml").write_text(VISITS)
    (tmp_path / "counting.py").write_text(COUNTING)
    loaded = load_pipeline(tmp_path / "pipeline.yaml", environment={"BROKERS": topics.bootstrap})
    topics.make("visits-monday")
    topics.make("no-visits-here")
    topics.produce("no-visits-here", [Row(b"", b"eve")])
    shown: set[tuple[Any, ...]] = set()

    def run_until(*goals: tuple[Any, ...], has_news: bool = False) -> None:
        def keep(rows: ConsoleRows) -> None:
            shown.update(tuple(row) for row in rows.rows)

        with PipelineRun(loaded, spark, on_rows=keep) as run:

            def watch(_: object) -> None:
                nonlocal has_news
                if has_news and ("ann", 2, "rang") in shown:
                    has_news = False
                    topics.make("visits-tuesday")
                    topics.produce("visits-tuesday", [Row(b"", b"ann"), Row(b"", b"bob")])
                if shown.issuperset(goals):
                    run.ask_to_stop()

            run.wait(watch)
        assert [progress.state for progress in run.progress] == ["stopped"]

    topics.produce("visits-monday", [Row(b"", b"ann"), Row(b"", b"ann")])
    run_until(("ann", 3, "rang"), ("bob", 1, "rang"), has_news=True)
    # Who goes on has the counts of before.
    topics.produce("visits-tuesday", [Row(b"", b"ann")])
    run_until(("ann", 4, "rang"))
    assert {row[0] for row in shown} == {"ann", "bob"}
