"""The console in a real browser, against made-up answers that reach every state of the page."""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Callable
from pathlib import Path
from urllib.parse import parse_qsl, urlsplit

import pytest
from fastapi import FastAPI
from playwright.sync_api import Page, expect

from tests.app.console.fake_service import HOSTILE, INT64_MAX, YEAR_2013, Gate, fake_app
from tierdex.errors import InvalidRequestError
from tierdex.times import parse_time

pytestmark = pytest.mark.browser

Serve = Callable[[FastAPI], str]


def test_lookup_shows_entries_pages_and_the_plan_that_ran(page: Page, serve: Serve) -> None:
    page.goto(serve(fake_app()))
    page.get_by_label("Topic", exact=True).fill("UA")
    page.get_by_label("Key", exact=True).fill("N37422")
    page.locator("#begin").fill("2013-01-01")
    page.locator("#end").fill("2013-01-31")
    page.get_by_role("button", name="Look up").click()
    rows = page.locator("#entries tbody tr")
    expect(rows).to_have_count(64)
    expect(page.get_by_text("Complete: every file")).to_be_visible()
    expect(page.locator("#waterfall")).to_contain_text("false positive")
    page.get_by_role("button", name="pruned by filter 37").click()
    expect(page.locator("#waterfall tbody tr")).to_have_count(37)
    page.get_by_role("button", name="Next 64").click()
    expect(rows).to_have_count(90)
    assert f"begin={YEAR_2013}&end={YEAR_2013 + 31 * 86_400_000 - 1}" in page.url


def test_link_restores_and_runs_the_query_and_keeps_the_key_in_the_fragment(
    page: Page, serve: Serve
) -> None:
    address = serve(fake_app())
    sent: list[str] = []
    page.on("request", lambda request: sent.append(request.url))
    page.goto(f"{address}#lookup?message_id=A%26B%20%2B%23&begin={YEAR_2013}&max_count=5&explain=0")
    expect(page.locator("#entries tbody tr")).to_have_count(5)
    expect(page.get_by_role("textbox", name="Message ID")).to_have_value("A&B +#")
    expect(page.locator("#begin")).to_have_value("2013-01-01 00:00:00.000")
    expect(page.locator("#explain-view")).to_be_empty()
    assert sent[0] == address
    page.reload()
    expect(page.locator("#entries tbody tr")).to_have_count(5)


def test_incomplete_answer_names_the_missing_file_and_the_reason(page: Page, serve: Serve) -> None:
    page.goto(f"{serve(fake_app())}#lookup?topic=UA&key=partial")
    banner = page.get_by_role("status").filter(has_text="Incomplete: 1 file could not be asked")
    expect(banner).to_contain_text(f"{YEAR_2013:020d}-local: checksum of page 3 differs")
    expect(page.locator("#waterfall")).to_contain_text("missing")


def test_text_of_the_server_is_never_markup_and_int64_is_exact(page: Page, serve: Serve) -> None:
    page.goto(f"{serve(fake_app())}#lookup?topic=UA&key=limits")
    expect(page.locator("#entries")).to_contain_text(HOSTILE)
    expect(page.locator("#entries")).to_contain_text(f"{INT64_MAX:,}")
    expect(page.locator("#entries")).to_contain_text(f"{INT64_MAX} ms")
    page.get_by_role("link", name="Compaction").click()
    expect(page.locator("#compaction-body")).to_contain_text(HOSTILE)
    assert page.locator("main img").count() == 0
    assert page.evaluate("window.hacked") is None


def test_key_that_the_service_asks_for_is_sent_and_ends_with_the_tab(
    page: Page, serve: Serve
) -> None:
    app = fake_app(api_key="s3cret")
    app.state.scope = "read"
    page.goto(f"{serve(app)}#lookup?topic=UA&key=N37422")
    dialog = page.get_by_role("dialog", name="API key")
    expect(dialog).to_contain_text("This service asks for an API key.")
    expect(page.get_by_label("Your API key")).to_be_focused()
    page.keyboard.type("wrong")
    page.keyboard.press("Enter")
    expect(page.locator("#api-key-error")).to_have_text("This service does not know the key.")
    page.keyboard.type("s3cret")  # the wrong one is selected
    page.keyboard.press("Enter")
    expect(dialog).to_be_hidden()
    expect(page.locator("#entries tbody tr")).to_have_count(64)
    expect(page.get_by_role("button", name="Key 5eed · read")).to_be_visible()
    assert page.evaluate("localStorage.length") == 0
    assert "s3cret" not in page.url
    # a key of the scope read sees no empty pages of operators
    expect(page.get_by_role("navigation").get_by_role("link")).to_have_text(["Lookup", "Journey"])
    page.goto(page.url.split("#")[0] + "#files")
    expect(page.locator("#refused")).to_contain_text("needs the right admin; yours: read")
    expect(page.get_by_role("heading", name="Files")).to_be_hidden()
    app.state.scope = "admin"
    page.get_by_role("button", name="Use another key").click()
    page.keyboard.type("s3cret")
    page.keyboard.press("Enter")
    expect(page.get_by_role("button", name="uploaded")).to_be_visible()


