"""What must hold in a journal, verified whole: `check` in words.

Depends on fileparts, scan, seal, sealed_parts, tables and writer.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from tierdex.errors import CorruptFileError
from tierdex.fileparts.checksums import checksum, unit_seed
from tierdex.logfile.journal.scan import BatchScan
from tierdex.logfile.journal.seal import dense_index, sorted_queues
from tierdex.logfile.journal.tables import Tables

if TYPE_CHECKING:
    from tierdex.logfile.journal.scan import ReadAt
    from tierdex.logfile.journal.sealed_parts import SealedParts
    from tierdex.logfile.journal.writer import JournalWriter

_FAULTS_MAX = 100


def check_journal(journal: JournalWriter, read_at: ReadAt) -> list[str]:
    """Return every broken invariant of what `journal` has published."""
    end = journal.end
    tables, scan = Tables(), BatchScan(journal.header)
    try:
        scan.take_file(read_at, tables, journal.path, end.position)
    except CorruptFileError as error:
        return [error.reason]
    if scan.end != end:
        return [f"batch {scan.end.number} at byte {scan.end.position} does not verify"]
    return _compare_tables(tables, journal.tables)


def _compare_tables(found: Tables, held: Tables) -> list[str]:
    """Compare what batches say with the index in memory, which may know of later messages."""
    again, states = found.states(), held.states()[: found.queue_count]
    problems = [
        f"{name} of a queue differs"
        for name in ("first_offset", "topic", "queue_id")
        if not np.array_equal(again[name], states[name])
    ]
    if (again["count"] > states["count"]).any():
        problems.append("a queue has fewer messages than its batches")
    (ends, names), (held_ends, held_names) = found.names(), held.names()
    if not np.array_equal(ends, held_ends[: len(ends)]) or not np.array_equal(
        names, held_names[: len(names)]
    ):
        problems.append("names of topics differ")
    return problems


def check_sealed(journal: SealedParts, read_at: ReadAt) -> list[str]:
    """Return every broken rule of a sealed journal."""
    problems = [f"checksum of block {block} differs" for block in journal.blocks.damaged()]
    problems += [
        f"checksum of part {entry.kind.name.lower()} differs"
        for entry in journal.footer.parts.values()
        if checksum(read_at(entry.position, entry.length), unit_seed(journal.uuid, entry.kind))
        != entry.crc
    ]
    if not journal.topics.is_sorted():
        problems.append("the topics are not sorted by name")
    if problems:
        return problems[:_FAULTS_MAX]
    tables, scan = Tables(), BatchScan(journal.header)
    try:
        scan.take_file(read_at, tables, journal.path, journal.end.position)
    except CorruptFileError as error:
        return [error.reason]
    if scan.end != journal.end:
        return [f"batch {scan.end.number} at byte {scan.end.position} does not verify"]
    return _compare_index(journal, tables, scan)


def _compare_index(journal: SealedParts, tables: Tables, scan: BatchScan) -> list[str]:
    """Derive slots, queues, topics and checkpoints from the batches again, and compare."""
    queues, topics, names = sorted_queues(tables)
    problems = []
    for what, found, stored in (
        ("queues", queues, journal.queues()),
        ("topics", topics, journal.topics.rows),
        ("names of topics", names, journal.topics.names),
        ("checkpoints", scan.checkpoints, journal.checkpoints),
    ):
        if found.tobytes() != stored.tobytes():
            problems.append(f"the {what} are not those of the batches")
    if not problems and not np.array_equal(
        dense_index(tables, queues, np.empty(int(queues["count"].sum()), np.uint32)),
        journal.slots(),
    ):
        problems.append("the slots are not those of the batches")
    if _statistics_of(tables) != _statistics_in(journal):
        problems.append("the statistics are not those of the batches")
    return problems


def _statistics_of(tables: Tables) -> tuple[int, ...]:
    totals = tables.totals()
    messages = tables.message_count
    if not messages:
        return 0, 0, 0, -1
    return (
        messages, int(totals[:, 1].sum()), int(totals[:, 2].min()), int(totals[:, 3].max()),
    )  # fmt: skip


def _statistics_in(journal: SealedParts) -> tuple[int, ...]:
    return journal.message_count, journal.body_bytes, journal.min_time, journal.max_time
