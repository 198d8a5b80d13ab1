"""The console in a real browser on the real HTTP service: what was put is found, at every state."""

from __future__ import annotations

import io
import json
import urllib.request
from typing import TYPE_CHECKING, Any

import pytest
from playwright.sync_api import Page, expect

from tests.app.small_index import SmallIndex
from tierdex.app.logs import make_logger
from tierdex.app.server_settings import ServerSettings
from tierdex.app.service import create_app

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from fastapi import FastAPI

pytestmark = pytest.mark.browser

HOSTILE = '<img src=x onerror="window.hacked=1">'
OFFSET = (1 << 62) + 1  # a double would round it
NEW_YEAR = 1_356_998_400_000


@pytest.fixture
def index() -> Iterator[Any]:
    return SmallIndex()


@pytest.fixture
def address(index: Any, serve: Callable[[FastAPI], str]) -> str:
    """Serve the index and put flights and one hostile key over HTTP."""
    address = serve(create_app(index, ServerSettings(), logger=make_logger(io.BytesIO())))
    flights = [
        {
            "topic": "UA", "keys": ["N37422", f"UA{number}"], "message_id": f"flight-{number}",
            "queue_id": number % 3, "offset": OFFSET + 97 * number, "size": 97,
            "timestamp": NEW_YEAR + number * 3_600_000,
        }
        for number in range(40)
    ]  # fmt: skip
    hostile = {**flights[0], "keys": [HOSTILE], "message_id": None}
    request = urllib.request.Request(
        f"{address}v1/entries",
        json.dumps({"entries": [*flights, hostile]}).encode(),
        {"content-type": "application/json"},
    )
    with urllib.request.urlopen(request, timeout=10) as response:
        assert json.load(response)["accepted"] == 41
    return address


def look_up(page: Page, topic: str, key: str) -> None:
    page.get_by_label("Topic", exact=True).fill(topic)
    page.get_by_label("Key", exact=True).fill(key)
    page.get_by_role("button", name="Look up").click()


def test_what_was_put_is_found_by_key_by_message_id_and_by_link(page: Page, address: str) -> None:
    page.goto(address)
    page.get_by_label("From").fill("2013-01-01 10:00")
    page.get_by_label("To", exact=True).fill("2013-01-01 19:59:59.999")
    look_up(page, "UA", "N37422")
    rows = page.locator("#entries tbody tr")
    expect(rows).to_have_count(10)
    expect(page.get_by_role("status")).to_contain_text("Complete")
    expect(page.locator("#entries")).to_contain_text(f"{OFFSET + 97 * 19:,}")
    expect(page.get_by_role("heading", name="Explain")).to_be_visible()
    link = page.url
    page.get_by_role("tab", name="Message ID").click()
    page.get_by_role("textbox", name="Message ID").fill("flight-12")
    page.get_by_role("button", name="Look up").click()
    expect(rows).to_have_count(1)
    page.goto("about:blank")
    page.goto(link)
    expect(rows).to_have_count(10)


def test_hostile_key_is_text_and_a_refusal_is_explained(page: Page, address: str) -> None:
    page.goto(address)
    look_up(page, "UA", HOSTILE)
    expect(page.locator("#entries tbody tr")).to_have_count(1)
    look_up(page, "UA", "x" * 5000)
    expect(page.locator("#form-note")).to_contain_text("(400)")
    expect(page.locator("#key")).to_have_attribute("aria-invalid", "true")
    assert page.evaluate("window.hacked") is None


def test_files_and_compaction_are_shown(page: Page, address: str) -> None:
    page.goto(f"{address}#files")
    expect(page.get_by_role("button", name="unsealed")).to_be_visible()
    page.locator("#files-chart").focus()
    page.keyboard.press("Home")
    expect(page.locator("#file-details")).to_contain_text("Items")
    page.get_by_role("link", name="Compaction").click()
    expect(page.locator("#compaction-body")).to_contain_text("Nothing is running")