def test_bad_input_is_explained_beside_its_field_and_nothing_is_sent(
    page: Page, serve: Serve
) -> None:
    page.goto(serve(fake_app()))
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    page.get_by_label("Topic", exact=True).fill("UA")
    page.keyboard.press("Enter")
    expect(page.locator("#key-error")).to_have_text("Enter a key.")
    expect(page.get_by_label("Key", exact=True)).to_be_focused()
    page.get_by_label("Key", exact=True).fill("x")
    page.locator("#begin").fill("2013-02-30")
    page.keyboard.press("Enter")
    expect(page.locator("#begin-error")).to_contain_text("not in the calendar")
    expect(page.locator("#key-error")).to_have_count(0)
    page.locator("#begin").fill("1362096000")
    page.keyboard.press("Enter")
    expect(page.locator("#begin-error")).to_contain_text("looks like seconds")
    page.locator("#begin").fill("2013-03-01T00:00:00.001Z")
    page.locator("#end").fill("1362096000000")
    page.keyboard.press("Enter")
    expect(page.locator("#begin-error")).to_have_text("“From” is after “To”.")
    assert not [url for url in asked if "entries" in url]
    page.goto(page.url.split("#")[0] + "#lookup?topic=UA&key=too-long")
    expect(page.locator("#key-error")).to_contain_text("longer than 4096 bytes")


def test_times_are_read_and_written_in_the_chosen_zone(page: Page, serve: Serve) -> None:
    page.goto(f"{serve(fake_app())}#lookup?topic=UA&key=a&begin={YEAR_2013}&max_count=1")
    expect(page.locator("#begin")).to_have_value("2013-01-01 00:00:00.000")
    page.get_by_label("Times in").select_option("local")
    expect(page.locator("#begin")).to_have_value("2012-12-31 19:00:00.000")
    expect(page.locator("#entries thead")).to_contain_text("America/New_York")
    page.locator("#begin").fill("2013-07-01 08:00:00.250")
    page.get_by_role("button", name="Look up").click()
    expect(page.locator("#entries tbody tr")).to_have_count(1)
    assert "begin=1372680000250" in page.url


TIMES = [
    "now", "-7d", "7d", "2h", "250ms", "1w", "0d", "--7d", "7y", "7D", "1 h", "7d2h", "1234567890d",
    "2013-01-07", "2013-02-29", "2012-02-29", "0000-01-01", "0050-03-01", "9999-12-31", "13-1-7", "2013-01",
    "2013-01-07T05:00:00Z", "2013-01-07t05:00:00.5z", "2013-01-07T05:00:00.123456789-05:30",
    "0050-03-01T00:00:00Z", "2013-01-07T05:00:00.1234567890Z", "2013-01-07T24:00:00Z",
    "2013-01-07T05:60:00Z", "2013-01-07T05:00:00+24:00",
    "2013-01-07T05:00:00+23:59", "1969-12-31T23:59:59.9999Z", "0", "-1", "1362096000", "1362096000000",
    "9223372036854775807", "9223372036854775808", "1e3", "1.5", "soon",
]  # fmt: skip


def test_fields_and_links_read_each_time_as_the_api_and_the_command_line_do(
    page: Page, serve: Serve
) -> None:
    def read(text: str, is_end: bool) -> str | None:
        try:
            time = parse_time(text, field="begin", now_ms=lambda: YEAR_2013, is_end=is_end)
        except InvalidRequestError:
            return None
        return str(time)

    page.clock.set_fixed_time("2013-01-01T00:00:00Z")
    page.goto(serve(fake_app()))
    script = """async (texts) => {
      const { parseTime } = await import("/console/times.js");
      const read = (text, isEnd) => {
        try { return String(parseTime(text, { isEnd })); } catch { return null; }
      };
      return texts.map((text) => [text, read(text, false), read(text, true)]);
    }"""
    assert page.evaluate(script, TIMES) == [
        [text, read(text, False), read(text, True)] for text in TIMES
    ]


