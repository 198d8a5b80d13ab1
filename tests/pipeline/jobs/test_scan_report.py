"""What scans and lookups report: where the notes lie, and that a task that ran twice counts once."""

from __future__ import annotations

import pytest

from tierdex.clock import ManualClock
from tierdex.errors import InvalidRequestError
from tierdex.pipeline import last_scan
from tierdex.pipeline.jobs import scan_report
from tierdex.pipeline.jobs.scan_report import (
    ScanReport,
    TaskNotes,
    new_scan_name,
    note_plan,
    note_task,
    use_folder,
)


@pytest.fixture(autouse=True)
def own_session(monkeypatch):
    """Leave the notes of the tests' Spark session alone."""
    monkeypatch.setattr(scan_report, "_session_folder", None)
    monkeypatch.setattr(scan_report, "_reported", {})


def test_notes_go_to_the_folder_that_all_machines_share(tmp_path):
    use_folder(str(tmp_path))
    (folder,) = tmp_path.iterdir()
    assert scan_report.session_folder() == str(folder)
    note_plan(str(folder), "1", ScanReport(partitions=3, files_considered=3))
    for task in (0, 1, 1):  # one ran twice
        note_task(str(folder), "1", task, ScanReport(requests=5, missing=["a: gone"]))
    report = last_scan()
    assert (report.partitions, report.tasks_reported, report.requests) == (3, 2, 10)
    assert report.missing == ["a: gone"]
    scan_report.forget_session()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("folder", ["notes", "/nowhere/at/all"])
def test_notes_in_no_folder_are_refused(folder):
    with pytest.raises(InvalidRequestError, match="notes"):
        use_folder(folder)


def test_notes_of_a_machine_without_the_folder_are_in_its_log_only(caplog):
    with caplog.at_level("INFO", logger="tierdex"):
        note_task("/nowhere/at/all", "1", 7, ScanReport(requests=5))
    (record,) = caplog.records
    assert (record.task, record.requests) == (7, 5)


def test_a_task_that_ran_twice_is_added_once():
    notes = TaskNotes()
    first = notes.addInPlace(notes.zero({}), {0: {"requests": 1}})
    assert notes.addInPlace(first, {0: {"requests": 2}, 1: {}}) == {0: {"requests": 2}, 1: {}}


def test_scans_are_told_apart_and_sort_by_the_time_of_the_clock():
    clock = ManualClock()
    names = []
    for _ in range(3):
        names += [new_scan_name(clock) for _ in range(3)]  # within one millisecond
        clock.step(1)
    assert names == sorted(set(names))
