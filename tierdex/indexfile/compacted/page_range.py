"""Which pages of a compacted file a lookup must read, by the directory entries that are in memory.

Depends on fileparts, page_batch, page_lookup, layout and lookup.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from tierdex.fileparts.memory import address
from tierdex.indexfile.compacted.kernels import page_batch as batch
from tierdex.indexfile.compacted.kernels import page_lookup as k
from tierdex.indexfile.layout import DIRECTORY_BLOCK_BYTES, DIRECTORY_ENTRY_BYTES

if TYPE_CHECKING:
    from tierdex.errors import CorruptFileError
    from tierdex.indexfile.lookup import Search

MAX_GET_BYTES: Final = 256 * 1024


class PageSpan(NamedTuple):
    """A contiguous range of whole pages that one request reads."""

    position: int
    length: int
    first_page: int
    page_count: int = 1


class PageRanges:
    """Directory entries of a file: all, or those of a range of hashes. Kernels know them by `address`."""

    address: int

    def damage(self, what: int, number: int) -> CorruptFileError:
        """Return the error that a kernel's negative answer stands for."""
        raise NotImplementedError

    def page_place(self, page: int) -> tuple[int, int]:
        """Return (position, length) of a page in the file. Raises CorruptFileError."""
        position, length = k.page_place(self.address, page)
        if not length:
            block = page * DIRECTORY_ENTRY_BYTES // DIRECTORY_BLOCK_BYTES
            raise self.damage(k.DAMAGED_DIRECTORY, block)
        return position, length

    def span(self, first_page: int, page_count: int) -> PageSpan:
        """Return the range of `page_count` pages from `first_page` on. Raises CorruptFileError."""
        begin = self.page_place(first_page)[0]
        position, length = self.page_place(first_page + page_count - 1)
        return PageSpan(begin, position + length - begin, first_page, page_count)

    def plan_pages(self, wanted: Search, most_bytes: int = MAX_GET_BYTES) -> np.ndarray:
        """Return first and last page (i8[n, 2]) that each lookup must read next; last < first: none.

        The times of pages are compared; the filter is asked before (`may_contain_many`). Of a long run it
        is the next `most_bytes`. Sorted hashes of any time give sorted pages, so that near pages are read
        together. Raises CorruptFileError.
        """
        ranges = np.empty((len(wanted.hashes), 2), np.int64)
        search = search_arguments(wanted, None, 0)
        if len(ranges) and batch.plan_pages(
            self.address, address(search), most_bytes, address(ranges)
        ):
            raise self.damage(k.DAMAGED_DIRECTORY, -1)
        return ranges


def file_numbers(
    entries: np.ndarray, first_page: int, entry_count: int, pages_end: int
) -> tuple[np.ndarray, np.ndarray]:
    """Return what kernels know of a file by some of its directory entries, all of them verified.

    The numbers (i8[FILE_LENGTH]) point to `entries`, of which the last ends the page before, and to the
    map of verified blocks that is returned beside them: the caller keeps both. Until the entries are
    there, no search goes by their address.
    """
    numbers = np.zeros(k.FILE_LENGTH, np.int64)
    last = first_page + entry_count - 1
    block_entries = DIRECTORY_BLOCK_BYTES // DIRECTORY_ENTRY_BYTES
    first_block = first_page // block_entries
    verified = np.ones(last // block_entries - first_block + 1, np.uint8)
    # Kernels go by the page's number: entries and map begin so far before.
    numbers[k.DIRECTORY] = entries.ctypes.data - DIRECTORY_ENTRY_BYTES * first_page
    numbers[k.DIRECTORY_VERIFIED] = verified.ctypes.data - first_block
    numbers[k.LOW_PAGE], numbers[k.HIGH_PAGE] = first_page, last
    numbers[k.PAGE_COUNT] = last
    numbers[k.PAGES_END] = pages_end
    return numbers, verified


def search_arguments(wanted: Search, following: np.ndarray | None, most_pages: int) -> np.ndarray:
    """Return what the kernels take: columns by address, see page_batch."""
    columns = (*wanted[:5], wanted.places, following)
    places = [0 if column is None else address(column) for column in columns]
    return np.array([*places, len(wanted.hashes), most_pages], np.int64)