def test_zone_may_change_while_an_answer_is_awaited_and_after_a_refusal(
    page: Page, serve: Serve
) -> None:
    gate = Gate()
    address = serve(fake_app(gate=gate))
    with gate.shut():
        page.goto(f"{address}#lookup?topic=UA&key=a&begin={YEAR_2013}&max_count=1")
        expect(page.locator("#answer")).to_have_text("Looking up …")
        page.get_by_label("Times in").select_option("local")
        expect(page.locator("#begin")).to_have_value("2012-12-31 19:00:00.000")
        expect(page.locator("#answer")).to_have_attribute("aria-busy", "true")
    expect(page.locator("#entries thead")).to_contain_text("America/New_York")
    page.goto(f"{address}#lookup?topic=UA&key=too-long&begin={YEAR_2013}")
    expect(page.locator("#key-error")).to_contain_text("longer than 4096 bytes")
    page.get_by_label("Times in").select_option("utc")
    expect(page.locator("#begin")).to_have_value("2013-01-01 00:00:00.000")
    expect(page.locator("#answer")).to_be_empty()


def test_refused_form_leaves_no_earlier_answer_and_ends_a_running_query(
    page: Page, serve: Serve
) -> None:
    gate = Gate()
    page.goto(f"{serve(fake_app(gate=gate))}#lookup?topic=UA&key=a")
    expect(page.get_by_text("Complete: every file")).to_be_visible()
    page.locator("#begin").fill("soon")
    page.get_by_role("button", name="Look up").click()
    expect(page.locator("#begin-error")).to_contain_text("“soon” is not a time")
    expect(page.locator("#answer")).to_be_empty()
    expect(page.locator("#explain-view")).to_be_empty()
    page.locator("#begin").fill("")
    with gate.shut():
        page.get_by_role("button", name="Look up").click()
        expect(page.locator("#answer")).to_have_text("Looking up …")
        page.locator("#begin").fill("later")
        with page.expect_event("requestfailed") as ended:  # no answer can come any more
            page.get_by_role("button", name="Look up").click()
        assert "v1/entries" in ended.value.url
    expect(page.locator("#begin-error")).to_contain_text("“later” is not a time")
    expect(page.locator("#answer")).to_be_empty()
    expect(page.locator("#answer")).to_have_attribute("aria-busy", "false")


def test_running_query_stands_under_no_answer_of_the_one_before(page: Page, serve: Serve) -> None:
    gate = Gate()
    address = serve(fake_app(gate=gate))
    page.goto(f"{address}#lookup?topic=UA&key=a")
    expect(page.locator("#entries tbody tr")).to_have_count(64)
    with gate.shut():
        page.goto(f"{address}#lookup?topic=UA&key=absent")
        expect(page.locator("#answer")).to_have_text("Looking up …")
        expect(page.locator("#explain-view")).to_be_empty()
    expect(page.get_by_role("status")).to_contain_text("Nothing found")


def test_entries_of_several_pages_are_complete_only_when_every_page_was(
    page: Page, serve: Serve
) -> None:
    page.goto(f"{serve(fake_app())}#lookup?topic=UA&key=partial-first")
    expect(page.get_by_role("status")).to_contain_text("Incomplete: 1 file could not be asked")
    later = "**/v1/entries?*cursor=*"
    page.route(later, lambda route: route.fulfill(status=503, json={"detail": "no answer"}))
    page.get_by_role("button", name="Next 64").click()
    expect(page.locator(".pager")).to_contain_text("no answer (503)")
    expect(page.locator("#entries tbody tr")).to_have_count(64)  # what was fetched stays
    page.unroute(later)
    page.get_by_role("button", name="Next 64").click()
    expect(page.locator("#entries tbody tr")).to_have_count(90)
    expect(page.get_by_role("status")).to_contain_text("Incomplete: 1 file could not be asked")


def test_page_of_a_proxy_is_explained(page: Page, serve: Serve) -> None:
    page.goto(f"{serve(fake_app())}#lookup?topic=UA&key=behind-a-proxy")
    expect(page.locator("#form-note")).to_contain_text("What answers here is not Tierdex")
    expect(page.locator("#answer")).to_have_attribute("aria-busy", "false")


