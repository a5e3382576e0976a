"""Fixtures: `site`, a gateway beside a broker with traffic; `visit`, a page of a real browser that may not complain."""

import asyncio
import json
import shutil
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest
import uvloop
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from playwright.sync_api import Browser, Page, sync_playwright

from penstock.gateway.server import GatewayServer
from penstock.gateway.settings import GatewaySettings
from penstock.model import Endpoint
from penstock.testing import EmbeddedBroker

DEADLINE_S = 30.0
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
HOSTILE = "<script>document.title='owned'</script><img src=x onerror=alert(1)>"

PAYMENT_1 = {"type": "record", "name": "Payment", "fields": [{"name": "id", "type": "long", "doc": "Its number."}]}
PAYMENT_2 = {**PAYMENT_1, "fields": [*PAYMENT_1["fields"], {"name": "note", "type": "string", "default": ""}]}


class Site:
    """A broker with topics, groups, transactions, schemas, hostile records and steady traffic; a gateway beside it."""

    def __init__(self, directory: Path) -> None:
        self.broker = EmbeddedBroker(directory).start()
        self._loop = uvloop.new_event_loop()
        self._serving = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._serving.start()
        self._ending = threading.Event()
        self._working: list[threading.Thread] = []
        self.admin = AdminClient({"bootstrap.servers": self.broker.bootstrap})
        self.producer = Producer({"bootstrap.servers": self.broker.bootstrap, "linger.ms": 20})
        self._fill()
        self.server: GatewayServer = self._run(self._serve())
        self.url = f"http://{self.server.endpoint}"
        self.http = httpx.Client(base_url=self.url, timeout=DEADLINE_S)
        self._register()
        for work in (self._write, self._read, self._report_as_spark):
            thread = threading.Thread(target=work, daemon=True)
            thread.start()
            self._working.append(thread)

    @property
    def services(self) -> Any:
        return self.server.app.state.services

    def post(self, path: str, body: Any) -> Any:
        answer = self.http.post(f"/api/{path}", json=body)
        assert answer.status_code == 200, answer.text
        return answer.json()

    def close(self) -> None:
        self._ending.set()
        for thread in self._working:
            thread.join(DEADLINE_S)
        self.http.close()
        self._run(self.server.stop())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._serving.join(DEADLINE_S)
        self.producer.flush(10)
        self.broker.stop()

    async def _serve(self) -> GatewayServer:
        server = GatewayServer(GatewaySettings(self.broker.bootstrap, listen=Endpoint("127.0.0.1", 0)))
        await server.start()
        return server

    def _run(self, work: Any) -> Any:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(DEADLINE_S)

    def _fill(self) -> None:
        topics = [NewTopic("orders", 4), NewTopic("payments", 2), NewTopic("hostile", 1), NewTopic("doomed", 1)]
        topics += [NewTopic(f"team.stream-{one:03}", 1) for one in range(120)]
        for future in self.admin.create_topics(topics).values():
            future.result()
        for one in range(400):
            body = {"order": one, "customer": {"id": one % 7}, "state": "open", "big": 12345678901234567890}
            self.producer.produce("orders", json.dumps(body), key=f"order-{one}", headers=[("trace", f"{one:08x}")])
        self.producer.produce("hostile", HOSTILE, key="<b>key</b>", headers=[("<i>header</i>", "<u>v</u>")])
        self.producer.produce("hostile", b"\xff\x00\xfe", key=b"\x80")
        self.producer.produce("hostile", "x" * 500_000, key="large")
        self.producer.flush()

    def _register(self) -> None:
        deadline = 300
        while self.http.get("/health/ready").status_code != 200:
            deadline -= 1
            assert deadline, "the gateway did not get ready"
            self._ending.wait(0.1)
        self.services.console.watcher.metrics = (self.broker.http + "/metrics",)
        for schema in (PAYMENT_1, PAYMENT_2):
            self.post("subject/register", {"name": "payments-value", "kind": "AVRO", "text": json.dumps(schema)})
        record = {"topic": "payments", "partition": 0, "key": {"format": "text", "data": "p1"}}
        data = json.dumps({"id": 7, "note": "thanks"})
        self.post("messages/produce", {**record, "value": {"format": "schema", "data": data}})

    def _write(self) -> None:
        sender = Producer({"bootstrap.servers": self.broker.bootstrap, "transactional.id": "checkout"})
        sender.init_transactions()
        count = 0
        while not self._ending.wait(0.2):
            count += 1
            for one in range(20):
                self.producer.produce("orders", json.dumps({"order": count * 100 + one, "state": "new"}))
            self.producer.poll(0)
            sender.begin_transaction()
            sender.produce("payments", b'{"plain": true}', partition=1)
            sender.commit_transaction()

    def _read(self) -> None:
        settings = {"bootstrap.servers": self.broker.bootstrap, "auto.offset.reset": "earliest"}
        reader = Consumer({**settings, "group.id": "billing", "client.id": "billing-1", "auto.commit.interval.ms": 500})
        reader.subscribe(["orders"])
        while not self._ending.is_set():
            reader.consume(15, 0.3)
        reader.close()

    def _report_as_spark(self) -> None:
        query = Consumer({"bootstrap.servers": self.broker.bootstrap, "group.id": "spark-large-orders"})
        offset = 10
        while not self._ending.wait(0.5):
            query.commit(offsets=[TopicPartition("orders", one, offset) for one in range(4)], asynchronous=False)
            offset += 1
        query.close()


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    running = Site(tmp_path_factory.mktemp("site"))
    yield running
    running.close()


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """Not longer than its module: while it runs, its loop keeps async tests from running in this thread."""
    if CHROMIUM is None:
        pytest.skip("there is no chromium here")
    with sync_playwright() as playwright:
        # As root, chromium's sandbox refuses to start; the page is our own.
        running = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox", "--disable-dev-shm-usage"])
        yield running
        running.close()


Visit = Callable[..., Page]


@pytest.fixture
def visit(browser: Browser, site: Site) -> Iterator[Visit]:
    """Opens a page and waits until it has drawn itself. Complaints and foreign requests fail the test."""
    contexts: list[Any] = []
    complaints: list[str] = []

    def note(request: Any) -> None:
        if urlsplit(request.url).netloc != urlsplit(site.url).netloc and not request.url.startswith("data:"):
            complaints.append(f"request to {request.url}")

    def listen(page: Page) -> None:
        page.on("console", lambda message: message.type in ("error", "warning") and complaints.append(message.text))
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on("request", note)

    def open_page(path: str = "", width: int = 1280, height: int = 900, theme: str = "light") -> Page:
        context = browser.new_context(
            viewport={"width": width, "height": height},
            color_scheme=theme,
            reduced_motion="reduce",
            accept_downloads=True,
        )
        contexts.append(context)
        page = context.new_page()
        page.set_default_timeout(20_000)
        listen(page)
        page.goto(f"{site.url}/console{path}")
        page.locator("h1").first.wait_for()
        return page

    yield open_page
    for context in contexts:
        context.close()
    assert complaints == []
