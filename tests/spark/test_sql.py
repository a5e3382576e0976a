"""`penstock sql` as a user types it, over a real broker, in the session of the test run."""

import json
import os
import signal
import tempfile
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import typer
from helpers import Row, Topics, wait_until
from typer.testing import CliRunner, Result

from penstock.cli.app import CommandGroup
from penstock.cli.sql import sql
from penstock.spark.sql.naming import BadQuery, topics_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

app = typer.Typer(cls=CommandGroup, pretty_exceptions_enable=False)
app.command("sql")(sql)
app.command("other")(lambda: None)  # with one command alone, typer would take its name for an argument

BASE_MS = 1_700_000_000_000
# Ways to call a method of Java's own, which may do anything.
_CALL = "('java.lang.System', 'setProperty', 'penstock.was', 'here')"
CALLING_JAVA = [
    [f"SELECT reflect{_CALL}"],
    [f"SELECT key FROM orders WHERE `Java_Method`{_CALL} IS NULL"],
    [f"SELECT * FROM VALUES (system.builtin.reflect{_CALL})"],
    [f"WITH a AS (SELECT max(try_reflect{_CALL}) AS k FROM orders) SELECT * FROM a", "--describe"],
    [f"SELECT rank() OVER w FROM orders WINDOW w AS (ORDER BY reflect{_CALL})"],
    [f"SELECT transform(array(1), x -> IDENTIFIER('refl' || 'ect'){_CALL})"],
    [f"SELECT reflect{_CALL} FROM orders", "--follow"],
]


@pytest.fixture(scope="module", autouse=True)
def filled(topics: Topics) -> Topics:
    topics.make("orders", 2)
    topics.make("web-events.v1")
    topics.make("customers")
    orders = [{"id": number, "customer": f"c{number % 3}", "amount": number * 1.5} for number in range(30)]
    topics.produce(
        "orders",
        [
            Row(
                json.dumps(order).encode(),
                order["customer"].encode(),
                order["id"] % 2,
                timestamp_ms=BASE_MS + order["id"],
            )
            for order in orders
        ],
    )
    topics.produce("orders", [Row(b"no json at all", b"c0", 0, timestamp_ms=BASE_MS + 30)])
    topics.produce("web-events.v1", [Row(b"\xff\xfe", b"\xff"), Row(None, b"k")])
    topics.produce("customers", [Row(b'{"name": "Anna"}', b"c0"), Row(b'{"name": "Bo"}', b"c1")])
    return topics


@pytest.fixture
def run(spark: "SparkSession", topics: Topics) -> Any:
    def run(*arguments: str) -> Result:
        return CliRunner().invoke(app, ["sql", "-b", topics.bootstrap, *arguments])

    return run


def rows_of(result: Result) -> list[dict[str, Any]]:
    assert result.exit_code == 0, result.output
    return [json.loads(line) for line in result.stdout.splitlines()]


def test_json_values_have_columns_and_a_record_that_is_none_has_nulls(run: Any) -> None:
    query = "SELECT value.customer AS who, count(*) AS n, sum(value.amount) AS total FROM orders GROUP BY 1 ORDER BY 1"
    assert rows_of(run(query, "--format", "json")) == [
        {"who": None, "n": 1, "total": None},
        {"who": "c0", "n": 10, "total": 202.5},
        {"who": "c1", "n": 10, "total": 217.5},
        {"who": "c2", "n": 10, "total": 232.5},
    ]


def test_topics_join_and_window_functions_rank(run: Any) -> None:
    query = """
        WITH ranked AS (SELECT key, value.id, row_number() OVER (PARTITION BY key ORDER BY value.id DESC) AS rank
                        FROM orders WHERE value.id IS NOT NULL)
        SELECT c.value.name, r.id FROM ranked r JOIN customers c ON r.key = c.key WHERE rank = 1 ORDER BY 1
    """
    assert rows_of(run(query, "--json")) == [{"name": "Anna", "id": 27}, {"name": "Bo", "id": 28}]


