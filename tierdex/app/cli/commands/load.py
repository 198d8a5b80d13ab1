"""`tierdex load FILE...`: CSV, JSON lines or Parquet into the index.

Depends on app.load, disk_errors, errors and the rest of app.cli.
"""

from __future__ import annotations

import signal
import threading
from contextlib import ExitStack, contextmanager
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import orjson
import typer

from tierdex.app.cli.inputs.opening import DEFAULT_DATA, Target, opened_for_writing
from tierdex.app.cli.terminal import options
from tierdex.app.cli.terminal.exits import Exit, say
from tierdex.app.cli.terminal.options import Form, Level
from tierdex.app.cli.terminal.output import write_fields
from tierdex.app.cli.terminal.progress_bar import progress_bar
from tierdex.disk_errors import naming
from tierdex.errors import InvalidRequestError
from tierdex.value_rules import check_durability

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tierdex.app.load.entry_batches import BadRow
    from tierdex.app.load.loader import LoadReport


class Kind(StrEnum):
    """Kinds of files."""

    CSV = "csv"
    JSONL = "jsonl"
    PARQUET = "parquet"


class Columns(NamedTuple):
    """What of a row is indexed."""

    topic: Annotated[str, typer.Option("--topic", "-t", help="Name, or {template} of columns.")]
    key: Annotated[
        list[str] | None,
        typer.Option("--key", "-k", help="Column or {template}; repeatable."),
    ] = None
    message_id: Annotated[
        str | None, typer.Option("--message-id", "-i", help="Column or {template}.")
    ] = None
    timestamp: Annotated[
        str | None, typer.Option(help="Column or {template} (default: the file's own time).")
    ] = None
    timezone: Annotated[str | None, typer.Option(help="Time zone of times that name none.")] = None
    queue: Annotated[str | None, typer.Option(help="Number, column or {template}.")] = None
    kind: Annotated[
        Kind | None, typer.Option(help="csv, jsonl or parquet (default: by the name).")
    ] = None
    delimiter: Annotated[str | None, typer.Option(help="Delimiter of a CSV.")] = None
    take_last_line: Annotated[
        bool,
        typer.Option(
            "--take-last-line",
            help="Load a last line without a line break, too: the file is finished.",
        ),
    ] = False


class BadRows(NamedTuple):
    """What becomes of rows that cannot be indexed."""

    skip_bad: Annotated[
        bool, typer.Option("--skip-bad", help="Skip bad rows, and append them to --bad-rows.")
    ] = False
    bad_rows: Annotated[
        Path, typer.Option(help="File to which bad rows are appended, as JSON lines.")
    ] = Path("bad-rows.jsonl")
    max_bad: Annotated[int, typer.Option(help="Stop the load after this many bad rows.")] = 10_000


class Loading(NamedTuple):
    """How entries are put, and what is remembered of the files."""

    again: Annotated[
        bool, typer.Option("--again", help="Load files again that are loaded already.")
    ] = False
    notes: Annotated[
        Path | None,
        typer.Option(
            help="With --url: file that records what this service has loaded (default: none)."
        ),
    ] = None
    durability: Annotated[Level, typer.Option(help="Level of the acknowledgement.")] = Level.DISK


