"""Staged appends that wait for a commit to reach their level.

Depends on levels and commit.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    import numpy as np

    from tierdex.log_service.append.commit import Commit
    from tierdex.log_service.levels import Level


class PendingAppend(NamedTuple):
    """An append that was staged: its offset, and the commit that brings it to the level asked for."""

    offset: int
    commit: Commit
    level: Level


class PendingBatch(NamedTuple):
    """A batch that was staged: the offset of each row (i8), and the commit that brings all to the level."""

    offsets: np.ndarray
    commit: Commit
    level: Level