def test_tables_csv_times_bytes_and_names_with_dots(run: Any) -> None:
    table = run("SELECT value.id, timestamp, key FROM orders WHERE value.id < 2 ORDER BY 1")
    assert table.stdout.splitlines()[0].split() == ["id", "timestamp", "key"]
    assert table.stdout.splitlines()[2].split() == ["1", "2023-11-14T22:13:20.001Z", "c1"]
    raw = run("SELECT key, value, topic FROM `web-events.v1` ORDER BY offset", "--format", "csv")
    assert raw.stdout.splitlines() == ["key,value,topic", "/w==,//4=,web-events.v1", "k,,web-events.v1"]
    limited = run("SELECT * FROM orders", "--limit", "3")
    assert len(limited.stdout.splitlines()) == 4
    assert "more than 3 rows" in limited.stderr


@pytest.mark.parametrize(
    ("bounds", "expected"),
    [
        (["--from", "13"], 2 + 2 + 1),
        (["--from", "-1"], 2),
        (["--to", "offset:2"], 4),
        (["--from", str(BASE_MS + 28)], 3),
        (["--from", "2023-11-14T22:13:20.010Z", "--to", "2023-11-14T22:13:20.012Z"], 2),
        (["--from", "1h"], 0),
    ],
)
def test_bounds_are_offsets_times_or_counts_from_the_end(run: Any, bounds: list[str], expected: int) -> None:
    assert rows_of(run("SELECT count(*) AS n FROM orders", "--json", *bounds)) == [{"n": expected}]


def test_describe_tells_what_was_inferred(run: Any) -> None:
    told = json.loads(run("SELECT value.*, `offset` FROM orders", "--describe", "--json").stdout)
    assert told["topics"][0]["schema"] == "`id` BIGINT, `customer` STRING, `amount` DOUBLE"
    assert told["topics"][0]["rows"] == 31
    assert [column["type"] for column in told["columns"]] == ["bigint", "string", "double", "bigint"]
    given = run("SELECT value.id FROM orders", "--describe", "--schema", "id STRING", "--value-format", "json")
    assert "string" in given.stdout


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["SELECT * FROM ordrs"], "there is no topic ordrs; did you mean orders?"),
        (["SELECT value.nope FROM orders"], "line 1, column 8"),
        (["SELECT *\nFROM orders\nGRUP BY 1"], "line 3, column 6: Syntax error"),
        (["DROP TABLE orders"], "only queries"),
        (["INSERT INTO orders SELECT * FROM orders"], "only queries"),
        (["INSERT OVERWRITE DIRECTORY '/x' USING csv SELECT 1"], "only queries"),
        (["WITH a AS (SELECT 1) INSERT INTO orders SELECT * FROM a"], "only queries"),
        (["FROM orders INSERT INTO orders SELECT key INSERT INTO customers SELECT key"], "only queries"),
        (["EXECUTE IMMEDIATE 'DROP TABLE orders'"], "only queries"),
        (["CALL system.anything()"], "only queries"),
        (["SELECT TRANSFORM (key) USING 'cat' AS (k STRING) FROM orders"], "only queries"),
        (["SELECT * FROM (SELECT TRANSFORM (key) USING 'cat' AS (k STRING) FROM orders)"], "only queries"),
        (["INSERT INTO IDENTIFIER('ord' || 'ers') SELECT 1"], "only queries"),
        (["BEGIN DROP TABLE orders; END"], "only queries"),
        *((query, "only queries") for query in CALLING_JAVA),
        (["SELECT * FROM web.events"], "backticks"),
        (["SELECT * FROM orders ORDER BY 1", "--follow"], "ORDER BY"),
        (["SELECT row_number() OVER (ORDER BY offset) FROM orders", "-F"], "window functions (OVER)"),
        (["SELECT 1", "--follow"], "nothing to follow"),
        (["SELECT value.id FROM orders", "--schema", "id NONSENSE", "--value-format", "json"], "NONSENSE"),
    ],
)
def test_what_is_wrong_is_one_sentence(run: Any, arguments: list[str], told: str) -> None:
    result = run(*arguments)
    assert result.exit_code == 1
    assert told in result.stderr
    assert result.stdout == ""
    assert "Traceback" not in result.stderr
    assert "org.apache" not in result.stderr


