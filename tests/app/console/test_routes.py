from __future__ import annotations

import re
from pathlib import Path

import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient

from tierdex.app.console import console_router

STATIC = Path(__file__).parents[3] / "tierdex" / "app" / "console" / "static"


@pytest.fixture
def client() -> TestClient:
    app = FastAPI()
    app.include_router(console_router())
    return TestClient(app)


def test_page_and_every_asset_that_it_names_are_served(client: TestClient) -> None:
    page = client.get("/")
    assert page.headers["content-type"].startswith("text/html")
    for name in re.findall(r'(?:src|href)="(console/[^"]+)"', page.text):
        assert client.get(f"/{name}").status_code == 200, name


def test_every_module_that_is_imported_is_served(client: TestClient) -> None:
    for module in STATIC.glob("*.js"):
        for name in re.findall(r'from "\./([^"]+)"', module.read_text()):
            assert client.get(f"/console/{name}").status_code == 200, name


def test_unchanged_asset_is_answered_by_its_etag(client: TestClient) -> None:
    first = client.get("/console/console.js")
    again = client.get("/console/console.js", headers={"If-None-Match": first.headers["etag"]})
    assert again.status_code == 304
    assert again.content == b""


@pytest.mark.parametrize("name", ["absent.js", "routes.py", "..%2Froutes.py", "%2e%2e/keys.py"])
def test_file_outside_the_assets_is_not_found(client: TestClient, name: str) -> None:
    assert client.get(f"/console/{name}").status_code == 404


def test_policy_forbids_inline_code_and_other_hosts(client: TestClient) -> None:
    policy = client.get("/").headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert "http" not in policy


def test_no_asset_names_another_host_or_writes_markup() -> None:
    for path in STATIC.iterdir():
        text = path.read_text().replace("http://www.w3.org/2000/svg", "")  # a name, not an address
        assert not re.search(r"https?://", text), path.name
        assert not re.search(
            r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(", text
        )
        assert not re.search(r"<script>|\son[a-z]+=|<style|\sstyle=", text), path.name
