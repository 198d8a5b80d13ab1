"""Local files of messages that follow each other, searched for a batch of lookups in one step.

Topics that retention hides in a file have no tag there: its rows are found for no lookup. Depends on
matches, requests, indexfile and lifecycle.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

from tierdex.index_service.query.matches import FileMatches
from tierdex.index_service.requests.lookups import NO_TOPIC
from tierdex.indexfile.chained.reader import ChainedReader
from tierdex.indexfile.column_search import Asked, ColumnSearch
from tierdex.indexfile.compacted.file import CompactedFile
from tierdex.indexfile.layout import KIND_BIT, TAG_ANY_MESSAGE_ID, TAG_NONE
from tierdex.indexfile.schema import MESSAGE_SCHEMA, TOPIC_DICTIONARY
from tierdex.lifecycle.topic_set import may_hold

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from tierdex.index_service.requests.lookups import Lookups
    from tierdex.indexfile.searched_file import SearchedFile
    from tierdex.lifecycle.table.file_handle import FileHandle

    Hides = Callable[[FileHandle, str], bool]

FILES_AT_ONCE: Final = 16  # the newest of them may answer everything
_FORMS: Final = (ChainedReader, CompactedFile)


def lies_in_run(handle: FileHandle) -> bool:
    """Say whether a file is one that a run may have."""
    reader = handle.reader
    return isinstance(reader, _FORMS) and reader.schema.is_message


class Names(NamedTuple):
    """The topics of a batch, and whether it asks for their keys alone, or for message IDs, too."""

    topics: Sequence[str]
    has_ids: bool = False
    has_any_topic: bool = False

    @classmethod
    def of(cls, lookups: Lookups) -> Names:
        return cls(lookups.topics, bool(lookups.kinds.any()), not lookups.names_topics)

    def may_be_in(self, handle: FileHandle) -> bool:
        """Return whether a file may have anything of the topics."""
        return self.has_any_topic or any(may_hold(handle.topics, topic) for topic in self.topics)

    def codes(self, lookups: Lookups) -> np.ndarray | None:
        """Return which of `tags` each lookup has (i4); None: the first."""
        count = len(self.topics)
        if not self.has_ids:
            return None if count == 1 else lookups.topic_index.astype(np.int32)
        codes = lookups.topic_index + np.where(lookups.kinds != 0, count, 0)
        return np.where(lookups.topic_index == NO_TOPIC, 2 * count, codes).astype(np.int32)

    def tags(self, handle: FileHandle, hides: Hides) -> np.ndarray:
        """Return the tags (u4) of keys, message IDs, message IDs of any topic in a file."""
        known = handle.reader.dictionaries.indexes(TOPIC_DICTIONARY, self.topics)
        if handle.sealed_at_ms is not None:  # from then on retention counts
            known = [
                -1 if index >= 0 and hides(handle, topic) else index
                for topic, index in zip(self.topics, known, strict=True)
            ]
        tags = [TAG_NONE if index < 0 else index for index in known]
        if self.has_ids:
            tags += [TAG_NONE if index < 0 else index | KIND_BIT for index in known]
            tags.append(TAG_ANY_MESSAGE_ID)
        return np.array(tags, np.uint32)


def run_of(
    handles: Sequence[FileHandle],
    asked: Asked,
    names: Names,
    hides: Hides,
    *,
    most_items: int,
    drops_repeats: bool = True,
) -> ColumnSearch:
    """Return a search of these files, newest first, that was not begun.

    It raises what says that a file was closed, when it takes the file.
    """
    known: dict[str, int] = {}
    files = (_searched(handle, names, hides, known) for handle in handles)
    return ColumnSearch(
        files, asked,
        item_bytes=MESSAGE_SCHEMA.item_bytes, is_message=drops_repeats, most_items=most_items,
    )  # fmt: skip


def run_of_lookups(
    handles: Sequence[FileHandle],
    lookups: Lookups,
    limits: np.ndarray,
    hides: Hides,
    *,
    most_items: int,
    drops_repeats: bool,
) -> ColumnSearch:
    """Do as `run_of` for checked lookups, of which each wants so many rows (i8)."""
    names = Names.of(lookups)
    asked = Asked(lookups.hashes, names.codes(lookups), lookups.begin, lookups.end, limits)
    return run_of(handles, asked, names, hides, most_items=most_items, drops_repeats=drops_repeats)


def matches_of_run(handles: Sequence[FileHandle], search: ColumnSearch) -> Iterator[FileMatches]:
    """Yield what each file of a run has."""
    rows, sources = search.rows.view(MESSAGE_SCHEMA.dtype), search.sources
    numbers, places = search.numbers, search.places
    if len(sources) and sources[0] == sources[-1]:  # of one file: in the order of the lookups
        order = search.order()
        rows, numbers, places = rows[order], numbers[order], places[order]
    bounds = np.searchsorted(sources, np.arange(len(handles) + 1)).tolist()
    for handle, first, last in zip(handles, bounds[:-1], bounds[1:], strict=True):
        if last > first:
            which = slice(first, last)
            yield FileMatches(
                handle, None, MESSAGE_SCHEMA, handle.reader.dictionaries,
                numbers[which], rows[which], places[which],
            )  # fmt: skip


def _searched(
    handle: FileHandle, names: Names, hides: Hides, known: dict[str, int]
) -> SearchedFile:
    reader: Any = handle.reader
    file: SearchedFile = reader.searched(names.tags(handle, hides))
    if not names.has_any_topic:
        return file
    topics = reader.dictionaries.strings(TOPIC_DICTIONARY)  # after what is published
    hidden = None
    if handle.sealed_at_ms is not None:
        hidden = np.array([hides(handle, topic) for topic in topics], np.uint8)
    numbers = [known.setdefault(topic, len(known)) for topic in topics]
    return file._replace(hidden=hidden, topics=np.array(numbers, np.uint32))