def test_empty_answer_claims_nothing_of_a_topic_that_may_not_exist(
    page: Page, serve: Serve
) -> None:
    address = serve(fake_app())
    page.goto(f"{address}#lookup?topic=%20ua&key=absent&end=0")
    expect(page.get_by_role("status")).to_contain_text("No topic “ ua”")
    expect(page.locator(".note.good")).to_have_count(0)
    page.get_by_role("link", name="any time").click()
    expect(page.locator("#end")).to_have_value("")
    page.get_by_role("link", name="UA", exact=True).click()
    expect(page.get_by_role("status")).to_contain_text("none holds this key in topic UA")
    expect(page.locator(".note.good")).to_have_count(0)


def test_unknown_parameter_of_a_link_is_told(page: Page, serve: Serve) -> None:
    address = serve(fake_app())
    page.goto(f"{address}#lookup?topic=UA&key=K&max-count=5&queue=3")
    expect(page.locator("#link-note")).to_contain_text("This link says max-count, queue")
    page.goto(f"{address}#lookup?topic=UA&key=K&max_count=5")
    expect(page.locator("#link-note")).to_be_hidden()


def test_found_entries_are_exported_as_json_and_csv(page: Page, serve: Serve) -> None:
    page.goto(f"{serve(fake_app())}#lookup?topic=UA&key=K")
    page.get_by_role("button", name="Next 64").click()
    expect(page.locator("#entries tbody tr")).to_have_count(90)
    with page.expect_download() as saved:
        page.get_by_role("button", name="Export as JSON").click()
    document = json.loads(Path(saved.value.path()).read_text())
    assert (saved.value.suggested_filename, len(document["entries"])) == ("lookup.json", 90)
    with page.expect_download() as saved:
        page.get_by_role("button", name="Export as CSV").click()
    rows = list(csv.DictReader(Path(saved.value.path()).read_text().splitlines()))
    assert [row["offset"] for row in rows] == [str(e["offset"]) for e in document["entries"]]


def test_files_under_an_error_say_how_old_they_are(page: Page, serve: Serve) -> None:
    app = fake_app()
    page.goto(f"{serve(app)}#files")
    expect(page.get_by_role("button", name="uploaded")).to_be_visible()
    app.state.api_key = "s3cret"
    page.get_by_role("button", name="Refresh").click()
    expect(page.locator("#files-note")).to_contain_text("(401) What is shown was seen at 20")


def test_view_that_was_left_before_its_answer_asks_no_more(page: Page, serve: Serve) -> None:
    gate = Gate()
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url.split("/")[-1]))
    page.clock.install()
    with gate.shut():
        page.goto(f"{serve(fake_app(gate=gate))}#files")
        with page.expect_event("requestfailed"):
            page.get_by_role("link", name="Compaction").click()
    expect(page.locator("#compaction-body")).to_contain_text("Waiting")
    for _ in range(6):
        with page.expect_response("**/v1/admin/compaction"):
            page.clock.run_for(5_000)
    assert asked.count("files") == 1


def test_facts_and_life_of_a_file_follow_the_zone(page: Page, serve: Serve) -> None:
    page.goto(f"{serve(fake_app())}#files")
    expect(page.locator("#files-chart [role=option]").first).to_be_visible()
    page.locator("#files-chart").focus()
    page.keyboard.press("End")
    facts, life = page.locator("#file-details"), page.get_by_role("list", name="Life of the file")
    expect(facts).to_contain_text("2013-01-01 00:00:00.000 UTC")
    expect(life.get_by_role("listitem").last).to_have_text(
        "uploaded 2013-01-03 00:00:00.000 UTC (+ 2 d)"
    )
    page.get_by_label("Times in").select_option("local")
    expect(facts).to_contain_text("2012-12-31 19:00:00.000 America/New_York")
    page.get_by_label("Times of").select_option("life")
    oldest = page.locator("#files-chart [role=option]").last
    expect(oldest).to_have_attribute("aria-label", re.compile("2012-12-31 19:00:00.000 to 20[2-9]"))


