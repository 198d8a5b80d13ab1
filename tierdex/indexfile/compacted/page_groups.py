"""Which pages of a file in a store are read together: lookups that need near pages share a request.

Depends on numpy only.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Final

import numpy as np

NEAR_PAGES: Final = (
    4  # pages between two wanted ones that are cheaper to read than to request apart
)
_GROUP_PAGES: Final = 256  # of at most 4 KiB each: what one request brings, roughly


def group_pages(pages: np.ndarray) -> list[tuple[int, int, int, int]]:
    """Return (first page, last page, first lookup, end lookup) of each run of near pages.

    `pages` i8[n, 2] holds the first and last page of each lookup, the first ones rising. A long run is
    cut where a lookup begins a new page, so that no page is in two groups.
    """
    if len(pages) < 2:
        return [(first, last, 0, 1) for first, last in pages.tolist()]
    reach = np.maximum.accumulate(pages[:, 1])
    apart = pages[1:, 0] > reach[:-1] + NEAR_PAGES
    fresh = pages[1:, 0] > reach[:-1]
    piece = (pages[:, 0] - pages[0, 0]) // _GROUP_PAGES
    cuts = np.flatnonzero(apart | (fresh & (piece[1:] != piece[:-1]))) + 1
    return [
        (int(pages[low, 0]), int(reach[high - 1]), low, high)
        for low, high in pairwise([0, *cuts.tolist(), len(pages)])
    ]
