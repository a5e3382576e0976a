"""Arrow batches against the records they were made of, through the plain decoder of penstock.records."""

import contextlib
import subprocess
import sys
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.records.batch import read_header, refresh_crc
from penstock.records.compression import Codec
from penstock.records.markers import ControlType, Marker, encode_marker
from penstock.records.record import Record, decode_records, encode_batch, encode_empty_batch
from penstock.spark.arrow import RAW_SCHEMA, RAW_SCHEMA_WITH_HEADERS, ArrowDecoder, MalformedBatch
from penstock.spark.arrow.compiling import compiled
from penstock.spark.fetching.chunk import FetchedChunk

SIZE_MAX = 1 << 20
END = 2**62
MS_MAX = (2**63 - 1) // 1000

data = st.none() | st.binary(max_size=200)
times = st.integers(0, 2**41) | st.integers(-(2**63), 2**63 - 1)
headers = st.lists(st.tuples(st.text(max_size=20), st.none() | st.binary(max_size=70)), max_size=4).map(tuple)


@st.composite
def batches(draw: st.DrawFn) -> list[bytearray]:
    """A stretch of a log: batches with holes between and inside, of several producers, compressed or not."""
    made: list[bytearray] = []
    offset = draw(st.integers(0, 1000))
    for _ in range(draw(st.integers(1, 5))):
        records: list[Record] = []
        # Deltas between any two 64-bit times need not fit 64 bits, so a batch has either tame times or one wild one.
        base = draw(times)
        for number in range(draw(st.integers(1, 6))):
            time = base if number == 0 or abs(base) > 2**60 else base + draw(st.integers(-(2**30), 2**30))
            records.append(Record(offset, time, draw(data), draw(data), draw(headers)))
            offset += draw(st.integers(1, 3))
        made.append(
            encode_batch(
                records,
                compression=draw(st.sampled_from(list(Codec))),
                is_log_append_time=draw(st.booleans()),
                producer_id=draw(st.integers(-1, 3)),
                last_offset=records[-1].offset + draw(st.integers(0, 2)),
            )
        )
        offset += 3
    return made


def chunk(*made: bytes | bytearray, aborted: list[tuple[int, int]] | None = None) -> FetchedChunk:
    return FetchedChunk(memoryview(b"".join(made)), aborted or [], 0, END, END)


def decode(chunks: list[FetchedChunk], start: int = 0, end: int = END, **options: Any) -> list[pa.RecordBatch]:
    isolation = options.pop("isolation", "read_committed")
    decoder = ArrowDecoder("orders", 7, start, end, isolation, **{"has_headers": True, **options})
    made = [batch for each in chunks for batch in decoder.feed(each)]
    made += decoder.finish()
    for batch in made:
        batch.validate(full=True)
        assert batch.num_rows > 0
    return made


def rows(made: list[pa.RecordBatch]) -> list[dict[str, Any]]:
    if not made:
        return []
    table = pa.Table.from_batches(made)
    at = table.schema.get_field_index("timestamp")
    return table.set_column(at, "timestamp", table["timestamp"].cast(pa.int64())).to_pylist()


def expected(batch: bytes | bytearray) -> list[dict[str, Any]]:
    header = read_header(batch)
    return [
        {
            "key": record.key,
            "value": record.value,
            "topic": "orders",
            "partition": 7,
            "offset": record.offset,
            "timestamp": record.timestamp * 1000 if abs(record.timestamp) <= MS_MAX else None,
            "timestampType": int(header.is_log_append_time),
            "headers": [{"key": name, "value": value} for name, value in record.headers] or None,
        }
        for record in decode_records(batch, header, SIZE_MAX)
    ]


def offsets(made: list[pa.RecordBatch]) -> list[int]:
    return [row["offset"] for row in rows(made)]


