"""Finds all entries of some names: every occurrence in every file, repeats and hidden ones too.

A query leaves repeats and hidden entries out and stops when it has enough; code that forgets, or that writes
files anew, must see each row. So every file whose topics fit is searched to its end.

Depends on query, readers, requests, indexfile, lifecycle and answer.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from tierdex.errors import reason_of
from tierdex.index_service.answer import Missing
from tierdex.index_service.query.plan import Plan
from tierdex.index_service.query.walk import SEARCH_ERRORS
from tierdex.index_service.readers.entries import entries_of
from tierdex.index_service.readers.file_reader import Budget, FileMeter, FileSearch
from tierdex.index_service.readers.local_file import query_reader
from tierdex.index_service.requests.lookups import NO_TOPIC, Lookups
from tierdex.indexfile.layout import KIND_MESSAGE_ID
from tierdex.indexfile.lookup import DONE, TIME_MAX, TIME_MIN
from tierdex.indexfile.work_limit import NO_LIMIT
from tierdex.lifecycle.manifests.forgotten import ENTRY, SOURCE_FIELD, entries_of_rows

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tierdex.index_service.answer import Entry
    from tierdex.lifecycle.manifests.forgotten import AskedHash, Forgetting
    from tierdex.lifecycle.table.file_handle import FileHandle
    from tierdex.lifecycle.table.file_table import FileList

_PLACE = np.dtype([("queue", "<i8"), ("offset", "<i8")])


@dataclass(frozen=True, slots=True)
class HoldingFile:
    """A file that holds some of the entries: `packed` as in `Forgetting.entries`."""

    handle: FileHandle
    entries: list[Entry]
    packed: bytes


@dataclass(slots=True)
class Occurrences:
    """What a search found, newest file first, and the files that could not be read."""

    holding: list[HoldingFile] = field(default_factory=list)
    missing: list[tuple[FileHandle, Missing]] = field(default_factory=list)

    def packed(self) -> bytes:
        """Return all entries, each once."""
        return union(*(file.packed for file in self.holding))


def union(*packed: bytes) -> bytes:
    """Return the entries of all, each once, in order."""
    rows = np.frombuffer(b"".join(packed), ENTRY)
    return np.unique(rows).tobytes()


def search_all(
    files: FileList,
    record: Forgetting,
    is_wanted: Callable[[FileHandle], bool],
    takes_up: Callable[[FileHandle], bool],
) -> Occurrences:
    """Search the files of a snapshot that are wanted for what a record is about.

    Of a file of which it takes up nothing, only entries that it lists already count.
    """
    found = Occurrences()
    listed = np.frombuffer(record.entries, ENTRY)
    lookups = _lookups_of(record.asked)
    only = None if record.only is None else np.array(list(record.only), _PLACE)
    for handle in Plan(files, lookups).candidates():
        if not is_wanted(handle):
            continue
        try:
            known = None if takes_up(handle) else listed
            holding = _search(handle, lookups, only, known)
        except SEARCH_ERRORS as error:
            reason = reason_of(error)
            found.missing.append((handle, Missing(handle.file_id, reason)))
            continue
        if holding is not None:
            found.holding.append(holding)
    return found


def search_sources(
    files: FileList, sources: Sequence[str], is_wanted: Callable[[FileHandle], bool]
) -> Occurrences:
    """Find the files of a snapshot that are wanted and name one of these files of rows.

    Their entries are not listed: there are as many as the file has rows and keys.
    """
    found = Occurrences()
    for handle in files:
        if not is_wanted(handle):
            continue
        try:
            dictionaries = getattr(handle.reader, "dictionaries", None)  # RocketMQ's have none
        except SEARCH_ERRORS as error:
            reason = reason_of(error)
            found.missing.append((handle, Missing(handle.file_id, reason)))
            continue
        if dictionaries is None or SOURCE_FIELD not in dictionaries.names:
            continue
        if any(dictionaries.index(SOURCE_FIELD, source) >= 0 for source in sources):
            found.holding.append(HoldingFile(handle, [], b""))
    return found


def _search(
    handle: FileHandle, lookups: Lookups, only: np.ndarray | None, known: np.ndarray | None
) -> HoldingFile | None:
    """Return what a file holds at the places of `only`, and of the entries in `known` (None: any)."""
    reader, meter = query_reader(handle.reader), FileMeter(Budget(requests=1 << 62, items=1 << 62))
    wanted: np.ndarray = np.arange(lookups.count)
    places = None
    entries: list[Entry] = []
    packed = []
    while len(wanted):
        limits = np.full(len(wanted), NO_LIMIT.rows, np.int64)
        search = FileSearch(lookups, wanted, limits, places, NO_LIMIT.items)
        answer = reader.search(search, meter)
        rows = answer.found.rows
        if only is not None:
            rows = rows[_are_at(rows, only)]
        prints = entries_of_rows(answer.schema, answer.dictionaries, rows)
        if known is not None:
            is_known = np.isin(prints, known)
            rows, prints = rows[is_known], prints[is_known]
        if len(rows):
            entries += entries_of(
                handle, answer.schema, answer.dictionaries, rows, reader.hash_function
            )
            packed.append(prints.tobytes())
        cut = np.flatnonzero(answer.found.following != DONE)
        wanted, places = answer.wanted[cut], answer.found.following[cut]
    return HoldingFile(handle, entries, union(*packed)) if packed else None


def _are_at(rows: np.ndarray, only: np.ndarray) -> np.ndarray:
    """Return which rows lie at one of the places (_PLACE)."""
    if not {"queue_id", "offset"} <= set(rows.dtype.names or ()):
        return np.zeros(len(rows), bool)
    places = np.empty(len(rows), _PLACE)
    places["queue"], places["offset"] = rows["queue_id"], rows["offset"]
    return np.isin(places, only)


def _lookups_of(asked: Sequence[AskedHash]) -> Lookups:
    topics = list(dict.fromkeys(each.topic for each in asked if each.topic is not None))
    number = {topic: place for place, topic in enumerate(topics)}
    count = len(asked)
    return Lookups(
        np.array([each.key_hash for each in asked], np.uint64),
        np.array([each.kind for each in asked], np.uint8),
        topics,
        np.array([NO_TOPIC if e.topic is None else number[e.topic] for e in asked], np.int32),
        np.full(count, TIME_MIN),
        np.full(count, TIME_MAX),
        np.full(count, NO_LIMIT.rows),
        lambda _: "",
    )


assert KIND_MESSAGE_ID == 1, "AskedHash.kind is written into manifests"
