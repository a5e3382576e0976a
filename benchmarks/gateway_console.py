"""The console in a real browser: how soon it paints, and what having it open costs a producer.

Called by gateway.py, which says how the measurements are arranged. Needs chromium.
"""

import contextlib
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Generator
from typing import Any

from playwright.sync_api import Browser, sync_playwright

from gateway_load import ROUNDS, gateway
from harness import RunningBroker, broker, spread

TOPICS = 10_000
FEW_TOPICS = 100
FIRST_PAINT = """() => new Promise((done) => new PerformanceObserver((list) => {
    for (const entry of list.getEntriesByName("first-contentful-paint")) done(entry.startTime);
}).observe({ type: "paint", buffered: true }))"""
# Notes when the first element of this kind is there.
NOTE = """new MutationObserver((_, watch) => {
    if (!document.querySelector(%s)) return;
    window.shownMs = performance.now();
    watch.disconnect();
}).observe(document, { childList: true, subtree: true })"""
PAGES = {"overview": ("/console", "main svg, main canvas"), "topics": ("/console/topics", "main tbody td a")}

SENT_PER_S = 2_000
SENT_SECONDS = 6


def first_paint() -> dict[str, Any]:
    """The console at a broker of ten thousand topics, with an empty cache each time."""
    found: dict[str, Any] = {}
    with broker() as running, chromium() as browser:
        _create_topics(running, TOPICS)
        for name, (path, sought) in PAGES.items():
            with gateway(running) as (address, _):
                # Nobody has looked before: what the page shows has first to be asked of the cluster.
                first = _paint(browser, address, path, sought)
                rounds = [_paint(browser, address, path, sought) for _ in range(ROUNDS)]
            found[name] = {
                **spread("first_paint_ms", [each[0] for each in rounds]),
                **spread("rows_ms", [each[1] for each in rounds]),
                "very_first_paint_ms": first[0],
                "very_first_rows_ms": first[1],
            }
    return found


def _paint(browser: Browser, address: str, path: str, sought: str) -> tuple[float, float]:
    context = browser.new_context(viewport={"width": 1280, "height": 900})
    page = context.new_page()
    page.add_init_script(NOTE % json.dumps(sought))
    page.goto(f"http://{address}{path}")
    page.locator(sought).first.wait_for()
    painted, shown = float(page.evaluate(FIRST_PAINT)), float(page.evaluate("window.shownMs"))
    context.close()
    return painted, shown


def console_beside(topics: int, *, is_same_core: bool = False) -> dict[str, Any]:
    """A producer's latencies with the console open and without, in turns."""
    cores = sorted(os.sched_getaffinity(0))
    gateway_core = cores[0] if is_same_core else cores[-1]
    found: dict[str, list[dict[str, float]]] = {"without": [], "with": []}
    with contextlib.ExitStack() as stack:
        with on_core(cores[0]):
            running = stack.enter_context(broker())
        with on_core(cores[-1]):
            browser = stack.enter_context(chromium())
        _create_topics(running, topics)
        for number in range(ROUNDS):
            for which in ("without", "with") if number % 2 == 0 else ("with", "without"):
                with contextlib.ExitStack() as turn:
                    with on_core(gateway_core):
                        address, _ = turn.enter_context(gateway(running))
                    page = turn.enter_context(contextlib.closing(browser.new_page()))
                    if which == "with":
                        page.goto(f"http://{address}/console")
                        page.locator(PAGES["overview"][1]).first.wait_for()
                    with on_core(cores[0]):
                        found[which].append(_latency(running))
    return {
        which: {
            key: value
            for name in ("p50_ms", "p99_ms", "p99_9_ms")
            for key, value in spread(name, [each[name] for each in rounds]).items()
        }
        for which, rounds in found.items()
    }


def _latency(running: RunningBroker) -> dict[str, float]:
    command = [sys.executable, "-m", "penstock", "bench", "latency", "--json", "--bootstrap", running.address]
    command += ["--throughput", str(SENT_PER_S), "--seconds", str(SENT_SECONDS), "--timeout", "30"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return json.loads(done.stdout)["latency"]


def _create_topics(running: RunningBroker, count: int) -> None:
    with running.connect() as connection:
        for first in range(0, count, 1000):
            names = [f"team.stream-{number:05}" for number in range(first, min(first + 1000, count))]
            wanted = [{"name": name, "num_partitions": 1, "replication_factor": 1} for name in names]
            answer = connection.call(19, 5, {"topics": wanted, "timeout": 60_000})
            assert all(topic.error_code == 0 for topic in answer.topics), answer.topics[0]


@contextlib.contextmanager
def chromium() -> Generator[Browser]:
    found = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    assert found, "there is no chromium here"
    with sync_playwright() as playwright:
        # As root, chromium's sandbox refuses to start; the page is our own.
        started = playwright.chromium.launch(executable_path=found, args=["--no-sandbox", "--disable-dev-shm-usage"])
        yield started
        started.close()


@contextlib.contextmanager
def on_core(core: int) -> Generator[None]:
    """What is started inside stays on this core."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {core})
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)