def test_thousands_of_files_draw_only_the_rows_in_sight_and_walk_by_keyboard(
    page: Page, serve: Serve
) -> None:
    page.goto(f"{serve(fake_app(file_count=5000))}#files")
    expect(page.get_by_role("button", name="uploaded")).to_contain_text("4,993")
    assert page.locator("#files-chart [role=option]").count() < 1000
    page.locator("#files-chart").focus()
    page.keyboard.press("End")
    expect(page.locator("#file-details")).to_contain_text(f"{YEAR_2013:020d}-")
    page.keyboard.press("Home")
    expect(page.locator("#file-details")).to_contain_text("unsealed")
    page.get_by_role("button", name="uploaded").click()
    expect(page.locator("#files-chart [role=option]")).to_have_count(7)


def test_drag_across_the_time_line_keeps_the_files_that_reach_into_it(
    page: Page, serve: Serve
) -> None:
    page.goto(f"{serve(fake_app())}#files")
    expect(page.get_by_role("button", name="uploaded")).to_be_visible()
    box = page.locator("#files-chart").bounding_box()
    assert box is not None
    page.mouse.move(box["x"] + 500, box["y"] + 50)
    page.mouse.down()
    page.mouse.move(box["x"] + 540, box["y"] + 60)
    page.mouse.up()
    assert 10 < page.locator("#files-chart [role=option]").count() < 60
    page.get_by_role("button", name="Whole range").click()
    assert page.locator("#files-chart [role=option]").count() > 200


def test_nodes_show_health_and_lag(page: Page, serve: Serve) -> None:
    page.goto(f"{serve(fake_app())}#nodes")
    rows = page.locator("#nodes tbody tr")
    expect(rows).to_have_count(2)
    expect(rows.last).to_contain_text(f"the manifest is damaged {HOSTILE}")
    expect(rows.last).to_contain_text("held unpublished entries then")
    expect(rows.last.locator("td").first).to_have_text("2 h 2 min")  # in sight at 400 px, too
    health = page.locator(".health")
    expect(health).to_contain_text("not ready")
    expect(health).to_contain_text("fenced: another owner (503)")
    expect(health).to_contain_text("-1.5 s")
    page.get_by_role("link", name="Compaction").click()
    expect(page.get_by_role("progressbar")).to_have_count(2)  # the index's, and the log's
    body = page.locator("#compaction-body")
    expect(body).to_contain_text("25.0 %")
    expect(body).to_contain_text("2014-01-02 00:00:00")  # the log's work was done last
    log_error = body.get_by_role("region", name="Last error (message log): work went on since")
    expect(log_error).to_contain_text("of the log")
    expect(body.get_by_role("region", name="Since the start: message log")).to_contain_text("12")


def test_home_page_tells_topics_and_a_narrow_page_never_scrolls_sideways(
    page: Page, serve: Serve
) -> None:
    page.set_viewport_size({"width": 400, "height": 800})
    address = serve(fake_app())
    page.goto(address)
    rows = page.locator("#home-topics tbody tr")
    expect(rows).to_have_count(4)
    expect(rows.nth(1)).to_contain_text("1,000 to 1,001")
    expect(rows.nth(1)).to_contain_text("2013-01-02 00:00:00")
    expect(rows.last).to_contain_text(HOSTILE)
    page.get_by_role("link", name="UA", exact=True).click()
    expect(page.get_by_label("Topic", exact=True)).to_have_value("UA")
    expect(page.get_by_label("Key", exact=True)).to_be_focused()
    shown = {
        "": "#home-topics", "lookup?topic=UA&key=a": "#waterfall", "journey": "#journey-form",
        "files": "#files-legend button", "compaction": ".curves", "nodes": "#nodes",
    }  # fmt: skip
    for view, what in shown.items():
        page.goto(f"{address}#{view}")
        expect(page.locator(what).first).to_be_visible()
        assert page.evaluate("document.documentElement.scrollWidth - innerWidth") == 0, view
        tables = page.locator(".table-scroll").evaluate_all("all => all.map((e) => e.clientHeight)")
        assert max(tables, default=0) <= 800, view  # what stands below can be reached


