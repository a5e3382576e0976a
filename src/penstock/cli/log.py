"""`penstock log dump`: what is in the files of a log, and what is wrong with them. Needs no broker.

Called by cli.app. Exit code 1 when anything is wrong. With --json every line is an object with a `kind`: file, batch,
record, entry, problem, summary.
"""

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

import typer

from penstock.admin.failures import ASKED_WRONGLY, FAILED, CommandFailed
from penstock.admin.text import render_moment, render_size, safe_text
from penstock.cli.message_format import text_or_base64
from penstock.cli.output import Progress
from penstock.cli.segment_inspection import (
    BatchSeen,
    Problem,
    RecordSeen,
    SegmentSummary,
    batch_document,
    codec_name,
    inspect_segment,
)
from penstock.cli.side_inspection import Entry, inspector_of
from penstock.log.segment import INDEX_SUFFIX, LOG_SUFFIX, TIME_INDEX_SUFFIX, TXN_INDEX_SUFFIX

app = typer.Typer(no_args_is_help=True, help="Look into the files of a log.")

_BATCH_LINE = "{:>12} {:>9}  {:<23} {:>7}  {:<6}  {:<3}  {:>5}  {:<22}  {}"
_BATCH_HEAD = _BATCH_LINE.format(
    "BYTE", "SIZE", "OFFSETS", "RECORDS", "CODEC", "CRC", "EPOCH", "PRODUCER:EPOCH@SEQ", "NEWEST"
)


@app.callback()
def log() -> None:
    """Look into the files of a log."""


