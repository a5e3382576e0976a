"""The page's files: served safely and fast, and written so that data can never become markup."""

import gzip
import re
from importlib.resources import files

import httpx
import pytest
from starlette.applications import Starlette
from starlette.routing import Route

from penstock.gateway.console import assets

STATIC = files("penstock.gateway.console") / "static"
SCRIPTS = [
    (entry.name, entry.read_text())
    for folder in (STATIC, STATIC / "pages")
    for entry in folder.iterdir()
    if entry.name.endswith(".js")
]


@pytest.fixture
def client() -> httpx.AsyncClient:
    routes = [
        Route("/", assets.serve_page),
        Route("/console/{path:path}", assets.serve_page),
        Route(assets.PREFIX + "/{version}/{name:path}", assets.serve_asset),
        Route("/favicon.ico", assets.serve_icon),
    ]
    transport = httpx.ASGITransport(Starlette(routes=routes))
    return httpx.AsyncClient(transport=transport, base_url="http://localhost")


async def test_every_file_the_page_names_is_there_packed_and_kept_for_ever(client: httpx.AsyncClient) -> None:
    page = await client.get("/console/topics/a%2Fb/settings")
    assert page.status_code == 200
    named = re.findall(r'(?:src|href)="(/console-assets/[^"]+)"', page.text)
    assert len(named) > 5
    for address in named:
        answer = await client.get(address)
        assert answer.status_code == 200, address
        assert "immutable" in answer.headers["cache-control"]
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert (await client.get(address, headers={"if-none-match": answer.headers["etag"]})).status_code == 304
    assert (await client.get(named[0].replace(assets.load_assets()[0], "0" * 16))).status_code == 404
    assert (await client.get(assets.PREFIX + f"/{assets.load_assets()[0]}/..%2f__init__.py")).status_code == 404


def test_what_a_first_visit_loads_is_small() -> None:
    _, found = assets.load_assets()
    everything = sum(len(asset.packed or asset.plain) for asset in found.values())
    assert everything < 80_000
    for asset in found.values():
        assert asset.packed is None or gzip.decompress(asset.packed) == asset.plain


async def test_the_page_allows_itself_nothing_it_does_not_need(client: httpx.AsyncClient) -> None:
    page = await client.get("/")
    policy = page.headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert "require-trusted-types-for 'script'" in policy
    assert not re.search(r"<script(?![^>]*src=)|<style|style=|\son\w+=", page.text)


def test_every_module_that_is_imported_exists() -> None:
    _, found = assets.load_assets()
    for name in found:
        folder = name.rpartition("/")[0]
        for path in re.findall(r'(?:from|import)\s*\(?"(\.[^"]+)"', found[name].plain.decode()):
            steps = [step for step in folder.split("/") if step]
            for step in path.split("/"):
                if step == "..":
                    steps.pop()
                elif step != ".":
                    steps.append(step)
            assert "/".join(steps) in found, f"{name} imports {path}"


@pytest.mark.parametrize(("name", "text"), SCRIPTS, ids=[name for name, _ in SCRIPTS])
def test_scripts_are_short_and_cannot_write_markup_or_call_elsewhere(name: str, text: str) -> None:
    assert len(text.splitlines()) <= 250
    assert not re.search(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function|srcdoc", text)
    assert not [one for one in re.findall(r"https?://[^\s\"']+", text) if "www.w3.org/2000/svg" not in one]
    assert 'setAttribute("style"' not in text