@settings(max_examples=150, deadline=None)
@given(batches(), st.data(), st.integers(1, 7), st.booleans(), st.sampled_from([1, 300, 1 << 20]))
def test_arrow_rows_are_the_records(
    made: list[bytearray], draws: st.DataObject, rows_per_batch: int, has_headers: bool, bytes_per_batch: int
) -> None:
    """Wherever chunks are cut, whatever part of the offsets is asked for, however small the Arrow batches are."""
    first, last = read_header(made[0]).base_offset, read_header(made[-1]).last_offset
    start = draws.draw(st.integers(0, last + 1))
    end = draws.draw(st.integers(first, last + 2))
    cut = draws.draw(st.integers(0, len(made)))
    torn = made[cut][: draws.draw(st.integers(0, len(made[cut]) - 1))] if cut < len(made) else b""
    # A fetch may end in the middle of a batch, which then comes whole with the next.
    chunks = [chunk(*made[:cut], torn), chunk(*made[cut:])]
    decoded = decode(
        chunks, start, end, has_headers=has_headers, rows_per_batch=rows_per_batch, bytes_per_batch=bytes_per_batch
    )
    wanted = [row for batch in made for row in expected(batch) if start <= row["offset"] < end]
    if not has_headers:
        for row in wanted:
            del row["headers"]
    assert rows(decoded) == wanted
    assert all(batch.num_rows <= rows_per_batch for batch in decoded)
    if bytes_per_batch == 1:
        assert all(batch.num_rows == 1 or batch.nbytes < 1000 for batch in decoded)


@settings(max_examples=150, deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 1), st.sampled_from(["data", "plain", "abort", "commit"])), max_size=20),
    st.sampled_from(["read_committed", "read_uncommitted"]),
    st.data(),
)
def test_aborted_records_and_markers_are_left_out(
    steps: list[tuple[int, str]], isolation: str, d: st.DataObject
) -> None:
    log: list[bytearray] = []
    fate: dict[int, list[int]] = {}
    is_open: dict[int, int] = {}
    aborted: list[tuple[int, int, int]] = []  # producer, first offset, offset of the marker
    visible: list[int] = []
    for offset, (producer, step) in enumerate(steps):
        record = [Record(offset, 0, None, b"")]
        if step == "plain":
            log.append(encode_batch(record, producer_id=producer, producer_epoch=0, base_sequence=0))
            visible.append(offset)
        elif step == "data":
            log.append(encode_batch(record, producer_id=producer, producer_epoch=0, is_transactional=True))
            is_open.setdefault(producer, offset)
            fate.setdefault(producer, []).append(offset)
        else:
            kind = ControlType.ABORT if step == "abort" else ControlType.COMMIT
            log.append(
                encode_marker(Marker(kind, 0), offset=offset, timestamp=0, producer_id=producer, producer_epoch=0)
            )
            first, records = is_open.pop(producer, None), fate.pop(producer, [])
            if kind is ControlType.COMMIT:
                visible += records
            elif first is not None:
                aborted.append((producer, first, offset))
    # What is still open lies behind the last stable offset: a broker does not send it to a committed reader.
    stable = min([len(log), *is_open.values()])
    if isolation == "read_committed":
        log = log[:stable]
        wanted = sorted(offset for offset in visible if offset < stable)
    else:
        wanted = [offset for offset, (_, step) in enumerate(steps) if step in ("data", "plain")]
    cut = d.draw(st.integers(0, len(log)))
    chunks: list[FetchedChunk] = []
    for low, high in ((0, cut), (cut, len(log))):
        # As a broker tells them: those that reach into what it sends.
        told = [(producer, first) for producer, first, end in aborted if first < high and end >= low]
        chunks.append(chunk(*log[low:high], aborted=told if isolation == "read_committed" else []))
    assert offsets(decode(chunks, isolation=isolation)) == wanted


def test_what_a_producer_commits_after_it_aborted_is_read() -> None:
    def marker(kind: ControlType, offset: int) -> bytearray:
        return encode_marker(Marker(kind, 0), offset=offset, timestamp=0, producer_id=7, producer_epoch=0)

    def written(offset: int) -> bytearray:
        return encode_batch([Record(offset, 0, None, b"")], producer_id=7, producer_epoch=0, is_transactional=True)

    log = [written(0), marker(ControlType.ABORT, 1), written(2), marker(ControlType.COMMIT, 3)]
    log += [written(4), marker(ControlType.ABORT, 5)]
    assert offsets(decode([chunk(*log, aborted=[(7, 4), (7, 0)])])) == [2]


