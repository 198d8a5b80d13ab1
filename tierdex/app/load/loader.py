"""`tierdex load`: makes entries of the rows of CSV, JSONL and Parquet files.

::

    files -> reader (pieces of rows) -> every core: columns of entries -> Index.put_batch, in order
                                                                              |
                           register: how far each file is  <- on disk --------+

The location of a row names its file: (source, offset and length of its line), for Parquet (source, row group,
row), in schemas of their own. What takes messages only, a service or a message log, gets offset and length.

A load is a stream of batches, each applied as a whole. When the load stops at a bad row, the pieces
before it are in. Loading a file again is harmless: queries drop repeated entries.

Depends on clock, errors, filesystem and the other modules of this folder.
"""

from __future__ import annotations

import os
from collections import deque
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeVar

from tierdex.app.load.entry_batches import Batches, make_batches
from tierdex.app.load.file_load import FileLoad, Portion
from tierdex.app.load.loaded_file import is_unchanged
from tierdex.app.load.sources import Sources
from tierdex.clock import Bell, SystemClock
from tierdex.errors import BacklogFullError, InvalidRequestError, NotFoundError
from tierdex.filesystem import LocalFileSystem

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Sequence
    from concurrent.futures import Future

    from tierdex.app.load.entry_batches import BadRow, Batch
    from tierdex.app.load.plan import LoadOptions
    from tierdex.app.load.register import LoadedFile, LoadRegister
    from tierdex.clock import Clock
    from tierdex.filesystem import FileSystem
    from tierdex.value_rules import Durability

_REPLACED_BYTES_MOST: Final = (
    1 << 30
)  # that are read of a file to find out whether it is another one
NOTE_INTERVAL_S: Final = 10.0  # what a crash may let load again


class PutPort(Protocol):
    """The verbs of an index that loading calls."""

    def put_batch(self, *args: Any, **columns: Any) -> Any: ...
    def flush(self, durability: Durability = ..., /) -> Any: ...


@dataclass
class LoadReport:
    """What a load did.

    `files` were read to their end, `unchanged` ones had nothing new, `left_out` ones of folders are of no
    known format, `not_files` are pipes, sockets, devices and links to nothing, by name. Of the files that
    were read: `rows`, `entries` put, `message_ids` among them, `skipped`
    rows of each key template (no value), `bad_rows`. `stopped_at` is where the caller stopped it.
    `waiting` has the places of last lines that have no line break yet, and are not loaded.
    `replaced` are files that were written anew since an earlier load, whose old entries are forgotten.
    """

    files: int = 0
    unchanged: int = 0
    left_out: int = 0
    not_files: dict[str, str] = field(default_factory=dict)
    rows: int = 0
    entries: int = 0
    message_ids: int = 0
    bad_rows: int = 0
    skipped: dict[str, int] = field(default_factory=dict)
    topics: set[str] = field(default_factory=set)
    stopped_at: str | None = None
    waiting: list[str] = field(default_factory=list)
    replaced: list[str] = field(default_factory=list)

    def add(self, made: Batches) -> None:
        self.rows += made.rows
        self.entries += made.entries
        self.message_ids += made.message_ids
        self.bad_rows += len(made.bad)
        self.topics |= made.topics
        for text, count in made.skipped.items():
            self.skipped[text] += count


@dataclass(frozen=True)
class Watch:
    """What a caller sees of a load, and decides while it runs.

    `progress(done_bytes, total_bytes)` is called before the first piece and after each. When `stop` says so
    the load ends behind the piece at hand. `on_bad` takes rows that make no entry, `max_bad` of them at most;
    without it the first one ends the load.
    """

    progress: Callable[[int, int], None] = lambda _done, _total: None
    stop: Callable[[], bool] = lambda: False
    on_bad: Callable[[BadRow], None] | None = None
    max_bad: int = 10_000


