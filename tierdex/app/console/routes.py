"""The two routes of the console, with their cache and security headers.

The assets are read when the router is made. An unknown name is the application's 404.

Depends on fastapi.
"""

from __future__ import annotations

import hashlib
from importlib.resources import files
from typing import TYPE_CHECKING, Annotated, Final, NamedTuple

from fastapi import APIRouter, Header, HTTPException
from fastapi.responses import Response

if TYPE_CHECKING:
    from collections.abc import Mapping

CONTENT_SECURITY_POLICY: Final = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self'",
        "connect-src 'self'",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
        "require-trusted-types-for 'script'",  # text from the server can never become markup
        "trusted-types 'none'",
    )
)
MEDIA_TYPES: Final = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}


class Asset(NamedTuple):
    """One static file as it goes over the wire."""

    content: bytes
    media_type: str
    etag: str


def load_assets() -> Mapping[str, Asset]:
    """Return every file of the console by its name."""
    assets = {}
    for entry in files(__package__).joinpath("static").iterdir():
        suffix = entry.name[entry.name.rfind(".") :]
        if suffix in MEDIA_TYPES:
            content = entry.read_bytes()
            etag = f'W/"{hashlib.sha256(content).hexdigest()[:32]}"'
            assets[entry.name] = Asset(content, MEDIA_TYPES[suffix], etag)
    return assets


def console_router() -> APIRouter:
    """Return the routes `/` and `/console/{name}`; they are not part of the API's description."""
    assets = load_assets()
    router = APIRouter(include_in_schema=False)

    def answer(name: str, if_none_match: str | None) -> Response:
        asset = assets.get(name)
        if asset is None:
            raise HTTPException(404, f"the console has no file {name!r}")
        headers = {
            "ETag": asset.etag,
            "Cache-Control": "no-cache",  # a revalidation is cheap; a stale module is not
            "Content-Security-Policy": CONTENT_SECURITY_POLICY,
            "X-Content-Type-Options": "nosniff",
            "Referrer-Policy": "no-referrer",
            "Cross-Origin-Opener-Policy": "same-origin",
        }
        if if_none_match == asset.etag:
            return Response(status_code=304, headers=headers)
        return Response(asset.content, media_type=asset.media_type, headers=headers)

    @router.get("/")
    def console_page(if_none_match: Annotated[str | None, Header()] = None) -> Response:
        return answer("index.html", if_none_match)

    @router.get("/console/{name}")
    def console_asset(name: str, if_none_match: Annotated[str | None, Header()] = None) -> Response:
        return answer(name, if_none_match)

    return router