def test_the_schema_is_the_one_spark_makes_of_its_kafka_rows() -> None:
    t: Any = pytest.importorskip("pyspark.sql.types")
    to_arrow_schema: Any = pytest.importorskip("pyspark.sql.pandas.types").to_arrow_schema
    rows = (
        t.StructType()
        .add("key", t.BinaryType())
        .add("value", t.BinaryType())
        .add("topic", t.StringType())
        .add("partition", t.IntegerType())
        .add("offset", t.LongType())
        .add("timestamp", t.TimestampType())
        .add("timestampType", t.IntegerType())
    )
    assert to_arrow_schema(rows, timezone="UTC") == RAW_SCHEMA
    rows.add("headers", t.ArrayType(t.StructType().add("key", t.StringType()).add("value", t.BinaryType())))
    assert to_arrow_schema(rows, timezone="UTC") == RAW_SCHEMA_WITH_HEADERS
    assert decode([chunk(encode_batch([Record(0, 0, None, None)]))])[0].schema == RAW_SCHEMA_WITH_HEADERS


def test_thousands_of_small_batches_become_few_large_ones() -> None:
    log = [encode_batch([Record(offset, 0, None, b"x" * 10)]) for offset in range(9000)]
    made = decode([chunk(*log)], has_headers=False)
    assert [batch.num_rows for batch in made] == [9000]
    assert offsets(made) == list(range(9000))


def test_a_batch_that_comes_again_is_read_once() -> None:
    log = [encode_batch([Record(offset, 0, None, b"x") for offset in range(first, first + 3)]) for first in (0, 3)]
    reaching_back = encode_batch([Record(offset, 0, None, b"y") for offset in range(4, 8)], compression=Codec.LZ4)
    assert offsets(decode([chunk(*log), chunk(log[1]), chunk(reaching_back)])) == list(range(8))


def test_batches_without_records_and_records_without_bytes_are_read_over() -> None:
    empty = encode_empty_batch(read_header(encode_batch([Record(0, 0, b"k", b"v")])))
    made = decode([chunk(empty, encode_batch([Record(1, 0, None, None), Record(2, 0, b"", b"")]))])
    assert [(row["key"], row["value"]) for row in rows(made)] == [(None, None), (b"", b"")]


def test_a_header_name_that_is_no_utf8_is_replaced() -> None:
    names = ("caf\u00e9", "\udcff\udcfe!", "ok")
    batch = encode_batch([Record(0, 0, None, None, tuple((name, None) for name in names))])
    assert [header["key"] for header in rows(decode([chunk(batch)]))[0]["headers"]] == ["café", "\ufffd\ufffd!", "ok"]


@pytest.mark.parametrize("magic", [0, 1])
def test_old_message_formats_are_named(magic: int) -> None:
    batch = encode_batch([Record(5, 0, None, b"x")])
    batch[16] = magic
    with pytest.raises(MalformedBatch, match=r"offset 5 of orders-7 .*message format 0 or 1"):
        decode([chunk(batch)])


def test_a_flipped_bit_is_found_by_the_checksum() -> None:
    good, bad = encode_batch([Record(5, 0, None, b"x")]), encode_batch([Record(6, 0, None, b"yy")])
    bad[-3] ^= 1
    decoder = ArrowDecoder("orders", 7, 0, END, "read_committed", has_headers=False)
    with pytest.raises(MalformedBatch, match=r"offset 6 of orders-7 .*CRC"):
        list(decoder.feed(chunk(good, bad)))
    assert offsets(decode([chunk(good, bad)], end=6)) == [5]


def test_a_compression_nobody_knows_is_named() -> None:
    batch = encode_batch([Record(5, 0, None, b"x")])
    batch[22] |= 7
    refresh_crc(memoryview(batch))
    with pytest.raises(MalformedBatch, match="compression 7"):
        decode([chunk(batch)])


@pytest.mark.parametrize(("more", "why"), [(2, "length does not match"), (0, "bytes follow its last record")])
def test_bytes_too_many_are_refused(more: int, why: str) -> None:
    """Inside the record, whose length then counts one more (a zigzag varint grows by two), or behind it."""
    batch = encode_batch([Record(5, 0, b"k", b"v")])
    batch[61] += more
    batch.append(0)
    batch[8:12] = (len(batch) - 12).to_bytes(4, "big")
    with pytest.raises(MalformedBatch, match=why):
        decode([chunk(batch)], check_crcs=False)


