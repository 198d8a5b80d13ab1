"""The pages that some lookups of a search need, and the ranges that bring them.

Depends on indexfile; on file_reader for its types only.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from tierdex.indexfile.compacted.page_groups import group_pages

if TYPE_CHECKING:
    from tierdex.index_service.readers.file_reader import FileSearch
    from tierdex.indexfile.compacted.file import CompactedFile
    from tierdex.indexfile.compacted.hash_group import HashGroup
    from tierdex.indexfile.compacted.page_range import PageSpan


class PlannedPages(NamedTuple):
    """By the directory entries of one hash group, or by all of the file."""

    pages_of: HashGroup | CompactedFile
    which: np.ndarray  # i8, numbers into `FileSearch.wanted`, in the order of their pages
    spans: list[PageSpan]
    members: list[tuple[int, int]]  # of `which`, those of each span
    last_page: int  # the first page of the last lookup, -1 without one

    @classmethod
    def of(
        cls, pages_of: HashGroup | CompactedFile, wanted: FileSearch, which: Any, most_bytes: int
    ) -> PlannedPages:
        """Plan the pages of lookups that stand in the order of their hashes."""
        no_tags = np.zeros(len(wanted.wanted), np.uint32)
        pages = pages_of.plan_pages(wanted.columns(which, no_tags), most_bytes)
        has = np.flatnonzero(pages[:, 1] >= pages[:, 0])
        if (np.diff(pages[has, 0]) < 0).any():  # lookups of one long run, in different times
            has = has[np.argsort(pages[has, 0], kind="stable")]
        pages = pages[has]
        groups = group_pages(pages)
        spans = [pages_of.span(first, last - first + 1) for first, last, _, _ in groups]
        members = [(low, high) for _, _, low, high in groups]
        return cls(pages_of, which[has], spans, members, int(pages[-1, 0]) if len(pages) else -1)