def load(
    *,
    files: Annotated[
        list[str],
        typer.Argument(
            metavar="FILE",
            help="CSV, JSON lines or Parquet, also .gz and .zst: files, folders, 'globs', s3:// URLs; "
            "`-` is stdin.",
        ),
    ],
    columns: Columns,
    bad: BadRows,
    loading: Loading,
    target: Target,
    output: options.Output = Form.TABLE,
    ownership: options.Ownership,
) -> None:
    """Load files: each row becomes an entry that locates the bytes of the row.

    A file that was loaded before is skipped. A file that has grown, or whose load
    was interrupted, is continued. Exit code 130: interrupted; 4: a last line waits for
    its line break; 1: no row gave a key.
    """
    from tierdex.app.load.loader import Loader, Watch
    from tierdex.app.load.plan import LoadOptions
    from tierdex.app.load.register import LoadRegister
    from tierdex.filesystem import LocalFileSystem

    named = columns._asdict()
    keys, kind = tuple(named.pop("key") or ()), named.pop("kind")
    what = LoadOptions(**named, keys=keys, kind=kind and kind.value)
    register: LoadRegister | None = None
    notes = loading.notes
    if target.url is None:
        if notes is not None:
            raise InvalidRequestError(
                "is for --url: a data folder has notes of its own", field="--notes"
            )
        register = LoadRegister(LocalFileSystem(), target.data or DEFAULT_DATA)
    elif notes is not None:
        register = LoadRegister(LocalFileSystem(), notes.parent, notes.name)
    rejects = _BadRows(bad.bad_rows)
    with ExitStack() as closing:
        progress = closing.enter_context(progress_bar(_title(files)))
        closing.callback(rejects.close)
        index = closing.enter_context(opened_for_writing(target, target.settings, ownership))
        stop = closing.enter_context(asked_to_stop())
        watch = Watch(progress, stop, rejects.write if bad.skip_bad else None, bad.max_bad)
        loader = Loader(index, register=register, names_source=target.url is None)
        level = check_durability(loading.durability.value)
        report = loader.load(files, what, watch, durability=level, again=loading.again)
    _tell(output, report, rejects, is_remembered=register is not None)


class _BadRows:
    """The file of bad rows, made with the first one."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file: Any = None

    def write(self, bad: BadRow) -> None:
        row = bad.row.decode(errors="backslashreplace")
        with naming(self.path):
            if self._file is None:
                self._file = self.path.open("ab")
            self._file.write(
                orjson.dumps({"place": bad.place, "error": bad.error, "row": row}) + b"\n"
            )

    def close(self) -> None:
        if self._file is not None:
            with naming(self.path):
                self._file.close()


def _title(files: list[str]) -> str:
    return Path(files[0]).name if len(files) == 1 else f"{len(files)} sources"


def _tell(output: Form, report: LoadReport, rejects: _BadRows, *, is_remembered: bool) -> None:
    names = (
        "files", "unchanged", "left_out", "rows", "entries", "message_ids", "skipped", "bad_rows",
        "waiting", "stopped_at",
    )  # fmt: skip
    write_fields(output, {name: getattr(report, name) for name in names})
    if report.bad_rows:
        say(f"bad rows that were left out: {report.bad_rows:,}; they are in {rejects.path}")
    if report.replaced:
        say(f"written anew since their last load, old entries forgotten: {len(report.replaced):,}")
    for name, why in sorted(report.not_files.items()):
        say(f"skipped: {name} is {why}")
    if report.left_out:
        say(f"files of no known format that were left out: {report.left_out:,} (see --kind)")
    if report.stopped_at is not None:
        then = "the same command goes on from there" if is_remembered else "all before it is in"
        say(f"interrupted at {report.stopped_at}, after {report.rows:,} rows: {then}")
        raise typer.Exit(Exit.INTERRUPTED)
    if report.rows and not report.entries:
        empty = ", ".join(name for name, count in report.skipped.items() if count) or "all columns"
        say(f"nothing was indexed: {empty} had no value in any of {report.rows:,} rows")
        raise typer.Exit(Exit.ERROR)
    for place in report.waiting[:10]:
        say(
            f"{place}: the last line has no line break, and was not loaded: it may still be written. The "
            "same command takes it once it has one, with --take-last-line at once"
        )
    if report.waiting:
        raise typer.Exit(Exit.INCOMPLETE)


@contextmanager
def asked_to_stop() -> Iterator[Callable[[], bool]]:
    """Yield what says whether Ctrl-C was pressed. Only the main thread hears of it."""
    asked = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield asked.is_set
        return

    def hear(_number: int, _frame: Any) -> None:
        if asked.is_set():
            raise KeyboardInterrupt
        asked.set()

    before = signal.signal(signal.SIGINT, hear)
    try:
        yield asked.is_set
    finally:
        signal.signal(signal.SIGINT, before)