def refuses_or_decodes(raw: bytes) -> None:
    """The plain decoder says what is right; what it refuses must be refused, and the rest be the same rows."""
    view = memoryview(raw)
    wanted: list[dict[str, Any]] | None = []
    at = 0
    while wanted is not None and len(raw) - at >= 61:
        header = read_header(raw, at)
        is_sane = header.base_offset >= 0 and header.last_offset_delta >= 0 and header.last_offset < 2**63 - 1
        if header.magic != 2 or header.batch_length < 49:
            wanted = None
        elif header.size > len(raw) - at:
            break
        elif not is_sane:
            wanted = None
        else:
            if not header.is_control and header.base_offset < END:
                try:
                    wanted += [row for row in expected(bytes(view[at : at + header.size])) if row["offset"] < END]
                except Exception:
                    wanted = None
            at += header.size
    try:
        made = rows(decode([chunk(raw)], check_crcs=False))
    except MalformedBatch:
        assert wanted is None or len(raw) - at < 61
    else:
        assert wanted is None or [row["offset"] for row in made] == [row["offset"] for row in wanted]


@settings(max_examples=200, deadline=None)
@given(
    batches(),
    st.lists(st.tuples(st.integers(0, 2000), st.integers(0, 255)), min_size=1, max_size=4),
    st.integers(0, 80),
)
def test_damaged_batches_are_refused_or_read_as_the_plain_decoder_reads_them(
    made: list[bytearray], damages: list[tuple[int, int]], cut: int
) -> None:
    raw = bytearray().join(made)
    for at, byte in damages:
        raw[at % len(raw)] = byte
    refuses_or_decodes(bytes(raw[: len(raw) - cut] if cut < len(raw) else raw))


@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=300), st.integers(0, 2), st.integers(0, 40), st.integers(-1, 60))
def test_any_bytes_inside_a_well_formed_batch_are_refused_or_rows(
    raw: bytes, codec: int, count: int, last: int
) -> None:
    batch = encode_batch([Record(0, 0, None, None)], producer_id=1)
    head = bytearray(batch[:61])
    head[8:12] = (49 + len(raw)).to_bytes(4, "big")
    head[22] = codec
    head[23:27] = last.to_bytes(4, "big", signed=True)
    head[57:61] = count.to_bytes(4, "big")
    with contextlib.suppress(MalformedBatch):
        decode([chunk(head, raw)], check_crcs=False)


def test_one_record_beyond_every_guess_of_room_is_read() -> None:
    value, names = b"v" * 9_000_000, tuple((f"n{n}", b"x" * n) for n in range(500))
    batch = encode_batch([Record(0, 0, b"k", b"s"), Record(1, 0, b"k" * 70_000, value, names)], compression=Codec.ZSTD)
    made = decode([chunk(batch)])
    assert [(len(row["key"]), len(row["value"])) for row in rows(made)] == [(1, 1), (70_000, 9_000_000)]
    assert [(header["key"], header["value"]) for header in rows(made)[1]["headers"]] == list(names)
    assert len(decode([chunk(batch)], bytes_per_batch=1_000_000)) == 2


def test_a_missing_numba_is_told_in_one_sentence() -> None:
    script = (
        "import sys; sys.modules['numba'] = None\n"
        "from penstock.spark.errors import SparkFailure\n"
        "try:\n    import penstock.spark.arrow\nexcept SparkFailure as failure:\n    sys.exit(str(failure))\n"
    )
    told = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=False)
    assert "penstock[spark]" in told.stderr
    assert "Traceback" not in told.stderr


def test_functions_are_compiled_where_nothing_can_be_cached(monkeypatch: pytest.MonkeyPatch) -> None:
    caching: Any = pytest.importorskip("numba.core.caching")
    monkeypatch.setattr(caching.CacheImpl, "_locator_classes", [])

    def double(number: int) -> int:
        return 2 * number

    assert compiled(double)(21) == 42
