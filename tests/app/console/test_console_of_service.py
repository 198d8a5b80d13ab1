"""The console in a real browser on the real HTTP service: what was put is found, at every state."""

from __future__ import annotations

import io
import json
import re
import shlex
import urllib.request
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

import pytest
from playwright.sync_api import Page, expect
from typer.testing import CliRunner

from tests.app.console.conftest import copied_commands
from tests.patience import PATIENCE_S
from tierdex.app.cli.commands import make_cli
from tierdex.app.http.application import create_app
from tierdex.app.http.server_settings import ServerSettings
from tierdex.app.logs import make_logger
from tierdex.index_service.index import Index

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from fastapi import FastAPI

pytestmark = pytest.mark.browser

HOSTILE = '<img src=x onerror="window.hacked=1">'
OFFSET = (1 << 62) + 1  # a double would round it
NEW_YEAR = 1_356_998_400_000
HOUR = 3_600_000


@pytest.fixture(scope="module")
def index(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Index]:
    small = {"slot_count": 64, "item_capacity": 1000, "background": False}
    with Index.open(tmp_path_factory.mktemp("data"), **small) as index:
        yield index


@pytest.fixture(scope="module")
def address(index: Index, serve: Callable[[FastAPI], str]) -> str:
    """Serve the index with flights put over HTTP: half of them published, half in the open file."""
    address = serve(create_app(index, ServerSettings(), logger=make_logger(io.BytesIO())))
    flights = [
        {
            "topic": "UA", "keys": ["N37422", f"UA{number}"], "message_id": f"flight-{number}",
            "queue_id": number % 3, "offset": OFFSET + 97 * number, "size": 97,
            "timestamp": NEW_YEAR + number * HOUR,
        }
        for number in range(40)
    ]  # fmt: skip
    put(address, flights[:20])
    index.roll()
    index.run_compaction()
    put(address, [*flights[20:], {**flights[0], "keys": [HOSTILE], "message_id": None}])
    return address


def put(address: str, entries: list[dict[str, Any]]) -> None:
    body = json.dumps({"entries": entries}).encode()
    request = urllib.request.Request(
        f"{address}v1/entries", body, {"content-type": "application/json"}
    )
    with urllib.request.urlopen(request, timeout=PATIENCE_S) as response:
        assert json.load(response)["accepted"] == len(entries)


def look_up(page: Page, topic: str, key: str) -> None:
    page.get_by_label("Topic", exact=True).fill(topic)
    page.get_by_label("Key", exact=True).fill(key)
    page.get_by_role("button", name="Look up").click()


def test_what_was_put_is_found_by_key_by_message_id_and_by_link(page: Page, address: str) -> None:
    page.goto(address)
    page.locator("#begin").fill("2013-01-01 10:00")
    page.locator("#end").fill("2013-01-02 05:59:59.999")
    look_up(page, "UA", "N37422")
    rows = page.locator("#entries tbody tr")
    expect(rows).to_have_count(20)
    expect(rows.filter(has_text="uploaded")).to_have_count(10)
    expect(rows.filter(has_text="unsealed")).to_have_count(10)
    expect(page.get_by_role("status")).to_contain_text("Complete")
    expect(page.locator("#entries")).to_contain_text(f"{OFFSET + 97 * 19:,}")
    expect(page.locator("#waterfall tbody tr[data-outcome=read]")).to_have_count(2)
    link = page.url
    page.get_by_role("tab", name="Message ID").click()
    page.get_by_role("textbox", name="Message ID").fill("flight-12")
    page.get_by_role("button", name="Look up").click()
    expect(rows).to_have_count(1)
    page.goto("about:blank")
    page.goto(link)
    expect(rows).to_have_count(20)


def test_lookup_is_taken_along_as_curl_command_and_program(page: Page, address: str) -> None:
    key = 'it\'s $HOME \\ "é"'
    put(
        address,
        [
            {
                "topic": "UA",
                "key": key,
                "queue_id": 0,
                "offset": 7,
                "size": 1,
                "timestamp": NEW_YEAR,
            }
        ],
    )
    link = urlencode(
        {
            "topic": "UA",
            "key": key,
            "begin": NEW_YEAR - 1,
            "end": "2013-01-02 00:00",
            "max_count": 5,
        }
    )
    page.goto(f"{address}#lookup?{link}")
    expect(page.locator("#entries tbody tr")).to_have_count(1)
    expect(page.get_by_role("group", name="Copy as").get_by_role("button")).to_have_count(4)
    curl, command, program = copied_commands(page)
    words = shlex.split(curl)
    asked = urlencode([tuple(word.split("=", 1)) for word in words[4::2]])
    with urllib.request.urlopen(f"{words[2]}?{asked}", timeout=PATIENCE_S) as response:
        assert [each["offset"] for each in json.load(response)["entries"]] == [7]
    said = CliRunner().invoke(make_cli(), [*shlex.split(command)[1:], "-o", "json"])
    assert [each["offset"] for each in json.loads(said.stdout)["entries"]] == [7]
    told: dict[str, Any] = {}
    exec(program, told)  # what the page copies, as a user would run it
    assert [each.offset for each in told["answer"].entries] == [7]


