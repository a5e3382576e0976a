"""Tables that a SQL text reads, without a parser's help."""

import pytest

from penstock.spark.pipeline.sql_names import tables_read, writing_word


@pytest.mark.parametrize(
    ("sql", "expected"),
    [
        ("SELECT * FROM a", ["a"]),
        ("select x from a, b where a.x = b.x", ["a", "b"]),
        ("SELECT a.x, b.y FROM a JOIN b USING (x) LEFT OUTER JOIN c ON a.x = c.x", ["a", "b", "c"]),
        ("SELECT * FROM (SELECT x, y FROM inner_one) t, other", ["inner_one", "other"]),
        ("SELECT * FROM (a JOIN b ON a.i = b.i)", ["a", "b"]),
        ("WITH t AS (SELECT * FROM a), u (x, y) AS (SELECT * FROM t) SELECT * FROM u JOIN b", ["a", "b"]),
        ("SELECT extract(YEAR FROM at), trim(BOTH FROM name), substring(x FROM 2), z FROM a", ["a"]),
        ("SELECT x IS DISTINCT FROM y, p IS NOT DISTINCT FROM q FROM a", ["a"]),
        ("SELECT DISTINCT x FROM a", ["a"]),
        ("SELECT 'it''s FROM nowhere', \"FROM x\" FROM a -- FROM comment\n/* FROM other */", ["a"]),
        ("SELECT * FROM `my table` JOIN `b`", ["my table", "b"]),
        ("SELECT * FROM range(10), catalog.db.t, a", ["a"]),
        ("SELECT * FROM a LATERAL VIEW explode(xs) AS x, y", ["a"]),
        ("SELECT count(*) FILTER (WHERE x > 1), f(a, b) FROM a GROUP BY window(at, '1 minute'), x", ["a"]),
        ("SELECT * FROM a WHERE x IN (SELECT y FROM b) AND z IN (1, 2)", ["a", "b"]),
        ("SELECT x FROM a UNION ALL SELECT x FROM b ORDER BY x, y", ["a", "b"]),
        ("SELECT * FROM A JOIN a ON true", ["A"]),
        ("SELECT * FROM order o, a WHERE 1 = 1", ["order", "a"]),
        ("VALUES (1, 2)", []),
        ("SELECT '", []),
    ],
)
def test_tables_are_told_from_everything_else(sql: str, expected: list[str]) -> None:
    assert [read.name for read in tables_read(sql)] == expected


def test_a_table_knows_its_line_and_column() -> None:
    assert tables_read("SELECT 1\n  FROM  orders")[0] == ("orders", 2, 9)


@pytest.mark.parametrize(
    ("sql", "expected"),
    [
        ("WITH a AS (SELECT 1) INSERT INTO t SELECT * FROM a", "insert"),
        ("with a as (SELECT 1), b AS (SELECT 2) merge into t using a ON true WHEN MATCHED THEN DELETE", "merge"),
        ("WITH a AS (SELECT 1) DELETE FROM t", "delete"),
        ("FROM t INSERT OVERWRITE DIRECTORY '/x' USING csv SELECT 1 INSERT INTO u SELECT 2", "insert"),
        ("SELECT insert, delete FROM t", ""),
        ("SELECT 'insert into', (SELECT max(x) FROM t) update -- ) insert into\nFROM t", ""),
        ("SELECT", ""),
    ],
)
def test_what_would_write_is_told_from_columns_of_that_name(sql: str, expected: str) -> None:
    assert writing_word(sql) == expected
