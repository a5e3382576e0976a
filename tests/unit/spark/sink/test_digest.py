"""The sum over rows: blind to order, to batches and to buffers, and to nothing else."""

import random

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.spark.sink.digest import RowDigest

cells = st.one_of(st.none(), st.binary(max_size=20))
rows = st.lists(st.tuples(cells, cells), max_size=12)


def digest_of(given_rows: list[tuple[bytes | None, bytes | None]], kind: pa.DataType | None = None) -> str:
    digest = RowDigest()
    kind = kind or pa.binary()
    digest.add(pa.array([row[0] for row in given_rows], kind), pa.array([row[1] for row in given_rows], kind))
    assert digest.rows == len(given_rows)
    return digest.text


@settings(deadline=None)
@given(rows, st.integers(0, 2**32))
def test_order_and_the_cut_into_batches_do_not_count(
    given_rows: list[tuple[bytes | None, bytes | None]], seed: int
) -> None:
    expected = digest_of(given_rows)
    shuffled = random.Random(seed).sample(given_rows, len(given_rows))
    assert digest_of(shuffled) == expected
    assert digest_of(shuffled, pa.large_binary()) == expected
    cut = seed % (len(given_rows) + 1)
    parts = RowDigest()
    key, value = (
        pa.array([row[0] for row in given_rows], pa.binary()),
        pa.array([row[1] for row in given_rows], pa.binary()),
    )
    # Slices keep the whole's buffers and begin in the middle of them.
    parts.add(key[:cut], value[:cut])
    parts.add(key[cut:], value[cut:])
    assert parts.text == expected


@settings(deadline=None)
@given(rows, rows)
def test_other_rows_give_another_sum(
    one: list[tuple[bytes | None, bytes | None]], other: list[tuple[bytes | None, bytes | None]]
) -> None:
    def by_cells(row: tuple[bytes | None, bytes | None]) -> tuple[bool, bytes, bool, bytes]:
        return row[0] is None, row[0] or b"", row[1] is None, row[1] or b""

    assert (digest_of(one) == digest_of(other)) == (sorted(one, key=by_cells) == sorted(other, key=by_cells))


def test_neighbours_that_a_weak_sum_confuses_differ() -> None:
    apart = [
        [(None, b"")],
        [(b"", None)],
        [(b"", b"")],
        [(None, None)],
        [(b"ab", b"c")],
        [(b"a", b"bc")],
        [(b"c", b"ab")],
        [(b"a", b"1"), (b"b", b"2")],
        [(b"a", b"2"), (b"b", b"1")],
        [(b"a", b"1")],
        [(b"a", b"1"), (b"a", b"1")],
        [(None, b"\0" * 7)],
        [(None, b"\0" * 8)],
        [(None, b"\0" * 9)],
    ]
    assert len({digest_of(given_rows) for given_rows in apart}) == len(apart)


def test_no_key_column_is_a_column_of_null_keys() -> None:
    digest = RowDigest()
    digest.add(None, pa.array([b"a", b"b"], pa.binary()))
    assert digest.text == digest_of([(None, b"a"), (None, b"b")])
    assert RowDigest().text == "0" * 16
