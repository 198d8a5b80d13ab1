"""Every rule of the chained form, in words: what `check` of a chained file finds broken.

Depends on batch_scan, batch_statistics, fileparts, header, layout and errors; sees the file as a reader.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from tierdex.errors import CorruptFileError
from tierdex.fileparts.dictionary import Dictionaries
from tierdex.indexfile import layout
from tierdex.indexfile.chained.batch_scan import ScannedFile, scan_file
from tierdex.indexfile.chained.batch_statistics import BatchStatistics
from tierdex.indexfile.header import decode_header

if TYPE_CHECKING:
    from tierdex.filesystem import OpenFile
    from tierdex.indexfile.chained.reader import ChainedReader
    from tierdex.indexfile.chained.view import ChainedView


def check_chained(
    chained: ChainedReader, view: ChainedView, statistics: BatchStatistics, file: OpenFile
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
            problems += [
                f"{name}: {problem}" for problem in verify(chained, view, statistics, file)
            ]
        except CorruptFileError as error:
            problems.append(f"{name}: {error.reason}")
    return problems


def _check_header(
    chained: ChainedReader, view: ChainedView, statistics: BatchStatistics, file: OpenFile
) -> list[str]:
    stored = decode_header(file.read_at(0, layout.HEADER_BYTES), chained.path)
    return [] if stored == chained.header else ["differs from what was opened"]


def _check_blocks(
    chained: ChainedReader, view: ChainedView, statistics: BatchStatistics, file: OpenFile
) -> list[str]:
    return [f"checksum of block {block} differs" for block in view.verify_blocks()]


def _check_batches(
    chained: ChainedReader, view: ChainedView, statistics: BatchStatistics, file: OpenFile
) -> list[str]:
    """Derive everything again from the batches, and compare."""
    header, published = chained.header, chained.snapshot
    again, dictionaries = BatchStatistics(header), Dictionaries(header.schema.dictionary_names)
    scan_file(
        ScannedFile(file.read_at, header, chained.path),
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
    if (again.batches, again.crc) != (statistics.batches, statistics.crc):
        of_the_end.append("number or checksum of the last batch differs")
    if again.ends() != statistics.ends():
        of_the_end.append("end offsets differ")
    if statistics.next_row - 1 == published.rows:  # asked last: else a batch came since `published`
        problems += of_the_end
    problems += [
        f"dictionary {name} differs"
        for name in header.schema.dictionary_names
        if (names := dictionaries.strings(name)) != chained.dictionaries.strings(name)[: len(names)]
    ]
    return problems


def _check_chains(
    chained: ChainedReader, view: ChainedView, statistics: BatchStatistics, file: OpenFile
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
