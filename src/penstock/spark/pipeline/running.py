"""A pipeline at work: its queries started, watched, started again after a failure, and ended.

Called by cli.pipeline and by whoever runs a pipeline from Python:

    with PipelineRun(loaded, spark, is_once=True) as run:
        run.wait(on_change=print)

Laws:
- One query per sink; a failure that is not forgiven ends all of them, after their current batch.
- A batch that is cut short is done again by the next run: sinks know what they have (exactly once).
"""

import json
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from penstock.spark.errors import BadPipeline
from penstock.spark.pipeline.building import build_frames, pipeline_session
from penstock.spark.pipeline.failures import QueryFailed, explain_failure
from penstock.spark.pipeline.graph import streaming_names
from penstock.spark.pipeline.loading import LoadedPipeline
from penstock.spark.pipeline.model import Restarts, Trigger
from penstock.spark.pipeline.progress import SinkProgress
from penstock.spark.pipeline.status_file import StatusFile
from penstock.spark.pipeline.writing import OBSERVED, ConsoleRows, Started, checkpoint_of, query_name, start_query

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LOOK_EVERY_S = 0.2
STATUS_EVERY_S = 1.0
# How long a batch may take to end by itself after a stop was asked for.
GRACE_S = 60.0

OnChange = Callable[[list[SinkProgress]], None]


@dataclass
class _Running:
    """One sink: its query, or when it is started again."""

    progress: SinkProgress
    started: Started | None = None
    failures_in_row: int = 0
    again_at_s: float | None = None
    # The time of Spark's last report: asking for all of them is dear, and an idle query has few.
    last_report: str = ""

    @property
    def is_over(self) -> bool:
        return self.progress.state in {"finished", "stopped", "failed"}


def next_pause_ms(restarts: Restarts, failures_in_row: int) -> int | None:
    """How long to wait before another try; None when there is none. 1 is the first failure."""
    if failures_in_row > restarts.attempts:
        return None
    return min(restarts.first_pause * 2 ** min(failures_in_row - 1, 30), restarts.longest_pause)


def refuse_endless(loaded: LoadedPipeline) -> None:
    """Until the end and no more: with timers of processing time there is no end, for a timer may always come."""
    for name, step in loaded.pipeline.steps.items():
        if step.stateful is not None and step.stateful.time == "processing":
            where = loaded.document.where(("steps", name, "stateful", "time"), at_key=False)
            raise BadPipeline(
                f"{where}: step `{name}` has timers of processing time, so a run with --once (or `trigger: once`) "
                "would never end; use `time: event`, or run it without --once"
            )