def test_entries_stand_in_order_of_time_and_a_histogram_narrows_them(
    page: Page, serve: Serve
) -> None:
    page.clock.set_fixed_time("2013-02-10T00:00:00Z")
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    page.goto(f"{serve(fake_app())}#lookup?topic=UA&key=a&begin=-7d")
    times = page.locator("#entries tbody tr td:first-child")
    expect(times).to_have_count(64)
    expect(page.locator("#begin")).to_have_value("-7d")  # a kept link means the last week for ever
    expect(page.locator("#begin-read")).to_have_text("2013-02-03 00:00:00.000 UTC")
    expect(page.get_by_role("button", name="7 d")).to_have_attribute("aria-pressed", "true")
    expect(page.locator("#page-boundary")).to_contain_text("64 entries on 1 page so far")
    page.get_by_role("button", name="Next 64").click()
    expect(times).to_have_count(90)
    shown = times.all_text_contents()
    assert shown == sorted(shown, reverse=True)
    page.get_by_role("button", name="Time ↓").click()
    expect(page.locator("#entries th[aria-sort=ascending]")).to_have_count(1)
    assert times.all_text_contents() == shown[::-1]
    begins = {
        dict(parse_qsl(urlsplit(url).query)).get("begin") for url in asked if "entries" in url
    }
    assert begins == {str(YEAR_2013 + 33 * 86_400_000)}  # one moment for all pages
    box = page.locator(".histogram").bounding_box()
    assert box is not None
    page.mouse.move(box["x"] + box["width"] / 2, box["y"] + 20)
    page.mouse.down()
    page.mouse.move(box["x"] + box["width"] - 2, box["y"] + 20)
    page.mouse.up()
    expect(page.locator("#end")).to_have_value(f"{shown[0]}")
    expect(page.locator("#begin")).to_have_value(re.compile("2013-01-"))
    with page.expect_response("**/v1/entries?*message=true*"):  # asked for when the answer stands
        page.get_by_role("button", name="24 h").click()
    expect(page.locator("#end")).to_have_value("")
    expect(page.locator("#begin-read")).to_have_text("2013-02-09 00:00:00.000 UTC")
    page.locator(".histogram").focus()
    page.keyboard.press("ArrowRight")
    page.keyboard.press("Enter")
    expect(page.locator("#begin")).to_have_value(re.compile("2013-01-"))


def test_histogram_is_that_of_all_pages_and_says_what_it_leaves_out(
    page: Page, serve: Serve
) -> None:
    address = serve(fake_app())
    chart = page.locator(".chart-of-entries")
    page.goto(f"{address}#lookup?topic=UA&key=a")
    expect(chart).to_contain_text(re.compile("90 entries from 2013-01-.* UTC. All entries."))
    expect(page.get_by_role("heading", name="64 of 90 entries")).to_be_visible()
    expect(page.locator("#page-boundary")).to_contain_text("no counted entry is newer")
    page.goto(f"{address}#lookup?topic=UA&key=hot")
    told = "1,000 entries from 2012-12-12 00:00:00 to 2013-01-20 00:00:00 UTC. "
    told += "The newest 1,000 entries; older ones are not counted."
    expect(chart).to_contain_text(told)
    expect(page.get_by_role("heading", name="64 of more than 1,000 entries")).to_be_visible()
    told = "the newest of all, of 2013-01-20 00:00:00.000 UTC, is on a later page"
    expect(page.locator("#page-boundary")).to_contain_text(told)
    page.locator(".histogram").focus()
    page.keyboard.press("ArrowLeft")
    page.keyboard.press("Enter")  # the last bar: none of its entries was fetched
    expect(page.locator("#end")).to_have_value("2013-01-20 00:00:00.000")
    page.goto(f"{address}#lookup?topic=UA&key=uncounted")
    expect(chart).to_contain_text("64 entries from 2013-01")
    expect(chart).to_contain_text(
        "Only the fetched entries: the others could not be counted. the store"
    )
    expect(page.get_by_role("heading", name="64 entries, and more")).to_be_visible()


def test_json_keeps_numbers_and_names_that_json_parse_would_change(
    page: Page, serve: Serve
) -> None:
    page.goto(serve(fake_app()))
    source = r'{"a":[9007199254740993,-9223372036854775808,1.5e3,"\u00e9\\\""],"__proto__":{"x":1},"b":{}}'
    answer = page.evaluate(
        """async (text) => {
          const { parseJson } = await import("/console/lossless_json.js");
          const value = parseJson(text);
          const broken = ['{"a":1,}', '[1 2]', '{"a" 1}', '01', '"\\\\x"', '[1]]', '', 'nul'];
          const refused = broken.filter((bad) => {
            try { parseJson(bad); return false; } catch (error) { return error instanceof SyntaxError; }
          });
          return [value.a.map(String), Object.keys(value), value.x === undefined, refused.length];
        }""",
        source,
    )
    assert answer[0] == ["9007199254740993", "-9223372036854775808", "1500", 'é\\"']
    assert answer[1:] == [["a", "__proto__", "b"], True, 8]
