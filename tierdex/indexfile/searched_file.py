"""A local file as a search of many lookups knows it: numbers, and what they are the addresses of.

Depends on errors.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy as np

    from tierdex.errors import CorruptFileError


class SearchedFile(NamedTuple):
    """A file as a search knows it; `searched` of a reader makes it.

    `tags` (u4) are those of each code. Rows of topics in `hidden` (u1, by the file's topics) are shown to no
    message ID of any topic; `topics` (u4) says what the file's topics are called in all files. None: none is
    hidden, and there is one file, or every lookup names its topic.
    """

    owner: object  # keeps what is known by its address
    damage: Callable[[int, int], CorruptFileError]  # what the kernel's error stands for
    chains: int  # address of a chained file's view, else 0
    pages: int  # address of what kernels know of a compacted file, else 0
    items_per_page: int
    published: int  # rows of a chained file
    least_time: int
    greatest_time: int
    tags: np.ndarray
    hidden: np.ndarray | None = None
    topics: np.ndarray | None = None
