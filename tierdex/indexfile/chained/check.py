"""What must hold in a chained file, verified whole: the proof of a walk, and `check` in words.

Depends on batch_scan, fileparts, tally, header, layout and statistics.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from tierdex.errors import CorruptFileError
from tierdex.fileparts.dictionary import Dictionaries
from tierdex.indexfile import layout
from tierdex.indexfile.chained.batch_scan import scan_file
from tierdex.indexfile.chained.tally import Tally
from tierdex.indexfile.header import decode_header
from tierdex.indexfile.statistics import RowMeasure

if TYPE_CHECKING:
    from tierdex.filesystem import OpenFile
    from tierdex.indexfile.chained.file import ChainedFile
    from tierdex.indexfile.chained.view import ChainedView
    from tierdex.indexfile.header import FileHeader


class Proof(NamedTuple):
    """What the verified batches of the rows 1 .. rows hold: compare it with what a walk gives."""

    rows: int
    items: int
    fingerprint: int


def prove(
    header: FileHeader,
    path: object,
    view: ChainedView,
    row_count: int,
    measure: RowMeasure | None = None,
) -> Proof:
    """Verify every batch of the first `row_count` rows, and `measure` their items.

    Reads the rows in order, which also brings them into memory before chains jump about in them.
    Raises CorruptFileError.
    """
    tally = Tally(header, with_ends=False)
    begin = layout.rows_position(header.slot_count)
    tally.bind(slots=0, rows=view.data.ctypes.data + begin)
    if measure is None:
        RowMeasure(header.schema).verify_batches(tally.array, row_count)
    else:
        measure.add_batches(tally.array, row_count)
    if tally.next_row <= row_count:
        raise CorruptFileError(
            path, f"batch {tally.batches} at row {tally.next_row} does not verify"
        )
    return Proof(row_count, tally.items, tally.fingerprint)


def check_chained(
    chained: ChainedFile, view: ChainedView, tally: Tally, file: OpenFile
) -> list[str]:
    """Return every broken invariant of what `chained` has published, in words.

    Appends may go on meanwhile: what the writer knows beyond the rows that are checked is left alone.
    """
    problems: list[str] = []
    for name, verify in (
        ("header", _check_header),
        ("blocks", _check_blocks),
        ("batches", _check_batches),
        ("chains", _check_chains),
    ):
        try:
            problems += [f"{name}: {problem}" for problem in verify(chained, view, tally, file)]
        except CorruptFileError as error:
            problems.append(f"{name}: {error.reason}")
    return problems


def _check_header(
    chained: ChainedFile, view: ChainedView, tally: Tally, file: OpenFile
) -> list[str]:
    stored = decode_header(file.read_at(0, layout.HEADER_BYTES), chained.path)
    return [] if stored == chained.header else ["differs from what was opened"]


def _check_blocks(
    chained: ChainedFile, view: ChainedView, tally: Tally, file: OpenFile
) -> list[str]:
    return [f"checksum of block {block} differs" for block in view.verify_blocks()]


def _check_batches(
    chained: ChainedFile, view: ChainedView, tally: Tally, file: OpenFile
) -> list[str]:
    """Derive everything again from the batches, and compare."""
    header, published = chained.header, chained.snapshot
    again, dictionaries = Tally(header), Dictionaries(header.schema.dictionary_names)
    scan_file(
        file.read_at,
        header,
        chained.path,
        again,
        dictionaries,
        slots=None,
        row_limit=published.rows,
    )
    found = (again.next_row - 1, again.items, *again.time_bounds)
    problems = []
    if found != tuple(published):
        problems.append(f"rows, items, times are {found}, {tuple(published)} are published")
    of_the_end = []
    if (again.batches, again.crc) != (tally.batches, tally.crc):
        of_the_end.append("number or checksum of the last batch differs")
    if again.ends() != tally.ends():
        of_the_end.append("end offsets differ")
    if tally.next_row - 1 == published.rows:  # asked last: else a batch came since `published`
        problems += of_the_end
    problems += [
        f"dictionary {name} differs"
        for name in header.schema.dictionary_names
        if (names := dictionaries.strings(name)) != chained.dictionaries.strings(name)[: len(names)]
    ]
    return problems


def _check_chains(
    chained: ChainedFile, view: ChainedView, tally: Tally, file: OpenFile
) -> list[str]:
    """Walk all chains: every item exactly once (the walk proves it), in order of hash."""
    problems = []
    last = np.uint64(0)
    for chunk in chained.rows_in_hash_order():
        hashes = chunk["key_hash"]
        if hashes[0] < last or (hashes[1:] < hashes[:-1]).any():
            problems.append(f"rows near hash {int(hashes[0]):#x} come out unsorted")
        last = hashes[-1]
    return problems
