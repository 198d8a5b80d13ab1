"""The console's queue page and the message under an entry, in a real browser, over a real message log."""

from __future__ import annotations

import io
import json
import shlex
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from playwright.sync_api import Page, expect
from typer.testing import CliRunner

from tests.app.small_index import SmallIndex
from tests.patience import PATIENCE_S
from tierdex.app.cli.commands import make_cli
from tierdex.app.http.application import create_app
from tierdex.app.http.server_settings import ServerSettings
from tierdex.app.logs import make_logger
from tierdex.log_service.message_log import MessageLog
from tierdex.resolving.message_fetcher import MessageFetcher
from tierdex.resolving.show_settings import ShowSettings

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from fastapi import FastAPI

pytestmark = pytest.mark.browser

HOSTILE = b'<img src=x onerror="window.hacked=1">'
BIG = (1 << 62) + 1  # a double would round it


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MessageLog]:
    with MessageLog.open(tmp_path_factory.mktemp("log"), node="n", journal_bytes=16 << 20) as log:
        log.append_batch(topic="many", queue_id=7, body=[b"body %d" % n for n in range(120)])
        log.append_batch(
            topic="orders", queue_id=0, timestamp=1_700_000_000_000, keys=[["ORDER-1"], None, None, None],
            body=[b'{"id":%d,"lines":[{"n":1},{}]}' % BIG, HOSTILE, b"\x00\xffab", b"x" * 5000],
            headers=[[("trace", b"7F")], None, None, None],
        )  # fmt: skip
        yield log


@pytest.fixture(scope="module")
def address(log: MessageLog, serve: Callable[[FastAPI], str]) -> Iterator[str]:
    index = SmallIndex()
    for offset in (0, 1):  # the second one is not what the log holds there
        index.put_batch(
            topic="orders", keys=["ORDER-1"], queue_id=0, offset=offset, size=1, timestamp=5
        )
    index.put_batch(
        topic="payments", keys=["ORDER-1"], queue_id=0, offset=9, size=1, timestamp=90_005
    )
    messages = MessageFetcher(None, ShowSettings(message_timeout=PATIENCE_S), log=log)
    app = create_app(
        index, ServerSettings(), log=log, messages=messages, logger=make_logger(io.BytesIO())
    )
    yield serve(app)
    messages.close()


def test_queue_is_shown_from_its_end_and_leafed_through(page: Page, address: str) -> None:
    page.goto(address)
    page.get_by_role("link", name="Messages").click()
    page.get_by_label("Topic of the queue").fill("many")
    page.get_by_label("Queue", exact=True).fill("7")
    page.get_by_role("button", name="Show").click()
    rows = page.locator("#messages tbody tr")
    expect(rows).to_have_count(50)
    expect(rows.last).to_contain_text("body 119")
    expect(page.get_by_role("button", name="Newer")).to_be_disabled()
    page.get_by_role("button", name="Older").click()
    expect(rows.first).to_contain_text("body 20")
    page.get_by_role("button", name="Older").click()
    expect(rows.first).to_contain_text("body 0")
    expect(page.get_by_role("button", name="Older")).to_be_disabled()
    assert "offset=0" in page.url
    page.go_back()
    expect(rows.first).to_contain_text("body 20")
    expect(page.locator("#queue-view")).to_contain_text("offsets 0 to below 120")


def test_bodies_are_shown_as_json_text_or_hex_and_never_as_markup(page: Page, address: str) -> None:
    page.goto(f"{address}#messages?topic=orders&queue_id=0&offset=0")
    body = page.locator("#messages .body")
    expect(body.nth(0)).to_contain_text(
        f'{{\n  "id": {BIG},\n  "lines": [\n    {{\n      "n": 1\n    }},\n    {{}}\n  ]\n}}'
    )
    expect(body.nth(1)).to_contain_text(HOSTILE.decode())
    expect(body.nth(2)).to_contain_text("00 ff 61 62")
    expect(body.nth(2)).to_contain_text("not JSON: shown as hex")
    expect(page.locator("#messages")).to_contain_text("trace: 7F")
    page.get_by_label("Bodies as").select_option("hex")
    expect(body.nth(1)).to_contain_text("000000  3c 69 6d 67")
    page.get_by_role("button", name="904 bytes more").click()
    expect(body.nth(3)).to_contain_text("001380  78")
    assert page.locator("main img").count() == 0
    assert page.evaluate("window.hacked") is None


