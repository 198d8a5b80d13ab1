"""What every form of an index file is asked: one key in a range of times.

Depends on numpy only.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

TIME_MIN = -(1 << 63)
TIME_MAX = (1 << 63) - 1


class Lookup(NamedTuple):
    """What to look for. `topic` is None for a message ID, which is found under every topic."""

    key_hash: int
    kind: int
    topic: str | None


def without_long(
    sizes: np.ndarray, given_up: np.ndarray, most_rows: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Take out lookups that were given up (b1), or found more rows than that; `sizes` are the rows.

    Returns (mask of the rows that stay, offsets of what stays, i8, the lookups taken out, i8).
    """
    long = given_up | (sizes > most_rows)
    offsets = np.concatenate([np.zeros(1, np.int64), np.cumsum(np.where(long, 0, sizes))])
    return np.repeat(~long, sizes), offsets, np.flatnonzero(long)