class PipelineRun:
    def __init__(
        self,
        loaded: LoadedPipeline,
        spark: "SparkSession",
        *,
        is_once: bool = False,
        on_rows: Callable[[ConsoleRows], None] = lambda rows: None,
    ) -> None:
        self._loaded = loaded
        self._trigger = Trigger(is_once=True) if is_once else loaded.pipeline.trigger
        self._on_rows = on_rows
        self._status = StatusFile(loaded.checkpoint)
        self._stop_asked = threading.Event()
        self._began_ms = int(time.time() * 1000)
        self._sinks = {name: _Running(SinkProgress(name)) for name in loaded.pipeline.sinks}
        if self._trigger.is_once:
            refuse_endless(loaded)
        self._session = pipeline_session(spark, loaded)

    @property
    def progress(self) -> list[SinkProgress]:
        return [running.progress for running in self._sinks.values()]

    def __enter__(self) -> Self:
        self._status.__enter__()
        try:
            for name in self._sinks:
                self._start(name)
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def ask_to_stop(self) -> None:
        """From a signal handler or another thread: `wait` returns when the current batches are done."""
        self._stop_asked.set()

    def wait(self, on_change: OnChange = lambda progress: None) -> None:
        """Until all queries are done or a stop was asked for; QueryFailed where one failed for good."""
        shown_s = 0.0
        while not self._stop_asked.is_set():
            is_changed = self._look()
            now_s = time.monotonic()
            failed = next((one for one in self.progress if one.state == "failed"), None)
            is_over = all(running.is_over for running in self._sinks.values())
            if is_changed or is_over or failed is not None or now_s - shown_s >= STATUS_EVERY_S:
                shown_s = now_s
                on_change(self.progress)
                self._write_status()
            if failed is not None:
                self._stop_gracefully()
                raise QueryFailed(failed.sink, failed.error or "failed")
            if is_over:
                return
            self._stop_asked.wait(LOOK_EVERY_S)
        self._stop_gracefully()
        on_change(self.progress)

    def close(self) -> None:
        """End at once whatever still runs."""
        for running in self._sinks.values():
            if running.started is not None and running.started.query.isActive:
                running.started.query.stop()
            if not running.is_over:
                running.progress.state = "stopped"
        self._write_status()
        self._status.__exit__(None, None, None)

    def _start(self, name: str) -> None:
        loaded = self._loaded
        running = self._sinks[name]
        reads = loaded.pipeline.sinks[name].input
        names = loaded.graph.needed_by(reads)
        flowing = streaming_names(loaded.pipeline, loaded.graph)
        sources = loaded.pipeline.sources
        identities = [f"{one}: {sources[one].identity}" for one in sources if one in names & flowing]
        self._status.remember_sources(name, identities)
        # Built anew each time: what is read once (a table, a file) is then read again after a restart.
        frames = build_frames(self._session, loaded, names, query_name(loaded, name))
        running.again_at_s = None
        try:
            running.started = start_query(loaded, name, frames[reads], self._trigger, self._on_rows)
        except Exception as fault:
            failure = explain_failure(name, fault, checkpoint_of(loaded, name))
            where = loaded.document.where(("sinks", name))
            raise BadPipeline(f"{where}: {failure}") from fault
        running.progress.state = "running"

    def _look(self) -> bool:
        """One round over all sinks; whether something is worth showing."""
        is_changed = False
        for name, running in self._sinks.items():
            if running.is_over:
                continue
            if running.again_at_s is not None:
                if time.monotonic() >= running.again_at_s:
                    self._start_again(name, running)
                    is_changed = True
                continue
            assert running.started is not None
            query = running.started.query
            # Asked before the reports are read: those of a query that is over are then all there.
            is_active = query.isActive
            if self._take_reports(running, running.started):
                running.failures_in_row = 0
                running.progress.error = None
                is_changed = True
            if not is_active:
                is_changed = True
                error = query.exception()
                if error is None:
                    running.progress.state = "finished" if self._trigger.is_once else "stopped"
                else:
                    self._failed(running, explain_failure(name, error, checkpoint_of(self._loaded, name)))
        return is_changed

    def _take_reports(self, running: _Running, started: Started) -> bool:
        last = started.query.lastProgress
        if last is None or (stamp := str(_report(last).get("timestamp"))) == running.last_report:
            return False
        running.last_report = stamp
        reports = [_report(one) for one in started.query.recentProgress]
        return running.progress.take(reports, started.written, OBSERVED)

    def _start_again(self, name: str, running: _Running) -> None:
        running.progress.restarts += 1
        try:
            self._start(name)
        except Exception as fault:
            self._failed(running, explain_failure(name, fault, checkpoint_of(self._loaded, name)))

    def _failed(self, running: _Running, failure: QueryFailed) -> None:
        running.failures_in_row += 1
        running.progress.error = failure.why
        pause_ms = None if failure.is_final else next_pause_ms(self._loaded.pipeline.restarts, running.failures_in_row)
        if pause_ms is None:
            running.progress.state = "failed"
        else:
            running.progress.state = "waiting"
            running.again_at_s = time.monotonic() + pause_ms / 1000

    def _stop_gracefully(self) -> None:
        """Each query is stopped where its current batch ends; one that has none is stopped at once."""
        active = {
            name: running
            for name, running in self._sinks.items()
            if running.started is not None and running.started.query.isActive
        }
        at_first = {name: running.progress.last_batch for name, running in active.items()}
        deadline_s = time.monotonic() + GRACE_S
        while active:
            for name, running in list(active.items()):
                assert running.started is not None
                query = running.started.query
                self._take_reports(running, running.started)
                is_between = running.progress.last_batch != at_first[name] or not query.status["isTriggerActive"]
                if is_between or not query.isActive or time.monotonic() > deadline_s:
                    query.stop()
                    del active[name]
            if active:
                time.sleep(LOOK_EVERY_S / 4)
        for running in self._sinks.values():
            if not running.is_over:
                running.progress.state = "stopped"

    def _write_status(self) -> None:
        self._status.write(
            {
                "pipeline": self._loaded.pipeline.name,
                "file": self._loaded.document.file,
                "began_ms": self._began_ms,
                "written_ms": int(time.time() * 1000),
                "sinks": [progress.as_json() for progress in self.progress],
            }
        )


def _report(progress: Any) -> Mapping[str, Any]:
    """Spark hands out a dictionary or an object, depending on its version and way of connecting."""
    return progress if isinstance(progress, dict) else json.loads(progress.json)
