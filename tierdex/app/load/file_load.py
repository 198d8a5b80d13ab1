"""One file of a load: where reading begins, its pieces, and the record of its progress.

An earlier note of the same file and options is used like this:

| the note says | the file now | it is |
|---|---|---|
| all of it | has the same size and time | skipped unread |
| to a mark | has the same text before the mark | gone on with behind the mark: the rest, what was appended |
| to a row, of a Parquet file | has the same digest | gone on with behind the row |
| anything | is another one | loaded from its begin |

Depends on the other modules of this folder, files, resolving and xxhash.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import xxhash

from tierdex.app.load.csv_rows import read_csv_pieces
from tierdex.app.load.jsonl_rows import read_jsonl_pieces
from tierdex.app.load.parquet_rows import read_parquet_pieces
from tierdex.app.load.plan import Plan
from tierdex.app.load.records import BLOCK_BYTES, ChangedTextError, Mark, read_blocks
from tierdex.app.load.register import LoadedFile, Reached
from tierdex.files.object_file import is_local
from tierdex.resolving.unfolded_text import codec_of

if TYPE_CHECKING:
    from collections.abc import Generator

    from tierdex.app.load.plan import LoadOptions
    from tierdex.app.load.rows import Piece
    from tierdex.app.load.sources import SourceFile, Sources
    from tierdex.files.object_file import RangeFile
    from tierdex.resolving.unfolded_text import Text

SETTLED_MS: Final = (
    2000  # a file may change within one tick of its time: younger times prove nothing
)


class Portion(NamedTuple):
    """A piece of a file, its plan, and how many of the file's bytes are read with it."""

    load: FileLoad
    plan: Plan
    piece: Piece | None  # None: the file's end
    done_bytes: int


