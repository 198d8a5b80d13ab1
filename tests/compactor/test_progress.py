"""The status tells what runs, what was done, and what went wrong."""

from __future__ import annotations

from tierdex.compactor.progress import Progress


def test_a_running_job_shows_its_rate():
    progress = Progress()
    progress.begin("compact", "f", 10.0, total_items=100)
    progress.advance(40, 400)
    shown = progress.describe(12.0)["running"]
    assert (shown["done_items"], shown["total_items"], shown["rate_items_s"]) == (40, 100, 20)


def test_a_finished_job_is_counted_and_dated():
    progress = Progress()
    progress.begin("merge", "", 0.0)
    progress.finish(5000, merged=8)
    shown = progress.describe(1.0)
    assert shown["running"] is None
    assert (shown["last_done_ms"], shown["totals"]["merged"]) == (5000, 8)


def test_a_look_that_found_nothing_leaves_no_trace():
    progress = Progress()
    progress.begin("collect", "", 0.0)
    progress.idle()
    shown = progress.describe(1.0)
    assert (shown["running"], shown["last_done_ms"]) == (None, None)


def test_a_failure_is_kept_until_the_next():
    progress = Progress()
    progress.begin("publish", "f", 0.0)
    progress.fail("publish", "f", ValueError(), 7)
    progress.begin("seal", "g", 0.0)
    progress.finish(9, sealed=1)
    shown = progress.describe(1.0)
    assert shown["last_error"] == {
        "job": "publish",
        "file_id": "f",
        "error": "ValueError",
        "at_ms": 7,
    }
    assert shown["totals"]["failures"] == 1
