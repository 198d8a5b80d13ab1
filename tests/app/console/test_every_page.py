"""Every page of the console over a real message log and its index: by keyboard alone, in a wide and a narrow
window, light and dark, with and without a key.

PAGES is the table: a page that is not in it fails `test_table_has_every_view`.
"""

from __future__ import annotations

import io
import json
import shlex
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from playwright.sync_api import Browser, Page, expect
from typer.testing import CliRunner

from tests.app.console.conftest import checked_page, copied_commands
from tests.patience import PATIENCE_S
from tierdex.app.cli.commands import make_cli
from tierdex.app.http.application import create_app
from tierdex.app.http.server_settings import ServerSettings
from tierdex.app.keys import KeyFile
from tierdex.app.logs import make_logger
from tierdex.app.rights import Scope
from tierdex.clock import SystemClock
from tierdex.filesystem import LocalFileSystem
from tierdex.ids import SystemIds
from tierdex.log_service.message_log import MessageLog
from tierdex.resolving.message_fetcher import MessageFetcher
from tierdex.resolving.show_settings import ShowSettings

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from fastapi import FastAPI

pytestmark = pytest.mark.browser

CHECKS = Path(__file__).with_name("page_checks.js").read_text()
DRAWN = """new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))
  .then(() => Promise.all(document.getAnimations().map((each) => each.finished.catch(() => null))))
  .then(() => null)"""
HOUR = 3_600_000
BEGIN = 1_356_998_400_000
LONG = "x" * 300  # without a space to break at
PAGES = {  # the link, and what stands there once the page is whole
    "home": ("", "#home-topics a"),
    "answer": ("lookup?topic=orders&key=ORDER-1&max_count=5", ".message-of .body"),
    "message ID": ("lookup?message_id=m-1", "#waterfall tbody tr"),
    "nothing found": ("lookup?topic=order&key=ORDER-1&end=2013-01-01", "#offers a"),
    "refused": (f"lookup?topic=orders&key={'x' * 5000}&begin=7d", "#key-error"),
    "journey form": ("journey", "#journey-form"),
    "journey": ("journey?key=ORDER-1", ".journey > li .body"),
    "topics": ("messages", "#queues a"),
    "queues": ("messages?topic=orders", "#queues a"),
    "queue": ("messages?topic=orders&queue_id=0", "#messages .body"),
    "files": ("files", "#files-chart [role=option]"),
    "file": ("files?file=FILE", ".life:not(:has-text('…'))"),  # its times are told
    "compaction": ("compaction", ".curves"),
    "nodes": ("nodes", "#nodes tbody tr"),
}
WITHOUT_MESSAGES = {  # what a key `read` sees: bodies need `message`, and the page says so
    "answer": "#entries tbody tr",
    "journey": ".journey > li",
    "queue": "#queue-note:has-text('scope message')",
}
ADMIN = {"files", "compaction", "nodes"}
SIZES = ((1280, 900), (400, 800))


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MessageLog]:
    """Yield a log of two topics, most of it published, with a key of both and a body of each kind."""
    small = {
        "slot_count": 64,
        "item_capacity": 1000,
        "journal_bytes": 16 << 20,
        "background": False,
    }
    with MessageLog.open(tmp_path_factory.mktemp("log"), node="n", **small) as log:
        for number in range(8):
            log.append_batch(
                topic="orders", queue_id=number % 2, timestamp=BEGIN + number * HOUR, keys=["ORDER-1"] * 2,
                message_id=[f"m-{number}", None], headers=[[("trace", b"7F")], None],
                body=[b'{"order": 1, "note": "%s"}' % LONG.encode(), b"\x00\xff" * 200],
            )  # fmt: skip
            log.append(
                topic="payments",
                queue_id=0,
                timestamp=BEGIN + number * HOUR + 7,
                keys=["ORDER-1", f"P-{number}"],
                body=b"paid",
            )
            if number == 5:
                log.roll()
                log.catch_up()
                log.index.roll()
                log.run_compaction()
        yield log


@pytest.fixture(scope="module")
def messages(log: MessageLog) -> Iterator[MessageFetcher]:
    with MessageFetcher(None, ShowSettings(message_timeout=PATIENCE_S), log=log) as messages:
        yield messages


@pytest.fixture(scope="module")
def address(log: MessageLog, messages: MessageFetcher, serve: Callable[[FastAPI], str]) -> str:
    return serve(
        create_app(
            None, ServerSettings(), log=log, messages=messages, logger=make_logger(io.BytesIO())
        )
    )


