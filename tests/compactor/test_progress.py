"""The status tells what runs, what was done, and what went wrong."""

from __future__ import annotations

import threading

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
    progress.finish(5000, 0.2, merged=8)
    shown = progress.describe(1.0)
    assert shown["running"] is None
    assert (shown["last_done_ms"], shown["totals"]["merged"]) == (5000, 8)


def test_times_of_finished_units_are_kept_by_job():
    progress = Progress()
    for begin, end in ((0.0, 0.2), (1.0, 1.02), (2.0, 99.0)):
        progress.begin("compact", "f", begin)
        progress.finish(0, end, compacted=1)
    progress.begin("publish", "f", 3.0)
    progress.idle()
    progress.begin("publish", "f", 3.0)
    progress.fail("publish", "f", ValueError(), 7)
    told = progress.describe(100.0)["times"]
    times = told["compact"]
    assert told["publish"]["count"] == 0
    assert (times["count"], round(times["sum_s"], 6)) == (3, 97.22)
    at_most = times["at_most_s"]
    assert [at_most[bound] for bound in ("0.01", "0.1", "0.5", "60.0", "120.0", "+Inf")] == [
        0, 1, 2, 2, 3, 3,
    ]  # fmt: skip


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
    progress.finish(9, 0.0, sealed=1)
    shown = progress.describe(1.0)
    assert shown["last_error"] == {
        "job": "publish",
        "file_id": "f",
        "error": "ValueError",
        "at_ms": 7,
    }
    assert shown["totals"]["failures"] == 1


def test_two_threads_have_a_job_each_and_end_their_own():
    progress = Progress()
    progress.begin("publish", "f", 1.0)

    def compact():
        progress.begin("compact", "g", 2.0, total_items=10)
        progress.advance(5, 50)
        seen.append(progress.describe(3.0))
        progress.finish(7, 4.0, compacted=1)

    seen = []
    beside = threading.Thread(target=compact)
    beside.start()
    beside.join()
    assert [(job["job"], job["done_items"]) for job in seen[0]["jobs"]] == [
        ("publish", 0),
        ("compact", 5),
    ]
    assert seen[0]["running"]["job"] == "publish"
    assert [job["job"] for job in progress.describe(4.0)["jobs"]] == ["publish"]