class Loader:
    """Loads files into one index. Not for several threads at once."""

    def __init__(
        self,
        index: PutPort,
        *,
        register: LoadRegister | None = None,
        filesystem: FileSystem | None = None,
        clock: Clock | None = None,
        patience_s: float = 600.0,
        names_source: bool = True,
    ) -> None:
        """`register` remembers each file, for `--show` and for the next load of it.

        A full backlog is waited for: `patience_s`. `names_source` is false for what takes messages only.
        """
        self._index = index
        self._register = register
        self._filesystem = filesystem or LocalFileSystem()
        self._clock = clock or SystemClock()
        self._patience_s = patience_s
        self._names_source = names_source
        self._unnoted: dict[tuple[object, ...], LoadedFile] = {}

    def load(
        self,
        given: str | Path | Sequence[str | Path],
        options: LoadOptions,
        watch: Watch | None = None,
        *,
        durability: Durability = "disk",
        again: bool = False,
    ) -> LoadReport:
        """Load files (see load/sources.py) and bring them to `durability`; with a register to disk at least.

        What the register knows to be loaded is left out, unless `again`. Raises NotFoundError,
        InvalidRequestError (naming ``file:line`` or the option), and what `Index.put_batch`, files and stores
        raise; what was put before is noted, so that the same call goes on from there.
        """
        watch = watch or Watch()
        names = [given] if isinstance(given, str | Path) else list(given)
        report = LoadReport(skipped=dict.fromkeys(options.keys, 0))
        with closing(Sources(self._filesystem, self._clock.now_ms())) as sources:
            files = sources.find(names, options.kind)
            if len(files) == 1 and not files[0].size and not files[0].is_stream:
                raise InvalidRequestError(f"{files[0].address} is empty", field="file")
            report.left_out = sources.left_out
            report.not_files = sources.not_files
            now = self._clock.now_ms()
            loads = [
                FileLoad(
                    one, options, now, names_source=self._names_source, may_be_empty=len(files) > 1
                )
                for one in files
            ]
            noted = [] if self._register is None else self._register.files()
            if not again:
                loads = self._without_known(loads, report)
            self._forget_replaced(loads, noted, sources, report)
            try:
                self._put_all(loads, sources, watch, report)
            except (InvalidRequestError, NotFoundError):
                self._note()
                raise
        self._note()
        if report.rows and (self._register is None or durability == "remote"):
            self._index.flush(durability)
        return report

    def _without_known(self, loads: list[FileLoad], report: LoadReport) -> list[FileLoad]:
        """Return the loads that have something to do, each with its place to go on from; note them all."""
        if self._register is None:
            return loads
        known = {file.identity: file for file in self._register.files()}
        for load in loads:
            load.goes_on_from(known.get(load.loaded.identity))
        wanted = [load for load in loads if not load.is_known_whole]
        report.unchanged = len(loads) - len(wanted)
        # Before the first put: should the process die, the rows keep the time of this load (`time_ms`).
        fresh = [load.loaded for load in wanted if load.is_fresh]
        if fresh:
            self._register.remember(fresh)
        return wanted

    def _forget_replaced(
        self,
        loads: list[FileLoad],
        noted: list[LoadedFile],
        sources: Sources,
        report: LoadReport,
    ) -> None:
        """Forget this node's entries of files that were written anew since, before their rows are put.

        Not those of a file of which any load saw what is there now, under other options perhaps: its entries
        would go with them.
        """
        forget = getattr(self._index, "forget_sources", None)
        if forget is None or not self._names_source:  # a service, or a log: it knows no files
            return
        of_path: dict[str, list[LoadedFile]] = {}
        for file in noted:
            of_path.setdefault(file.path, []).append(file)
        for load in loads:
            if load.file.is_stream or load.file.address not in of_path:
                continue
            with sources.opened(load.file) as opened:
                found = [
                    is_unchanged(each, opened, _REPLACED_BYTES_MOST)
                    for each in of_path[load.file.address]
                ]
            if all(each is False for each in found):
                report.replaced.append(load.file.address)
        if report.replaced:
            forget(report.replaced, own=True)

    def _put_all(
        self, loads: list[FileLoad], sources: Sources, watch: Watch, report: LoadReport
    ) -> None:
        def portions() -> Generator[Portion, None, None]:
            for load in loads:
                yield from load.portions(sources)

        def batches(portion: Portion) -> Batches:
            if portion.piece is None:
                return Batches()
            limit = None if watch.on_bad is None else watch.max_bad
            return make_batches(portion.piece, portion.load.file.address, portion.plan, limit)

        total = sum(load.file.size for load in loads)
        finished = 0
        watch.progress(0, total)
        next_note = self._clock.monotonic() + NOTE_INTERVAL_S
        with closing(work_ahead(portions(), batches)) as made:
            for portion, batch in made:
                for one in batch.batches:
                    self._put(one)
                report.add(batch)
                self._tell_bad(batch, watch, report)
                load = portion.load
                note = load.note(portion, batch.topics)
                if not load.file.is_stream:
                    self._unnoted[note.identity] = note
                watch.progress(finished + portion.done_bytes, total)
                if portion.piece is None:
                    finished += load.file.size
                    report.waiting += [load.waiting] if load.waiting else []
                    report.files += load.has_rows
                    report.unchanged += not load.has_rows
                elif watch.stop():
                    report.stopped_at = load.reached_place
                    return
                if self._clock.monotonic() >= next_note:
                    self._note()
                    next_note = self._clock.monotonic() + NOTE_INTERVAL_S

    def _tell_bad(self, made: Batches, watch: Watch, report: LoadReport) -> None:
        if watch.on_bad is None:
            return
        for bad in made.bad:
            watch.on_bad(bad)
        if report.bad_rows > watch.max_bad:
            last = made.bad[-1]
            raise InvalidRequestError(
                f"{last.error}; it is one of {report.bad_rows} bad rows, and --max-bad is {watch.max_bad}",
                field=last.place,
            )

    def _put(self, batch: Batch) -> None:
        """Put a batch; while the backlog is full wait, `patience_s` at most. Errors name the row's place."""
        give_up = self._clock.monotonic() + self._patience_s
        while True:
            try:
                self._index.put_batch(**batch.columns)
            except BacklogFullError as error:
                if self._clock.monotonic() >= give_up:
                    raise
                self._clock.wait(Bell(), error.retry_after_s)
            except InvalidRequestError as error:
                raise batch.placed(error) from error
            else:
                return

    def _note(self) -> None:
        """Sync what was put, then note it (see register.py for the order)."""
        if self._register is not None and self._unnoted:
            self._index.flush("disk")
            self._register.remember(list(self._unnoted.values()))
        self._unnoted.clear()


T = TypeVar("T")
R = TypeVar("R")


def work_ahead(
    items: Generator[T, None, None], work: Callable[[T], R]
) -> Generator[tuple[T, R], None, None]:
    """Yield (item, result) in order; every core works, a few items ahead of the caller.

    What `work` raises is raised at its item, what `items` raises after the results before it. `items` is
    closed at the end.
    """
    cores = len(os.sched_getaffinity(0))
    waiting: deque[tuple[T, Future[R]]] = deque()
    failure: Exception | None = None
    with ThreadPoolExecutor(cores, "tierdex-load") as pool, closing(items):
        try:
            while failure is None:
                try:
                    item = next(items)
                except StopIteration:
                    break
                except Exception as error:  # noqa: BLE001 - raised below, behind what came before it
                    failure = error
                    break
                waiting.append((item, pool.submit(work, item)))
                if len(waiting) > cores:
                    item, done = waiting.popleft()
                    yield item, done.result()
            while waiting:
                item, done = waiting.popleft()
                yield item, done.result()
        finally:
            for _, unused in waiting:
                unused.cancel()
    if failure is not None:
        raise failure