def test_a_query_may_speak_of_what_it_may_not_do(run: Any, spark: "SparkSession") -> None:
    query = "SELECT 'reflect(1)' AS reflect, array('java_method', '${identifier}')[0] AS java_method"
    assert rows_of(run(query, "--json")) == [{"reflect": "reflect(1)", "java_method": "java_method"}]
    # None of those that were refused was run first.
    session: Any = spark
    assert session._jvm.java.lang.System.getProperty("penstock.was") is None


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["SELECT 1", "-f", "q.sql"],
        ["SELECT 1", "--follow", "--to", "5"],
        ["SELECT 1", "--every", "1 second"],
        [" ; "],
    ],
)
def test_asked_wrongly_is_exit_code_2(run: Any, arguments: list[str]) -> None:
    assert run(*arguments).exit_code == 2


def test_names_are_topics_unless_a_with_clause_took_them(spark: "SparkSession") -> None:
    query = """
        WITH a AS (SELECT * FROM a), b AS (SELECT * FROM a JOIN `x.y-z`)
        SELECT *, (SELECT max(1) FROM c) FROM b WHERE k IN (SELECT k FROM d) AND EXISTS (SELECT 1 FROM A) AND
        j IN (WITH e AS (SELECT 1) SELECT * FROM e JOIN b) UNION SELECT * FROM csv.`/tmp/file.csv`, range(3), e
    """
    assert topics_of(spark, query) == ["a", "x.y-z", "c", "d", "e"]
    with pytest.raises(BadQuery, match="differ in case only"):
        topics_of(spark, "SELECT * FROM orders JOIN Orders")


def test_following_prints_rows_as_they_come_and_leaves_nothing_behind(
    run: Any, topics: Topics, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    live = topics.make("live")
    topics.produce(live, [b'{"n": 0}'])
    (tmp_path / "query.sql").write_text(f"SELECT value.n, `offset` FROM `{live}` WHERE value.n > 0;\n")

    def feed() -> None:
        wait_until(lambda: list(tmp_path.glob("penstock-sql-*/offsets/*")), "the query to start")
        for number in (1, 2):
            topics.produce(live, [json.dumps({"n": number})])

    feeding = threading.Thread(target=feed)
    feeding.start()
    result = run("-f", str(tmp_path / "query.sql"), "--follow", "--json", "--limit", "2")
    feeding.join()
    assert rows_of(result) == [{"n": 1, "offset": 1}, {"n": 2, "offset": 2}]
    assert not list(tmp_path.glob("penstock-sql-*"))
    groups = topics.admin.list_consumer_groups().result(30)
    assert not [group for group in groups.valid if group.group_id.startswith("spark-")]


def test_followed_sums_are_updated_and_ctrl_c_ends_them_well(
    run: Any, topics: Topics, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))

    def interrupt() -> None:
        wait_until(lambda: list(tmp_path.glob("penstock-sql-*/commits/0")), "the first batch")
        os.kill(os.getpid(), signal.SIGINT)

    interrupting = threading.Thread(target=interrupt)
    interrupting.start()
    result = run(
        "SELECT key, count(*) AS n FROM orders GROUP BY 1", "--follow", "--from", "earliest", "--format", "csv"
    )
    interrupting.join()
    assert result.exit_code == 0, result.output
    assert sorted(result.stdout.splitlines()) == ["c0,11", "c1,10", "c2,10", "key,n"]
    assert not list(tmp_path.glob("penstock-sql-*"))
