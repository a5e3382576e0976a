"""A pipeline file's mistakes: each names its file, line and column, and what was probably meant."""

from pathlib import Path

import pytest

from penstock.spark.errors import BadPipeline
from penstock.spark.pipeline.loading import LoadedPipeline, load_pipeline, parse_pipeline
from penstock.spark.pipeline.model import Trigger
from penstock.spark.pipeline.text import DEPTH_MAX, FILE_BYTES_MAX

GOOD = """\
name: orders
checkpoint: checkpoints
kafka:
  bootstrap: ${BROKERS:-127.0.0.1:9092}
sources:
  orders:
    topic: orders
    format: json
    schema: id STRING, amount DOUBLE, at TIMESTAMP
    watermark: {column: timestamp, delay: 1m}
  products:
    files: {path: products.csv, format: csv, schema: "product STRING, price DOUBLE"}
steps:
  priced:
    sql: |
      SELECT o.value.amount * p.price AS total
      FROM orders o
      JOIN products p ON o.value.id = p.product
  small:
    input: priced
    select: [total]
sinks:
  table:
    input: small
    delta: {path: table}
"""


def load(text: str, tmp_path: Path, **environment: str) -> LoadedPipeline:
    return parse_pipeline(text, tmp_path, "p.yaml", environment=environment)


def problems(text: str, tmp_path: Path, **environment: str) -> str:
    with pytest.raises(BadPipeline) as caught:
        load(text, tmp_path, **environment)
    return str(caught.value)


def test_a_good_file_is_read_with_its_order_and_without_warnings(tmp_path: Path) -> None:
    loaded = load(GOOD, tmp_path)
    assert loaded.graph.order == ["priced", "small"]
    assert loaded.graph.inputs["priced"] == ("orders", "products")
    assert loaded.graph.needed_by("small") == {"small", "priced", "orders", "products"}
    assert loaded.graph.warnings == []
    assert loaded.pipeline.kafka.bootstrap == "127.0.0.1:9092"
    assert loaded.pipeline.trigger == Trigger()
    assert loaded.pipeline.sources["orders"].watermark is not None
    assert loaded.pipeline.sources["orders"].watermark.delay == 60_000
    assert loaded.checkpoint == str(tmp_path / "checkpoints")


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("s3a://bucket/x", "s3a://bucket/x"),
        ("hdfs:/x", "hdfs:/x"),
        ("file:///data/c", "file:///data/c"),
        ("file:/data/c", "file:///data/c"),
        ("/data/c", "/data/c"),
    ],
)
def test_a_path_with_a_scheme_is_nobodys_to_change(tmp_path: Path, path: str, expected: str) -> None:
    assert load(GOOD, tmp_path).resolve(path) == expected


