"""Reports of scans and lookups: what was considered, pruned, requested. For `last_scan`.

The tasks of a lookup report by an accumulator (`TaskNotes`), from every machine. Spark plans a
Python source in a process of its own and gives its tasks no accumulators (seen in 4.3), so a scan's
notes are small files in a folder of the driver's session::

    <scan>.plan.json          files considered and pruned, by the planner
    <scan>.<task>.json        requests, bytes, items, missing files; a retried task overwrites its own

Tasks on other machines see the folder when it is shared (``register(spark, notes=...)``). Otherwise
their numbers are in their logs only, and `tasks_reported` stays below `partitions`.

Depends on clock and index_service.
"""

from __future__ import annotations

import atexit
import contextlib
import json
import logging
import os
import shutil
import tempfile
from dataclasses import asdict, dataclass, field, fields
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from pyspark import AccumulatorParam

from tierdex.clock import SystemClock
from tierdex.errors import InvalidRequestError
from tierdex.index_service.answer import Unasked

if TYPE_CHECKING:
    from tierdex.clock import Clock

logger = logging.getLogger(__name__)

_KEPT_SCANS: Final = 50
_PLAN = ".plan.json"
_OF_THE_PLAN: Final = frozenset({"kind", "store", "manifest", "as_of", "unasked", "partitions"})
_CLOCK: Final = SystemClock()
_names = count()  # makes names of one process and one millisecond distinct
_session_folder: Path | None = None
_reported: dict[str, Any] = {}  # the accumulators of the last lookups, by scan


@dataclass(slots=True)
class ScanReport:
    """Sums over a scan. `manifest` is the snapshot: the number of each node's manifest.

    Everything acknowledged anywhere before `as_of` (ms) is in the snapshot; what was acknowledged since may
    be with the nodes in `unasked`, unpublished, as in an `Answer`.
    `files_pruned_by_filter` counts files whose filter excluded every wanted hash. `requests` are
    all GETs of tasks, `bytes` what they returned; `missing` the files left out by
    ``onError=partial``, and the nodes because of which the snapshot is older than asked for. All
    numbers are of the tasks that reported: `tasks_reported` of `partitions`.
    """

    kind: str = "scan"
    store: str = ""
    manifest: dict[str, int] = field(default_factory=dict)
    as_of: int = 0
    unasked: list[Unasked] = field(default_factory=list)
    partitions: int = 0
    tasks_reported: int = 0
    files_considered: int = 0
    files_pruned_by_time: int = 0
    files_pruned_by_topic: int = 0
    files_pruned: int = 0
    files_pruned_by_filter: int = 0
    files_read: int = 0
    pages_read: int = 0
    pages_pruned: int = 0
    items_read: int = 0
    entries: int = 0
    requests: int = 0
    bytes: int = 0
    missing: list[str] = field(default_factory=list)

    def add(self, other: dict[str, Any]) -> None:
        """Add the numbers of a task."""
        for one in fields(self):
            value = other.get(one.name)
            if one.name in _OF_THE_PLAN or value is None:
                continue
            if one.name == "missing":  # by several tasks, one file
                value = [note for note in value if note not in self.missing]
            setattr(self, one.name, getattr(self, one.name) + value)


class TaskNotes(AccumulatorParam[dict[int, dict[str, Any]]]):
    """An accumulator's rule: reports by task, so that a task that ran twice counts once."""

    def zero(self, value: dict[int, dict[str, Any]]) -> dict[int, dict[str, Any]]:
        return {}

    def addInPlace(
        self, value1: dict[int, dict[str, Any]], value2: dict[int, dict[str, Any]]
    ) -> dict[int, dict[str, Any]]:
        return value1 | value2


def use_folder(notes: str) -> None:
    """Keep notes in `notes` from now on. Raises InvalidRequestError unless it is a folder's path."""
    global _session_folder
    if not Path(notes).is_absolute() or not Path(notes).is_dir():
        raise InvalidRequestError("must be the absolute path of a folder", field="notes")
    folder = Path(notes) / new_scan_name()
    folder.mkdir()
    forget_session()
    _session_folder = folder


def session_folder() -> str:
    """Return the folder of this driver's notes, made when first asked for."""
    global _session_folder
    if _session_folder is None or not _session_folder.is_dir():
        _session_folder = Path(tempfile.mkdtemp(prefix="tierdex-scans-"))
        atexit.register(shutil.rmtree, _session_folder, ignore_errors=True)
    return str(_session_folder)


def forget_session() -> None:
    """Remove the notes; for the end of a session."""
    global _session_folder
    if _session_folder is not None:
        shutil.rmtree(_session_folder, ignore_errors=True)
    _session_folder = None
    _reported.clear()


def new_scan_name(clock: Clock = _CLOCK) -> str:
    """Return a name that no other call returns, and that sorts by time."""
    return f"{clock.now_ms():015d}-{os.getpid()}-{next(_names):06d}"


def note_plan(folder: str | None, scan: str, report: ScanReport) -> None:
    """Write the planner's numbers, and remove the notes of the oldest scans."""
    logger.info("scan planned", extra={"scan": scan, **asdict(report)})
    if folder is not None and Path(folder).is_dir():
        _write(Path(folder) / f"{scan}{_PLAN}", report)
        _forget_old(Path(folder))


def note_task(folder: str | None, scan: str, task: int, report: ScanReport) -> None:
    """Write the numbers of one task."""
    report.tasks_reported = 1
    logger.info("scanned", extra={"scan": scan, "task": task, **asdict(report)})
    if folder is not None and Path(folder).is_dir():
        _write(Path(folder) / f"{scan}.{task}.json", report)


def await_notes(scan: str, notes: Any) -> None:
    """Make `last_scan` read the accumulator of a lookup's tasks."""
    _reported[scan] = notes
    while len(_reported) > _KEPT_SCANS:
        # Its lookup may run again, so the accumulator stays registered.
        _reported.pop(min(_reported)).value = {}


def last_scan() -> ScanReport | None:
    """Return the report of the scan or lookup planned last in this session, None before any.

    It is complete once the action that ran the tasks has returned.
    """
    folder = Path(session_folder())
    plans = sorted(name for name in os.listdir(folder) if name.endswith(_PLAN))
    if not plans:
        return None
    scan = plans[-1].removesuffix(_PLAN)
    report = ScanReport(**json.loads((folder / plans[-1]).read_text()))
    report.unasked = [Unasked(*each) for each in report.unasked]
    for name in sorted(os.listdir(folder)):
        if name.startswith(f"{scan}.") and name.endswith(".json") and not name.endswith(_PLAN):
            report.add(json.loads((folder / name).read_text()))
    if scan in _reported:
        for noted in _reported[scan].value.values():
            report.add(noted)
    return report


def _write(path: Path, report: ScanReport) -> None:
    fresh = path.with_suffix(f".{os.getpid()}.tmp")
    fresh.write_text(json.dumps(asdict(report)))
    fresh.rename(path)


def _forget_old(folder: Path) -> None:
    plans = sorted(name for name in os.listdir(folder) if name.endswith(_PLAN))
    for plan in plans[:-_KEPT_SCANS]:
        scan = plan.removesuffix(_PLAN)
        for name in os.listdir(folder):
            if name.startswith(f"{scan}."):
                with contextlib.suppress(FileNotFoundError):
                    (folder / name).unlink()