@pytest.fixture(scope="module")
def shared_page(browser: Browser) -> Iterator[Page]:
    """Yield one page for all: only its link, its size and its colours change."""
    with checked_page(browser) as page:
        page.add_init_script(f"addEventListener('DOMContentLoaded', {CHECKS})")
        yield page


def test_table_has_every_view(shared_page: Page, address: str) -> None:
    shared_page.goto(address)
    views = shared_page.evaluate("import('/console/link.js').then((link) => link.VIEWS)")
    assert {link.partition("?")[0] or "lookup" for link, _ in PAGES.values()} == set(views)


@pytest.mark.parametrize("name", PAGES)
def test_page_is_whole_by_keyboard_at_each_width_in_each_scheme(
    shared_page: Page, address: str, log: MessageLog, name: str
) -> None:
    page = shared_page
    link, whole = PAGES[name]
    page.goto(f"{address}#{link.replace('FILE', log.index.files()[-1].file_id)}")
    page.reload()  # views that another page left begin anew
    wrong = {}
    for width, height in SIZES:
        page.set_viewport_size({"width": width, "height": height})
        expect(page.locator(whole).first).to_be_visible()
        expect(page.locator("body.loading")).to_have_count(0)
        page.evaluate(DRAWN)
        wrong[width, "wider than the window"] = page.evaluate("pageChecks.wide()")
        wrong[width, "labels over each other"] = page.evaluate("pageChecks.crowded()")
        for scheme in ("dark", "light"):
            page.emulate_media(color_scheme=scheme)
            wrong[width, scheme] = page.evaluate("pageChecks.faint()")
        for _ in range(page.evaluate("pageChecks.watch()")):
            page.keyboard.press("Tab")
        wrong[width, "Tab"] = page.evaluate("pageChecks.walked()")
    told = [
        f"{width} px, {what}: {each}" for (width, what), found in wrong.items() for each in found
    ]
    assert not told, "\n".join(told)


@pytest.mark.parametrize(
    "name", [name for name in PAGES if PAGES[name][0].partition("?")[0] not in ADMIN]
)
def test_slash_goes_to_the_search_field(shared_page: Page, address: str, name: str) -> None:
    shared_page.goto(f"{address}#{PAGES[name][0]}")
    expect(shared_page.locator(PAGES[name][1]).first).to_be_visible()
    shared_page.locator("#skip").focus()
    shared_page.keyboard.press("/")
    assert shared_page.evaluate("document.activeElement.matches('input')")


def test_escape_shuts_a_message_and_gives_the_focus_back_to_its_entry(
    shared_page: Page, address: str
) -> None:
    page = shared_page
    page.goto(f"{address}#{PAGES['answer'][0]}")
    messages = page.locator(".message-of")
    expect(messages).to_have_count(5)
    page.locator("#skip").focus()
    page.keyboard.press("Enter")  # to the content, past the pages
    page.keyboard.press("ArrowDown")
    page.keyboard.press("ArrowDown")
    second = page.locator("#entries tbody tr:not(.message-of)").nth(1)
    expect(second).to_be_focused()
    page.keyboard.press("Tab")  # the file's link
    page.keyboard.press("Tab")
    expect(messages.nth(1).get_by_role("button").first).to_be_focused()
    page.keyboard.press("Escape")
    expect(messages.nth(1)).to_be_hidden()
    expect(second).to_be_focused()
    page.keyboard.press("Space")
    expect(messages.nth(1)).to_be_visible()
    page.keyboard.press("End")
    expect(page.locator("#entries tbody tr:not(.message-of)").last).to_be_focused()
    page.keyboard.press("Enter")
    expect(messages.last).to_be_hidden()


def test_queue_is_read_from_a_time_and_wrong_fields_say_so(shared_page: Page, address: str) -> None:
    page = shared_page
    page.goto(f"{address}#messages")
    for field, text, told in (
        ("queue-topic", "", "Enter a topic."),
        ("queue-id", "first", "A whole number from 0."),
        ("queue-offset", "-1", "A whole number from 0; nothing: the end."),
        ("queue-begin", "soon", "“soon” is not a time."),
    ):
        page.locator("#queue-topic").fill("orders")
        page.locator(f"#{field}").fill(text)
        page.keyboard.press("Enter")
        expect(page.locator(f"#{field}-error")).to_contain_text(told)
        expect(page.locator(f"#{field}")).to_be_focused()
        page.locator(f"#{field}").fill("")
    page.locator("#queue-topic").fill("orders")
    page.locator("#queue-begin").fill(str(BEGIN + 3 * HOUR))
    page.keyboard.press("Enter")
    rows = page.locator("#messages tbody tr")
    expect(rows.first).to_contain_text("2013-01-01 04:00:00")  # queue 0 has the even hours
    expect(rows).to_have_count(4)
    expect(page.locator("#queue-begin")).to_have_value("2013-01-01 03:00:00.000")