START_FORMS = "`sources.orders.start`: write `earliest`, `latest`, a time as 2026-03-01T00:00:00Z, or offsets as"


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("    topic: orders\n", "    topik: orders\n", "p.yaml:7:5: `topik` is not known here; did you mean `topic`?"),
        ("format: csv", "format: cvs", "p.yaml:12:41: `sources.products.files.format` must be one of json, csv, "),
        ("name: orders\n", "", "p.yaml:1:1: `name` is missing"),
        ("    input: small\n", "", "p.yaml:23:3: `input` is missing in sinks.table"),
        ("select: [total]", "select: total", "p.yaml:21:13: `steps.small.select` must be a list"),
        ("delay: 1m", "delay: soon", "p.yaml:10:36: `sources.orders.watermark.delay`: this is no length of time"),
        ("input: small", "input: smal", "p.yaml:24:12: sink `table` reads `smal`, which is no source or step; did you "
         "mean `small`?"),
        ("FROM orders o", "FROM order o", "p.yaml:17:12: step `priced` reads `order`, which is no source or step; did "
         "you mean `orders`?"),
        ("SELECT o.value", "DROP TABLE o.value", "p.yaml:15:10: step `priced` must be a query, SELECT or WITH; "
         "it begins with `drop`"),
        ("SELECT o.value", "WITH a AS (SELECT 1) INSERT INTO t SELECT o.value", "p.yaml:15:10: step `priced` must be a "
         "query, SELECT or WITH; it has `insert` in it"),
        ("FROM orders o", "FROM orders o INSERT OVERWRITE t SELECT 1", "SELECT or WITH; it has `insert` in it"),
        ("    format: json\n", "    format: json\n    start: 2024-01-01\n", "p.yaml:9:5: `sources.orders.start`: a "
         "time needs its zone; write it as 2024-01-01T00:00:00Z or with an offset"),
        ("    format: json\n", "    format: json\n    start: earlyest\n", f"p.yaml:9:5: {START_FORMS}"),
        ("    format: json\n", "    format: json\n    start: '{\"orders\": 3}'\n", f"p.yaml:9:5: {START_FORMS}"),
        ("    format: json\n", "    format: json\n    options: {maxOffsetPerTrigger: 5}\n", "p.yaml:9:15: source "
         "`orders`: unknown option maxOffsetPerTrigger: did you mean maxOffsetsPerTrigger?"),
        ("    format: json\n", "    format: json\n    options: {failOnDataLoss: true, minPartitions: few}\n",
         "p.yaml:9:37: source `orders`: minPartitions is few; it must be a whole number"),
        ("    schema: id STRING, amount DOUBLE, at TIMESTAMP\n", "", "p.yaml:6:3: source `orders`: "
         "value.format=json needs a schema"),
        ("    format: json\n", "    format: json\n    start: 1960-01-01T00:00:00Z\n", "p.yaml:9:5: source `orders`: "
         "startingTimestamp"),
        ("sources:\n", "  options: {security.protocol: SSSL}\nsources:\n", "p.yaml:5:13: "
         "kafka.security.protocol is SSSL"),
        ("delta: {path: table}", "topic: t\n    options: {deliverie: twice}", "p.yaml:26:15: sink `table`: unknown "
         "option deliverie: did you mean delivery?"),
        ("delta: {path: table}", "topic: t\n    options: {kafka.acks: all, transaction.timeout.ms: soon}",
         "p.yaml:26:32: sink `table`: transaction.timeout.ms is soon; it must be a whole number"),
        ("delta: {path: table}", "topic: t\n    options:\n      kafka.security.protocl: SSL", "p.yaml:27:7: sink "
         "`table`: unknown option kafka.security.protocl: did you mean kafka.security.protocol?"),
        ("delta: {path: table}", "topic: t\n    options: {value.format: avro}", "p.yaml:26:15: sink `table`: "
         "value.format is an option of sources"),
        ("delta: {path: table}", "topic: t\n    options: {startingOffsets: earliest}", "p.yaml:26:15: sink `table`: "
         "startingOffsets is an option of sources"),
        ("delta: {path: table}", "delta: {path: table, options: {compresion: gzip}}", "p.yaml:25:36: sink `table`: "
         "unknown option compresion: did you mean compression?"),
        ("delta: {path: table}", "postgres: {url: mysql://u:hunter2@h/d, table: t}", "p.yaml:25:5: sink `table`: a "
         "PostgreSQL table needs url=postgresql://"),
        ("  small:\n", "  orders:\n", "p.yaml:19:3: the name `orders` is taken already, at p.yaml:6:3"),
        ("  small:\n", "  priced:\n", "p.yaml:19:3: `priced` stands here twice; the first is on line 14"),
        ("input: priced", "input: small", "p.yaml:19:3: the steps read each other in a circle: small -> small"),
        ("    delta: {path: table}\n", "", "give exactly one of topic, delta, iceberg, parquet, postgres, console"),
        ("    topic: orders\n", "    topic: orders\n    pattern: o.*\n", "here is `topic` and `pattern`"),
        ("sinks:\n  table:", "sinks:\n  my-table:", "p.yaml:23:3: `my-table` cannot be a name here"),
        ("checkpoint: checkpoints", "checkpoint: [a]", "p.yaml:2:13: `checkpoint` must be text"),
        ("steps:\n", "trigger: sometimes\nsteps:\n", "`trigger`: write `once`, `continuous`, or `every: 10s`"),
        ("    format: json\n", "    format: json\n    bad_records: deadletter\n", "needs `dead_letters: TOPIC`"),
        ("input: small\n", "input: products\n", "which does not flow"),
        ("checkpoint: checkpoints", "checkpoint: ${WHERE}", "p.yaml:2:13: the environment has no WHERE"),
        ("FROM orders o", "FROM orders ${ALIAS", "p.yaml:17:19: write ${NAME} or ${NAME:-otherwise}"),
        ("name: orders", "name: [", "p.yaml:3:6: this is not YAML"),
        ("name: orders", "name: &a orders\nspark: {master: *a}", "p.yaml:2:17: aliases (*a) are not taken"),
        ("name: orders", "name: !!python/object:os.system {}", "p.yaml:1:7: tags"),
        ("sinks:\n", "---\nsinks:\n", "p.yaml:22:1: a second document begins here"),
    ],
)  # fmt: skip
def test_a_mistake_names_its_place(tmp_path: Path, old: str, new: str, expected: str) -> None:
    assert old in GOOD
    assert expected in problems(GOOD.replace(old, new, 1), tmp_path)