class FileLoad:
    """The load of one file."""

    def __init__(
        self,
        file: SourceFile,
        options: LoadOptions,
        now_ms: int,
        *,
        names_source: bool,
        may_be_empty: bool = False,
    ) -> None:
        """Raises InvalidRequestError naming the option."""
        self.file = file
        self._may_be_empty = may_be_empty
        self._plan = Plan.make(options, file.kind, file.changed_ms, names_source=names_source)
        self._form = self._plan.csv_format(tabs=file.is_tab_separated)
        self._changed_ms = -1 if now_ms - file.changed_ms < SETTLED_MS else file.changed_ms
        self._known: Reached | None = None
        self._begin: Mark | None = None
        self.has_rows = False
        self.waiting: str | None = None  # the place of a last line that has no line break yet
        self.loaded = LoadedFile(
            file.address, file.kind, (), options.keys, options.message_id,
            delimiter=self._form.delimiter, null_values=options.null_values,
            parameters=file.parameters, how=options.how,
            reached=Reached(file.size, self._changed_ms, False, file.changed_ms),
        )  # fmt: skip

    def goes_on_from(self, known: LoadedFile | None) -> None:
        """Begin where an earlier load ended, if the file turns out to be the same up to there."""
        if known is None or known.reached is None:
            return
        self._known = known.reached
        if known.reached.position:
            self._begin = known.reached.mark
            self._form = replace(self._form, columns=known.columns or None)
        # What may be put again keeps its time: rows behind the last note, a last line that is still open.
        if not known.reached.is_whole or known.reached.size == self.file.size:
            self._at_time(known.reached.time_ms)

    @property
    def is_known_whole(self) -> bool:
        """Whether all of the file is loaded, by its size and time."""
        known = self._known
        return (
            known is not None
            and known.is_whole
            and (known.size, known.changed_ms) == (self.file.size, self._changed_ms)
            and known.changed_ms >= 0
        )

    @property
    def is_fresh(self) -> bool:
        """Whether no note of the file is of use: it is loaded from its begin, at its present time."""
        return self._known is None or (self._known.is_whole and not self._known.position)

    def note(self, portion: Portion, topics: set[str]) -> LoadedFile:
        """Return what is to be noted once a portion is put; `topics` are those of its entries."""
        reached = self.loaded.reached
        assert reached is not None
        piece = portion.piece
        if piece is None:
            reached = reached._replace(is_whole=self.waiting is None)
        else:
            self.has_rows = self.has_rows or len(piece) > 0
            if piece.mark is not None:
                position, line, digest = piece.mark
                reached = reached._replace(position=position, line=line, digest=digest)
        columns = piece.columns if piece is not None else self.loaded.columns
        known = set(self.loaded.topics)
        self.loaded = replace(
            self.loaded, topics=tuple(sorted(known | topics)), columns=columns, reached=reached
        )
        return self.loaded

    @property
    def reached_place(self) -> str:
        """How far the file is loaded, for a reader."""
        reached = self.loaded.reached
        assert reached is not None
        if self.file.kind == "parquet":
            return f"{self.file.address}: row {reached.position}"
        return f"{self.file.address}:{reached.line}"

    def portions(self, sources: Sources) -> Generator[Portion, None, None]:
        """Yield the pieces that are not loaded yet, then the end. Raises as `Loader.load`."""
        size = self.file.size
        if self.file.is_stream:
            yield from self._of_text(sources.text_of(self.file, None), None, None)
        else:
            with sources.opened(self.file) as opened:
                if self.file.kind == "parquet":
                    yield from self._of_parquet(opened)
                else:
                    yield from self._of_file(sources, opened)
        yield Portion(self, self._plan, None, size)

    def _of_file(self, sources: Sources, opened: RangeFile) -> Generator[Portion, None, None]:
        try:
            yield from self._of_text(sources.text_of(self.file, opened), opened, self._begin)
        except ChangedTextError:  # before the first piece
            self._begins_anew()
            yield from self._of_text(sources.text_of(self.file, opened), opened, None)

    def _of_text(
        self, text: Text, opened: RangeFile | None, begin: Mark | None
    ) -> Generator[Portion, None, None]:
        name = "the standard input" if opened is None else self.file.address
        is_csv = self.file.kind == "csv"
        delimiter = self._form.delimiter if is_csv else None
        # A stream, a compressed file and an object end when they end; a file here may still be written.
        may_grow = opened is not None and "://" not in name and codec_of(name) is None
        takes_last = self._plan.options.take_last_line or not may_grow
        blocks = read_blocks(text, name, delimiter=delimiter, begin=begin, takes_last=takes_last)
        pieces: Any
        if is_csv:
            pieces = read_csv_pieces(
                blocks, name, self._plan.columns, self._form, may_be_empty=self._may_be_empty
            )
        else:
            pieces = read_jsonl_pieces(blocks, self._plan.columns)
        is_folded = codec_of(name) is not None
        for piece in pieces:
            done = piece.block.position + len(piece.block.data)
            if is_folded and opened is not None:
                done = opened.tell()
            if piece.block.waiting is not None:
                self.waiting = f"{name}:{piece.block.waiting}"
            yield Portion(self, self._plan, piece, min(done, self.file.size) or done)

    def _of_parquet(self, opened: RangeFile) -> Generator[Portion, None, None]:
        is_here = is_local(self.file.address)
        digest = _digest_of(opened) if is_here else ""
        known = self._known
        is_same = known is not None and (
            known.digest == digest
            if is_here
            else (known.size, known.changed_ms) == (self.file.size, self._changed_ms)
        )
        if not is_same:
            self._begins_anew()
        begin = Mark(self._begin.position if self._begin else 0, 1, digest)
        wanted = self._plan.columns
        for piece in read_parquet_pieces(opened, self.file.address, wanted, begin):
            done = int(self.file.size * piece.done)
            yield Portion(self, self._plan, piece, done)

    def _begins_anew(self) -> None:
        self._begin = None
        self._form = replace(self._form, columns=None)
        self._at_time(self.file.changed_ms)

    def _at_time(self, time_ms: int) -> None:
        assert self.loaded.reached is not None
        self._plan = replace(self._plan, time_ms=time_ms)
        self.loaded = replace(self.loaded, reached=self.loaded.reached._replace(time_ms=time_ms))


def _digest_of(file: RangeFile) -> str:
    digest = xxhash.xxh3_128()
    for position in range(0, file.length, BLOCK_BYTES):
        digest.update(file.read_at(position, BLOCK_BYTES))
    return digest.hexdigest()
