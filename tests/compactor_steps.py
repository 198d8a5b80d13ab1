"""Steps the compactor's two workers by hand, in one order: what can leave the disk first."""

from __future__ import annotations


def step(compactor):
    """Let the store's worker step, and the local one when that had nothing; return the pause (s)."""
    pause = compactor.store.step()
    return min(pause, compactor.local.step()) if pause else 0.0