def test_all_mistakes_of_the_model_are_told_at_once(tmp_path: Path) -> None:
    told = problems(GOOD.replace("topic:", "topik:").replace("path: table", "pfad: table"), tmp_path)
    assert "p.yaml:7:5" in told
    assert "p.yaml:25:13" in told


def test_what_is_wrong_with_all_topics_is_said_once_and_each_sink_for_itself(tmp_path: Path) -> None:
    text = GOOD.replace("sources:\n", "  options: {security.protocol: SSSL}\nsources:\n", 1)
    text = text.replace("delta: {path: table}", "topic: t")
    assert problems(text, tmp_path).count("SSSL") == 1
    two = GOOD.replace("delta: {path: table}", "topic: t\n    options: {topik: x}")
    two += "  other: {input: small, topic: u, options: {delivery: twice, includeHeaders: true}}\n"
    assert problems(two, tmp_path).splitlines() == [
        "p.yaml:26:15: sink `table`: unknown option topik: did you mean topic?",
        "p.yaml:27:45: sink `other`: delivery is twice; there are exactly-once, at-least-once",
    ]


def test_a_step_that_leads_nowhere_is_a_warning(tmp_path: Path) -> None:
    loaded = load(GOOD.replace("input: small", "input: priced"), tmp_path)
    assert loaded.graph.warnings == ["p.yaml:19:3: step `small` leads to no sink"]


def test_a_secret_of_the_environment_is_never_quoted(tmp_path: Path) -> None:
    wrong = GOOD.replace("select: [total]", "select: ${SECRET}").replace("delay: 1m", "delay: '${SECRET}'")
    told = problems(wrong, tmp_path, SECRET="hunter2")
    assert "select" in told
    assert "delay" in told
    assert "hunter2" not in told


def test_what_is_set_wins_over_the_file_and_its_mistakes_say_so(tmp_path: Path) -> None:
    def loaded_with(**settings: str) -> LoadedPipeline:
        return parse_pipeline(GOOD, tmp_path, "p.yaml", settings={k.replace("__", "."): v for k, v in settings.items()})

    loaded = loaded_with(checkpoint="/elsewhere", kafka__options__security__protocol="SSL", trigger="every 5s")
    assert loaded.checkpoint == "/elsewhere"
    assert loaded.pipeline.kafka.options == {"security.protocol": "SSL"}
    assert loaded.pipeline.trigger == Trigger(every_ms=5000)
    assert loaded_with(restarts="4").pipeline.restarts.attempts == 4
    with pytest.raises(BadPipeline, match=r"^--set sinks.table.delta.pth: `pth` is not known here; did you mean"):
        loaded_with(sinks__table__delta__pth="x")
    with pytest.raises(BadPipeline, match=r"^--set sinks.tabel.mode: the file has no `tabel` .*did you mean `table`"):
        loaded_with(sinks__tabel__mode="append")


