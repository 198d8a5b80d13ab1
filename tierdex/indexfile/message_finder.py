"""Finds the entries of one name in several local files, chained and compacted ones, in one step.

A finder is made once for a topic and some files, and lasts: a topic's tag never changes in a file that knows
it. Any number of threads may use it.

Depends on fileparts, kernels.entry_search, chained, compacted, hashing, layout and schema.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

from tierdex.fileparts.memory import address
from tierdex.indexfile.chained.reader import ChainedReader
from tierdex.indexfile.hashing import signed_bits
from tierdex.indexfile.layout import KIND_KEY, KIND_MESSAGE_ID, TAG_NONE
from tierdex.indexfile.schema import TOPIC_DICTIONARY

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tierdex.indexfile.compacted.file import CompactedFile

Find = tuple[int, int, int, int, int]
"""(entries or OTHERWISE, file and place where the search goes on, file and place of the last entry)"""
OTHERWISE: Final = -1
NOT_ASKED, NOT_IN_TIME, NOT_IN_FILTER = -1, -2, -3  # see kernels.entry_search
_KEPT: list[Any] = []  # the scratch, made when the first finder is


class Told(NamedTuple):
    """What a search tells besides its entries: the greatest time, where each entry lies, items by file."""

    latest: int
    files: memoryview
    places: memoryview
    items: memoryview

    @classmethod
    def of(cls, data: bytes, entries: int) -> Told:
        """Read what comes behind so many entries."""
        numbers = memoryview(data).cast("q")
        behind = 1 + 2 * entries
        return cls(numbers[0], numbers[1:behind:2], numbers[2:behind:2], numbers[behind:])


class MessageFinder:
    """The entries of a name in some files of messages, newest file first.

    `find(name, entries, begin, end, most, file, place, is_told)` appends to the list `entries`: see
    `kernels.entry_search.find_entries`, whose answer is a `Find`. Below 0 it is to be asked otherwise: a name
    of the wrong type or size, a file that is damaged or closed.
    """

    __slots__ = ("_kept", "count", "find")

    def __init__(
        self,
        files: Sequence[tuple[ChainedReader | CompactedFile, tuple[object, ...]]],
        topic: str | None,
        seed: int,
        *,
        kind: type[tuple[Any, ...]],
        most_bytes: int,
    ) -> None:
        """Search files that know the topic for keys of `topic` (None: message IDs), newest first.

        Each file has what comes last in its entries, which are of type `kind`: topic, queue, offset, size,
        time, and that. `seed` is that of the hashes, `most_bytes` what a name may have.
        """
        from tierdex.indexfile.kernels import entry_search as k  # numba loads only when needed

        assert len(files) <= k.MOST_FILES
        if not _KEPT:
            _KEPT.append(np.zeros(k.SCRATCH_BYTES, np.uint8))
        filters: list[int] = []
        arguments = np.zeros(k.M_FILES + k.FILE_LENGTH * len(files), np.int64)
        kept: list[Any] = [arguments, topic, kind, files]
        for number, (file, tail) in enumerate(files):
            place = k.M_FILES + k.FILE_LENGTH * number
            own = arguments[place : place + k.FILE_LENGTH]
            names = file.dictionaries.strings(TOPIC_DICTIONARY)
            kept.append(names)
            own[k.F_TAIL], own[k.F_NAMES] = id(tail), id(names)
            own[k.F_TAG] = tag_in(file, topic)
            if isinstance(file, ChainedReader):
                own[k.F_VIEW], own[k.F_SEEN] = file.finder_places
            else:
                times = file.statistics
                seen = np.array([0, 0, times.min_time, times.max_time], np.int64)
                kept.append(seen)
                own[k.F_NUMBERS], own[k.F_SEEN] = file.address, address(seen)
                own[k.F_FILTER] = len(filters)
                filters.append(file.filter.address)
        asked = np.array(filters, np.int64)
        kept.append(asked)
        arguments[k.M_COUNT], arguments[k.M_SEED] = len(files), signed_bits(seed)
        arguments[k.M_MOST_BYTES], arguments[k.M_KIND] = most_bytes, id(kind)
        arguments[k.M_TOPIC] = 0 if topic is None else id(topic)
        arguments[k.M_SCRATCH] = address(_KEPT[0])
        arguments[k.M_FILTERS], arguments[k.M_FILTER_COUNT] = address(asked), len(filters)
        self._kept = kept  # what is known by its address
        self.count = len(files)
        self.find: Callable[..., Find] = partial(k.load(), address(arguments))


def tag_in(file: ChainedReader | CompactedFile, topic: str | None) -> int:
    """Return the tag of a topic's keys (None: of message IDs) in a file; TAG_NONE: there are none."""
    kind = KIND_MESSAGE_ID if topic is None else KIND_KEY
    return TAG_NONE if file.schema.is_message is False else file.tag_of(topic, kind)