def test_end_of_a_queue_is_followed(page: Page, address: str, log: MessageLog) -> None:
    page.goto(f"{address}#messages?topic=tail&queue_id=0&tail=1")
    expect(page.locator("#queue-view")).to_contain_text("No message")
    log.append(topic="tail", queue_id=0, body=b"first to come")
    expect(page.locator("#messages tbody tr")).to_have_count(1)
    log.append(topic="tail", queue_id=0, body=b"second to come")
    expect(page.locator("#messages tbody tr").last).to_contain_text("second to come")
    page.get_by_label("Follow the end").uncheck()


def test_message_stands_under_the_entry_that_found_it(page: Page, address: str) -> None:
    page.goto(f"{address}#lookup?topic=orders&key=ORDER-1")
    under = page.locator(".message-of")
    expect(under).to_have_count(2)
    expect(under.filter(has_text=f'"id": {BIG}')).to_have_count(1)
    expect(under.filter(has_text="another key")).to_have_count(1)
    shown = under.filter(has=page.get_by_role("button", name="hex"))
    shown.get_by_role("button", name="hex").click()
    expect(shown).to_contain_text("000000  7b 22 69 64")
    shown.get_by_role("button", name="raw").click()
    expect(shown).to_contain_text(f'{{"id":{BIG},"lines":[{{"n":1}},{{}}]}}')
    page.get_by_role("link", name="In its queue").click()
    expect(page.locator("#messages tbody tr").first).to_contain_text("ORDER-1")


def test_journey_shows_messages_side_by_side_with_the_time_between(
    page: Page, address: str
) -> None:
    page.goto(f"{address}#lookup?topic=orders&key=ORDER-1")
    page.locator("main").get_by_role("link", name="Journey").click()
    stops = page.locator(".journey > li")
    expect(stops).to_have_count(3)
    expect(stops.last).to_contain_text("payments")
    expect(stops.last).to_contain_text("+ 1 min 30 s")
    expect(stops.filter(has_text=f'"id": {BIG}')).to_have_count(1)
    expect(page.locator(".journey-line .stop")).to_have_count(3)
    assert "#journey?key=ORDER-1" in page.url
    with page.expect_download() as saving:
        page.get_by_role("button", name="Export as JSON").click()
    saved = json.loads(Path(saving.value.path()).read_text())
    assert saved["duration_ms"] == 90_000
    assert [entry["topic"] for entry in saved["entries"]] == ["orders", "orders", "payments"]


def test_keys_search_walk_and_open_and_a_lookup_is_kept(page: Page, address: str) -> None:
    page.goto(f"{address}#lookup?topic=orders&key=ORDER-1")
    under = page.locator(".message-of")
    expect(under).to_have_count(2)
    page.locator("#answer-title").click()
    page.keyboard.press("/")
    expect(page.locator("#key")).to_be_focused()
    page.evaluate("document.activeElement.blur()")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    expect(under.nth(0)).to_be_visible()
    expect(under.nth(1)).to_be_hidden()
    page.get_by_role("button", name="Save lookup").click()
    page.reload()
    expect(page.locator("#saved-lookups a")).to_have_text("orders / ORDER-1")
    page.get_by_role("button", name="Forget orders / ORDER-1").click()
    expect(page.locator("#saved-lookups a")).to_have_count(0)


def test_empty_service_says_how_to_begin(
    page: Page, serve: Callable[[FastAPI], str], tmp_path: Path
) -> None:
    small = {"slot_count": 64, "item_capacity": 100, "journal_bytes": 16 << 20}
    with MessageLog.open(tmp_path, node="n", **small) as log:
        address = serve(
            create_app(None, ServerSettings(), log=log, logger=make_logger(io.BytesIO()))
        )
        page.goto(f"{address}#files")
        expect(page.locator("#file-details")).to_contain_text("No files")
        expect(page.locator(".chart-axis")).to_have_text("")
        page.goto(f"{address}#messages")
        expect(page.locator("#queue-view")).to_contain_text("No topics")
        page.goto(address)
        command = shlex.split(page.locator("#home code").inner_text())
        assert CliRunner().invoke(make_cli(), command[1:]).exit_code == 0
        page.reload()
        expect(page.locator("#home-topics")).to_contain_text("ORDER-1")


def test_service_without_a_log_says_so_and_shows_entries_alone(
    page: Page, serve: Callable[[FastAPI], str]
) -> None:
    index = SmallIndex()
    index.put_batch(topic="a", keys=["k"], queue_id=0, offset=0, size=1, timestamp=5)
    address = serve(create_app(index, ServerSettings(), logger=make_logger(io.BytesIO())))
    page.goto(f"{address}#lookup?topic=a&key=k")
    expect(page.locator("#entries tbody tr")).to_have_count(1)
    page.goto(f"{address}#messages?topic=a&queue_id=0")
    expect(page.locator("#queue-note")).to_contain_text("no message log")