def test_variables_have_defaults_and_can_be_written_without_being_meant(tmp_path: Path) -> None:
    text = GOOD.replace("SELECT o", "SELECT '$${x} ${Y:-a-b}' AS z, o")
    sql = load(text, tmp_path).pipeline.steps["priced"].sql
    assert sql is not None
    assert "'${x} a-b'" in sql
    assert load(GOOD, tmp_path, BROKERS="b:1").pipeline.kafka.bootstrap == "b:1"


def test_keys_are_text_even_where_yaml_has_other_ideas(tmp_path: Path) -> None:
    join = """\
  small:
    join:
      left: orders
      right: priced
      on: [total]
"""
    loaded = load(GOOD.replace("  small:\n    input: priced\n    select: [total]\n", join), tmp_path)
    assert loaded.pipeline.steps["small"].join is not None
    assert loaded.pipeline.steps["small"].join.on == ["total"]


def test_numbers_truths_and_texts_are_told_apart_as_written(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text("def keep(priced, **args): ...\n")
    args = "{a: 3, b: '3', c: 2.5, d: true, e: 010, f: 1:30, g: yes, h: null, i: \"null\", j: 1e3, k: -7, l: 2026-1-1}"
    python = f"python: mine:keep\n    args: {args}\n"
    step = load(GOOD.replace("input: priced\n    select: [total]\n", python), tmp_path).pipeline.steps["small"]
    assert list((step.args or {}).values()) == [
        *(3, "3", 2.5, True, "010", "1:30", "yes", None, "null", 1000.0, -7, "2026-1-1")
    ]


def test_huge_and_deep_files_are_refused_before_they_cost_anything(tmp_path: Path) -> None:
    big = tmp_path / "big.yaml"
    big.write_text(GOOD + "#" * FILE_BYTES_MAX)
    with pytest.raises(BadPipeline, match="larger than"):
        load_pipeline(big)
    assert "nested more than" in problems("a: " + "[" * (DEPTH_MAX * 100), tmp_path)
    with pytest.raises(BadPipeline, match="cannot be read"):
        load_pipeline(tmp_path / "none.yaml")
    big.write_bytes(b"name: \xff")
    with pytest.raises(BadPipeline, match="not UTF-8"):
        load_pipeline(big)
    assert "the file is empty" in problems("# nothing\n", tmp_path)
    assert "begins with names" in problems("- a\n", tmp_path)


def test_a_chain_of_many_steps_is_ordered_without_recursion(tmp_path: Path) -> None:
    chain = "".join(f"  s{n}: {{input: s{n + 1}, select: [x]}}\n" for n in range(3000))
    chain += "  s3000: {input: orders, select: [x]}\n"
    loaded = load(GOOD.replace("steps:\n", "steps:\n" + chain), tmp_path)
    assert loaded.graph.order.index("s3000") < loaded.graph.order.index("s0")


def test_python_steps_are_read_but_not_run(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(
        "raise RuntimeError('was run')\n"
        "def keep(priced, products, factor, spark, *, limit=3): ...\n"
        "class Machine:\n    def __init__(self, gap): ...\n"
    )
    python = "python: mine:keep\n    args: {factor: 2}\n"
    loaded = load(GOOD.replace("input: priced\n    select: [total]\n", python), tmp_path)
    assert loaded.graph.inputs["small"] == ("priced", "products")
    told = problems(GOOD.replace("input: priced\n    select: [total]\n", "python: mine:keeep\n"), tmp_path)
    assert "p.yaml:20:13: module mine has no `keeep`; did you mean `keep`?" in told
    told = problems(GOOD.replace("input: priced\n    select: [total]\n", "python: not_there_at_all:f\n"), tmp_path)
    assert "there is no module not_there_at_all" in told
    told = problems(GOOD.replace("input: priced\n    select: [total]\n", "python: mine.keep\n"), tmp_path)
    assert "`steps.small.python` must be written as module:name" in told