@app.command("dump")
def dump(
    paths: Annotated[
        list[Path],
        typer.Argument(metavar="FILE|DIR", show_default=False, help="Segments, indexes, directories of them."),
    ],
    records: Annotated[bool, typer.Option("--records", "-r", help="Print the records too.")] = False,
    deep: Annotated[bool, typer.Option("--deep", help="Unpack every batch and check that all adds up.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Only what is wrong, and a line for each file.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="JSON lines.")] = False,
) -> None:
    """Print batches, records, index entries and checkpoints; say exactly what is wrong and where."""
    files: list[Path] = []
    for path in paths:
        if not path.exists():
            raise CommandFailed(f"{path} does not exist", exit_code=ASKED_WRONGLY)
        files.extend(list_files(path) if path.is_dir() else [path])
    if not files:
        raise CommandFailed(
            "no log files there", "Give a segment (….log), a partition's directory or a data directory."
        )
    total = sum(path.stat().st_size for path in files)
    with Progress("bytes read", total) as progress:
        dumping = Dump(JsonWriter() if as_json else TextWriter(quiet), records, deep, progress.advance)
        for path in files:
            try:
                dumping.file(path)
            except OSError as error:
                raise CommandFailed(f"{path}: {error.strerror}") from None
        dumping.writer.end(len(files), dumping.problems)
    if dumping.problems:
        raise typer.Exit(FAILED)


def list_files(directory: Path) -> list[Path]:
    """What can be read of a partition's or a broker's directory: each segment before its indexes."""
    found = [path for path in directory.iterdir() if path.is_file() and _is_known(path)]
    order = {LOG_SUFFIX: 0, INDEX_SUFFIX: 1, TIME_INDEX_SUFFIX: 2, TXN_INDEX_SUFFIX: 3}
    found.sort(key=lambda path: (path.name.partition(".")[0], order.get(path.suffix, len(order)), path.name))
    for inner in sorted(path for path in directory.iterdir() if path.is_dir() and not path.is_symlink()):
        found.extend(path for path in list_files(inner))
    return found


def _is_known(path: Path) -> bool:
    return path.suffix == LOG_SUFFIX or inspector_of(path) is not None


class TextWriter:
    """Lines for people. Columns are of fixed width, so that a file of any size can be printed as it is read."""

    def __init__(self, quiet: bool) -> None:
        self._quiet = quiet
        self._path = Path()

    def file(self, path: Path, size: int) -> None:
        self._path = path
        if not self._quiet:
            typer.echo(f"{path}  ({render_size(size)})")
            if path.suffix == LOG_SUFFIX:
                typer.echo(_BATCH_HEAD)

    def batch(self, seen: BatchSeen) -> None:
        if self._quiet:
            return
        header = seen.header
        producer = f"{header.producer_id}:{header.producer_epoch}@{header.base_sequence}..{header.last_sequence}"
        marks = (" txn" if header.is_transactional else "") + (" control" if header.is_control else "")
        line = _BATCH_LINE.format(
            seen.position,
            header.size,
            f"{header.base_offset}..{header.last_offset}",
            header.record_count,
            codec_name(header),
            "ok" if seen.is_crc_right else "BAD",
            header.leader_epoch,
            producer if header.producer_id >= 0 else "-",
            (render_moment(header.max_timestamp) or "-") + marks,
        )
        typer.echo(line.rstrip())

    def record(self, seen: RecordSeen) -> None:
        if self._quiet:
            return
        record = seen.record
        headers = "".join(f" {name}={_text(value)}" for name, value in record.headers)
        what = seen.marker or f"key={_text(record.key)} value={_text(record.value)}{headers}"
        typer.echo(safe_text(f"    {record.offset}  {render_moment(record.timestamp) or '-'}  {what}"))

    def entry(self, entry: Entry) -> None:
        if not self._quiet:
            typer.echo(safe_text("    " + "  ".join(f"{name}={value}" for name, value in entry.facts.items())))

    def problem(self, problem: Problem) -> None:
        where = f"{self._path}: " if self._quiet else "  "
        typer.echo(f"{where}WRONG {safe_text(str(problem))}")
        if problem.advice:
            typer.echo(f"        {problem.advice}")

    def summary(self, facts: dict[str, Any]) -> None:
        verdict = f"{facts['problems']} problems" if facts["problems"] else "all right"
        if "batches" in facts:
            what = f"{facts['batches']} batches, {facts['records']} records, next offset {facts['next_offset']}"
            typer.echo(f"{self._path.name if not self._quiet else self._path}: {what}: {verdict}")
        elif self._quiet or facts["problems"]:
            typer.echo(f"{self._path.name if not self._quiet else self._path}: {verdict}")
        if not self._quiet:
            typer.echo()

    def end(self, files: int, problems: int) -> None:
        typer.echo(f"{files} files, {problems} problems" if problems else f"{files} files, all right")


class JsonWriter:
    def __init__(self) -> None:
        self._path = Path()

    def _write(self, kind: str, facts: dict[str, Any]) -> None:
        typer.echo(json.dumps({"kind": kind, "file": str(self._path), **facts}, ensure_ascii=False))

    def file(self, path: Path, size: int) -> None:
        self._path = path
        self._write("file", {"size_bytes": size})

    def batch(self, seen: BatchSeen) -> None:
        self._write("batch", batch_document(seen))

    def record(self, seen: RecordSeen) -> None:
        record = seen.record
        facts = {
            "offset": record.offset,
            "timestamp_ms": record.timestamp,
            **text_or_base64("key", record.key),
            **text_or_base64("value", record.value),
            "headers": [{"name": safe_text(name), **text_or_base64("value", value)} for name, value in record.headers],
        }
        self._write("record", facts | ({"marker": seen.marker} if seen.marker else {}))

    def entry(self, entry: Entry) -> None:
        self._write("entry", entry.facts)

    def problem(self, problem: Problem) -> None:
        self._write("problem", {"what": problem.what, "at_byte": problem.at_byte, "advice": problem.advice})

    def summary(self, facts: dict[str, Any]) -> None:
        self._write("summary", facts)

    def end(self, files: int, problems: int) -> None:
        typer.echo(json.dumps({"kind": "total", "files": files, "problems": problems}))


@dataclass(slots=True)
class Dump:
    """Goes through files in order; a segment is remembered for the indexes and the segment that follow it."""

    writer: TextWriter | JsonWriter
    records: bool
    deep: bool
    advance: Callable[[int], object]
    problems: int = 0
    _last: SegmentSummary | None = None
    _last_path: Path = field(default_factory=Path)

    def file(self, path: Path) -> None:
        size = path.stat().st_size
        self.writer.file(path, size)
        before = self.problems
        if path.suffix == LOG_SUFFIX:
            facts = self._segment(path)
        else:
            self._side_file(path)
            self.advance(size)
            facts = {}
        self.writer.summary({**facts, "problems": self.problems - before})

    def _segment(self, path: Path) -> dict[str, Any]:
        stem = path.name.removesuffix(LOG_SUFFIX)
        base = int(stem) if stem.isdigit() else 0
        self._compare_with_last(path, base)
        summary = SegmentSummary(base, base)
        self._read(path, summary, shown=True)
        self._last, self._last_path = summary, path
        return {"batches": summary.batches, "records": summary.records, "next_offset": summary.next_offset}

    def _read(self, path: Path, summary: SegmentSummary, *, shown: bool) -> None:
        look_inside, deep = self.records and shown, self.deep and shown
        advance = self.advance if shown else _ignore
        for seen in inspect_segment(path, summary, look_inside=look_inside, deep=deep, advance=advance):
            if not shown:
                continue
            if isinstance(seen, BatchSeen):
                self.writer.batch(seen)
            elif isinstance(seen, Problem):
                self._wrong(seen)
            elif self.records:
                self.writer.record(seen)

    def _compare_with_last(self, path: Path, base: int) -> None:
        last = self._last
        if last is not None and self._last_path.parent == path.parent and base < last.next_offset:
            name = self._last_path.name
            self._wrong(Problem(f"it starts at offset {base}, but {name} before it reaches {last.next_offset}"))

    def _side_file(self, path: Path) -> None:
        inspect = inspector_of(path)
        if inspect is None:
            self._wrong(Problem("nothing here knows what this file is; log dump reads .log and the files beside it"))
            return
        for seen in inspect(path, self._segment_of(path)):
            if isinstance(seen, Problem):
                self._wrong(seen)
            else:
                self.writer.entry(seen)

    def _segment_of(self, path: Path) -> SegmentSummary | None:
        """The batches an index speaks of, read now unless the segment was the file before."""
        if path.suffix not in (INDEX_SUFFIX, TIME_INDEX_SUFFIX, TXN_INDEX_SUFFIX):
            return None
        segment = path.with_suffix(LOG_SUFFIX)
        if self._last is not None and self._last_path == segment:
            return self._last
        if not segment.exists():
            return None
        base = int(segment.stem) if segment.stem.isdigit() else 0
        summary = SegmentSummary(base, base)
        self._read(segment, summary, shown=False)
        return summary

    def _wrong(self, problem: Problem) -> None:
        self.problems += 1
        self.writer.problem(problem)


def _ignore(_: int) -> None:
    """Bytes read a second time are no progress."""


def _text(value: bytes | None) -> str:
    return "null" if value is None else value.decode("utf-8", "backslashreplace")