def test_focus_stays_where_it_is_while_a_page_asks_again(shared_page: Page, address: str) -> None:
    page = shared_page
    page.goto(f"{address}#nodes")
    page.locator("#nodes-table").focus()
    with page.expect_response("**/v1/admin/nodes"):  # of its own accord
        pass
    expect(page.locator("#nodes-table")).to_be_focused()


@pytest.fixture(scope="module")
def keyed_address(
    log: MessageLog, messages: MessageFetcher, serve: Callable[[FastAPI], str], keys: KeyFile
) -> str:
    logger = make_logger(io.BytesIO())
    return serve(
        create_app(None, ServerSettings(), keys, log=log, messages=messages, logger=logger)
    )


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> KeyFile:
    path = tmp_path_factory.mktemp("keys") / "keys.json"
    keys = KeyFile(LocalFileSystem(), path, clock=SystemClock(), ids=SystemIds())
    keys.create(Scope.ADMIN)  # from the first key on the service wants one
    return keys


def test_small_key_meets_no_empty_page_and_no_page_asks_for_what_it_may_not(
    shared_page: Page, keyed_address: str, keys: KeyFile
) -> None:
    page = shared_page
    refused: list[str] = []
    page.on("response", lambda answer: refused.append(answer.url) if answer.status == 403 else None)
    page.goto(keyed_address)
    dialog = page.get_by_role("dialog", name="API key")
    expect(dialog).to_be_visible()
    page.keyboard.press("Escape")
    expect(dialog).to_be_hidden()
    for name, (link, _) in PAGES.items():  # without a key no page opens
        page.goto(f"{keyed_address}#{link}")
        expect(page.locator("#refused"), name).to_contain_text("This service asks for an API key.")
    page.locator("#key-button").focus()
    page.keyboard.press("Enter")
    page.keyboard.press("Escape")
    expect(page.locator("#key-button")).to_be_focused()  # the dialog gives it back
    page.keyboard.press("Space")
    page.keyboard.type(keys.create(Scope.READ))
    page.keyboard.press("Enter")
    expect(page.get_by_role("navigation").get_by_role("link")).to_have_text(
        ["Lookup", "Journey", "Messages"]
    )
    for name, (link, whole) in PAGES.items():
        page.goto(f"{keyed_address}#{link}")
        if link.partition("?")[0] in ADMIN:
            expect(page.locator("#refused"), name).to_contain_text(
                "needs the right admin; yours: read"
            )
        else:
            whole = WITHOUT_MESSAGES.get(name, whole)
            expect(page.locator(whole).first, name).to_be_visible()
            expect(page.locator("#entries [href*=files]"), name).to_have_count(0)
            expect(dialog, name).to_be_hidden()  # the page says what the key may not do
    assert {url.rpartition("/")[2].partition("?")[0] for url in refused} <= {
        "entries",
        "journeys",
        "messages",
    }


def test_lookup_is_taken_along_to_a_shell_with_a_key_in_its_environment(
    shared_page: Page, keyed_address: str, keys: KeyFile
) -> None:
    page = shared_page
    page.goto(f"{keyed_address}#lookup?topic=orders&key=ORDER-1&end=2013-01-01T01:00:00Z")
    key = keys.create(Scope.READ)
    page.evaluate("key => sessionStorage.setItem('tierdex-api-key', key)", key)
    page.reload()
    expect(page.locator("#entries tbody tr")).to_have_count(4)
    curl, command, program = copied_commands(page)
    assert key not in curl + command + program
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TIERDEX_API_KEY", key)
        said = subprocess.run(
            ["sh", "-c", curl], capture_output=True, timeout=PATIENCE_S, check=True
        )
        assert len(json.loads(said.stdout)["entries"]) == 4
        shown = CliRunner().invoke(make_cli(), [*shlex.split(command)[1:], "-o", "json"])
        assert len(json.loads(shown.stdout)["entries"]) == 4
        told: dict[str, Any] = {}
        exec(program, told)  # what the page copies, as a user would run it
        assert len(told["answer"].entries) == 4
