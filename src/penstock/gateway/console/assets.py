"""The page's files: read once, packed once, named by what they contain.

Called by gateway.console. All files lie under one path that contains a hash of all of them, so that modules import each
other by relative names, a browser keeps them for ever, and a new version is fetched at once.
Law: what the page may do is said in its headers: scripts and styles of its own only, requests to its own host only.
"""

import gzip
import hashlib
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from typing import NamedTuple

from starlette.requests import Request
from starlette.responses import Response

PREFIX = "/console-assets"
INDEX = "index.html"
PLACE = b"{{assets}}"
# Less is sent faster as it is than unpacked.
GZIP_FROM_BYTES = 500

MEDIA_TYPES = {
    "html": "text/html; charset=utf-8",
    "css": "text/css; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "svg": "image/svg+xml",
    "webmanifest": "application/manifest+json",
}

HARDENED = {
    "x-content-type-options": "nosniff",
    "referrer-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
}
PAGE_HEADERS = {
    **HARDENED,
    # Trusted types: even a mistake in a script of ours cannot turn data into markup.
    "content-security-policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
        "manifest-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
        "require-trusted-types-for 'script'; trusted-types 'none'"
    ),
    "x-frame-options": "DENY",
    "permissions-policy": "camera=(), geolocation=(), microphone=(), payment=()",
    "cache-control": "no-cache",
}


class Asset(NamedTuple):
    plain: bytes
    packed: bytes | None
    media_type: str
    tag: str


@cache
def load_assets() -> tuple[str, Mapping[str, Asset]]:
    """The hash of all, and every file by name; the page knows where the others are."""
    raw: dict[str, bytes] = {}
    folders = [("", files("penstock.gateway.console") / "static")]
    while folders:
        inside, folder = folders.pop()
        for entry in folder.iterdir():
            if entry.is_dir():
                folders.append((f"{inside}{entry.name}/", entry))
            elif entry.name.rpartition(".")[2] in MEDIA_TYPES:
                raw[inside + entry.name] = entry.read_bytes()
    whole = hashlib.sha256()
    for name in sorted(raw):
        whole.update(f"{name}\0{len(raw[name])}\0".encode() + raw[name])
    version = whole.hexdigest()[:16]
    raw[INDEX] = raw[INDEX].replace(PLACE, f"{PREFIX}/{version}".encode())
    return version, {name: _pack(name, content) for name, content in raw.items()}


def _pack(name: str, content: bytes) -> Asset:
    packed = gzip.compress(content, 9, mtime=0) if len(content) >= GZIP_FROM_BYTES else None
    tag = f'"{hashlib.sha256(content).hexdigest()[:20]}"'
    return Asset(content, packed, MEDIA_TYPES[name.rpartition(".")[2]], tag)


async def serve_page(request: Request) -> Response:
    """The same page for every address under /console: what it shows, its scripts read off the address."""
    _, assets = load_assets()
    return _answer(request, assets[INDEX], PAGE_HEADERS)


async def serve_asset(request: Request) -> Response:
    version, assets = load_assets()
    asset = assets.get(request.path_params["name"])
    if asset is None or request.path_params["version"] != version:
        return Response("there is no such file; reload the page", 404, HARDENED, "text/plain")
    return _answer(request, asset, {**HARDENED, "cache-control": "public, max-age=31536000, immutable"})


async def serve_icon(request: Request) -> Response:
    """Browsers ask for it by this name whatever the page says."""
    _, assets = load_assets()
    return _answer(request, assets["icon.svg"], {**HARDENED, "cache-control": "public, max-age=86400"})


def _answer(request: Request, asset: Asset, headers: Mapping[str, str]) -> Response:
    told = {**headers, "etag": asset.tag, "vary": "accept-encoding"}
    if request.headers.get("if-none-match") == asset.tag:
        return Response(None, 304, told)
    if asset.packed is not None and "gzip" in request.headers.get("accept-encoding", ""):
        return Response(asset.packed, 200, {**told, "content-encoding": "gzip"}, asset.media_type)
    return Response(asset.plain, 200, told, asset.media_type)