def test_pages_follow_the_cursor_across_files(page: Page, address: str) -> None:
    page.goto(f"{address}#lookup?topic=UA&key=N37422&max_count=15")
    rows = page.locator("#entries tbody tr")
    expect(rows).to_have_count(15)
    expect(page.get_by_role("heading", name="15 of 40 entries")).to_be_visible()
    expect(page.locator(".chart-of-entries")).to_contain_text(
        "40 entries from 2013-01-01 00:00:00 to"
    )
    page.get_by_role("button", name="Next 15").click()
    expect(rows).to_have_count(30)
    page.get_by_role("button", name="Next 15").click()
    expect(rows).to_have_count(40)
    expect(page.get_by_role("heading", name="40 entries")).to_be_visible()


def test_link_with_an_unknown_parameter_is_answered_without_it(page: Page, address: str) -> None:
    page.goto(
        f"{address}#lookup?topic=UA&key=N37422&max_count=15&queue=3"
    )  # the API refuses `queue`
    expect(page.locator("#entries tbody tr")).to_have_count(15)
    expect(page.locator("#link-note")).to_contain_text("This link says queue")


def test_what_was_meant_is_one_click_away_from_an_empty_answer(page: Page, address: str) -> None:
    page.goto(address)
    rows = page.locator("#entries tbody tr")
    said = page.get_by_role("status")
    look_up(page, "ua", "N37422")
    expect(said).to_contain_text("No topic “ua” is known here")
    page.get_by_role("link", name="UA", exact=True).click()
    expect(rows).to_have_count(40)
    look_up(page, "UA", " UA7 ")
    expect(said).to_contain_text("Nothing found")
    page.get_by_role("link", name="UA7", exact=True).first.click()
    expect(page.locator("#key")).to_have_value("UA7")
    expect(rows).to_have_count(1)
    look_up(page, "UA", "flight-12")
    expect(said).to_contain_text("Nothing found")
    page.get_by_role("link", name="flight-12").click()
    expect(page.get_by_role("tab", name="Message ID")).to_have_attribute("aria-selected", "true")
    expect(rows).to_have_count(1)
    page.get_by_role("textbox", name="Message ID").fill("UA12")
    page.get_by_role("button", name="Look up").click()
    expect(said).to_contain_text("none holds this message ID")
    page.get_by_role("link", name="UA12").click()  # the index holds one topic: it is filled in
    expect(rows).to_have_count(1)
    expect(page.locator(".note.good")).to_have_count(1)


def test_hostile_key_is_text_and_a_refusal_is_explained(page: Page, address: str) -> None:
    page.goto(address)
    look_up(page, "UA", HOSTILE)
    expect(page.locator("#entries tbody tr")).to_have_count(1)
    look_up(page, "UA", "x" * 5000)
    expect(page.locator("#key-error")).to_contain_text("(400)")
    expect(page.locator("#key")).to_have_attribute("aria-invalid", "true")
    assert page.evaluate("window.hacked") is None


def test_files_and_compaction_are_shown(page: Page, address: str) -> None:
    page.goto(f"{address}#files")
    expect(page.get_by_role("button", name="unsealed")).to_contain_text("1")
    expect(page.locator(".chart-axis")).to_contain_text("2013-01-01")  # hours need their day
    page.locator("#files-chart").focus()
    page.keyboard.press("End")
    expect(page.locator("#file-details")).to_contain_text("uploaded")
    expect(page.locator("#file-details")).to_contain_text("2013-01-01 19:00:00.000 UTC")
    life = page.get_by_role("list", name="Life of the file").get_by_role("listitem")
    expect(life.nth(2)).to_have_text(re.compile(r"compacted 20.* UTC \(\+ .*\), in .* m?s"))
    expect(life.nth(3)).to_have_text(re.compile(r"uploaded 20.* UTC \(\+ .*\)"))
    page.get_by_role("link", name="Compaction").click()
    expect(page.locator("#compaction-body")).to_contain_text("Nothing is running")
    expect(page.locator("#compaction-body")).to_contain_text("published1")
