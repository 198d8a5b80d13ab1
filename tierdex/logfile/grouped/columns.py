"""Messages of neighbouring pages by column, as a scan takes them: many queues in one go, no object a message.

`PageColumns` has what every message has; `ExtraColumns` takes their extras apart. Both own their memory.
Depends on errors, fileparts, kernels.page_columns, kernels.extra_columns, file and pages.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

import numpy as np

from tierdex.errors import CorruptFileError
from tierdex.fileparts.memory import address
from tierdex.logfile.grouped.kernels import page_columns as k
from tierdex.logfile.kernels import extra_columns as x

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tierdex.logfile.grouped.file import GroupedFile, PageSpan
    from tierdex.logfile.grouped.pages import OpenPages, Scratch

_BYTES_MOST: Final = 64 << 20  # of bodies and extras in one piece, unless one page has more


@dataclass(frozen=True)
class PageColumns:
    """Messages of neighbouring pages, one element a message; body i is [body_ends[i], body_ends[i + 1])."""

    first_page: int
    page_count: int
    queues: np.ndarray  # i4: index of the queue in the file
    times: np.ndarray  # i8
    body_ends: np.ndarray  # i4, one element more
    bodies: np.ndarray  # u1
    extra_ends: np.ndarray  # i4, one element more
    extras: np.ndarray  # u1

    def __len__(self) -> int:
        return len(self.times)

    def emptied(self, is_gone: np.ndarray) -> PageColumns:
        """Return the messages with neither body nor extra where `is_gone` (b1) says so."""
        body_ends, bodies = _emptied(self.body_ends, self.bodies, is_gone)
        extra_ends, extras = _emptied(self.extra_ends, self.extras, is_gone)
        return replace(
            self, body_ends=body_ends, bodies=bodies, extra_ends=extra_ends, extras=extras
        )


def _emptied(
    ends: np.ndarray, data: np.ndarray, is_gone: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    lengths = np.diff(ends)
    kept = np.repeat(~is_gone, lengths)
    fresh = np.zeros_like(ends)
    np.cumsum(np.where(is_gone, 0, lengths), out=fresh[1:])
    return fresh, np.ascontiguousarray(data[kept])


def read_columns(
    file: GroupedFile, span: PageSpan, data: bytes, scratch: Scratch
) -> Iterator[PageColumns]:
    """Yield the messages of whole pages whose bytes were fetched, in their order, by way of `scratch`.

    All pages are verified before the first is given. Raises CorruptFileError for one that is damaged.
    """
    pages = file.open_fetched(span, data, scratch=scratch)
    count = span.page_count
    totals = np.empty((count, 3), np.int64)
    k.measure_pages(pages.words, totals)
    if (totals[:, 0] == 0).any():
        damaged = span.first_page + int(np.argmax(totals[:, 0] == 0))
        raise CorruptFileError(file.path, f"page {damaged} is damaged")
    first_queues = file.directory()["first_queue"][span.first_page :][:count].astype(np.int64)
    sizes = totals[:, 1] + totals[:, 2]
    begin = 0
    while begin < count:
        above = np.cumsum(sizes[begin:])
        end = begin + max(1, int(np.searchsorted(above, _BYTES_MOST, side="right")))
        part = slice(begin, end)
        yield _copied(pages, part, span.first_page + begin, totals[part], first_queues[part])
        begin = end


def _copied(
    pages: OpenPages, part: slice, first_page: int, totals: np.ndarray, first_queues: np.ndarray
) -> PageColumns:
    count, bodies, extras = totals.sum(axis=0).tolist()
    found = PageColumns(
        first_page,
        len(totals),
        np.empty(count, np.int32),
        np.empty(count, np.int64),
        np.empty(count + 1, np.int32),
        np.empty(bodies, np.uint8),
        np.empty(count + 1, np.int32),
        np.empty(extras, np.uint8),
    )
    k.copy_pages(
        pages.words[part], first_queues, found.queues, found.times, found.body_ends,
        address(found.bodies), found.extra_ends, address(found.extras),
    )  # fmt: skip
    return found


class TextColumn:
    """Texts or bytes one after the other: value i is [ends[i], ends[i + 1])."""

    def __init__(self, count: int, length: int) -> None:
        self.ends = np.zeros(count + 1, np.int32)
        self.data = np.empty(length, np.uint8)


class ExtraColumns:
    """The extras of messages, taken apart. `keys` and `headers` are lists of them, by their ends."""

    def __init__(self, columns: PageColumns, name: object) -> None:
        """Raises CorruptFileError, naming the file, for an extra that breaks a rule."""
        count = len(columns)
        totals = np.zeros(x.EXTRA_TOTALS, np.int64)
        place = address(columns.extras)
        x.measure_extras(place, columns.extra_ends, totals)
        if totals[x.X_BROKEN] >= 0:
            raise CorruptFileError(
                name, f"a message of page {columns.first_page} or behind it has a broken extra"
            )
        keys, headers, ids, key_bytes, names, values, _ = totals.tolist()
        self.has_id = np.empty(count, np.bool_)
        self.deliver_at = np.empty(count, np.int64)  # the least int64 where there is none
        self.key_lists = np.zeros(count + 1, np.int32)
        self.header_lists = np.zeros(count + 1, np.int32)
        self.message_ids = TextColumn(count, ids)
        self.keys = TextColumn(keys, key_bytes)
        self.names = TextColumn(headers, names)
        self.values = TextColumn(headers, values)
        texts = (self.message_ids, self.keys, self.names, self.values)
        x.split_extras(
            place, columns.extra_ends, self.has_id, self.deliver_at,
            (self.key_lists, self.header_lists), tuple(text.ends for text in texts),
            tuple(address(text.data) for text in texts),
        )  # fmt: skip
