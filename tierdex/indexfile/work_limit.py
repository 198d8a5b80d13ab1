"""How much work one call on a file may cost, whatever keys it is asked for.

Who picks colliding keys makes long chains, and who asks for them many at a time makes them walk side
by side: a bound inside the call, not behind it. Depends on errors.
"""

from __future__ import annotations

from typing import NamedTuple

from tierdex.errors import TierdexError


class BudgetExceededError(TierdexError):
    """An allowance of requests, items or entries is used up; the answer says so."""


class WorkLimit(NamedTuple):
    """`items` may be looked at and `rows` be found by one call; beyond, BudgetExceededError."""

    items: int = 1 << 62
    rows: int = 1 << 62

    def share_of(self, lookups: int, rows: int) -> WorkLimit:
        """Return what each of so many lookups may cost, that want up to `rows` rows each.

        All together stay within a quarter of the items and the half of the rows: the rest is for those
        that are given up here and asked one by one.
        """
        each = self.rows // (2 * lookups)
        return WorkLimit(
            max(1, self.items // (4 * lookups)), rows if rows <= each else max(1, each)
        )

    def refuse(self) -> BudgetExceededError:
        """Return the error of a call that would have gone beyond."""
        return BudgetExceededError(
            "the work budget is used up: more items or entries than query_max_items or "
            "query_max_entries"
        )


NO_LIMIT = WorkLimit()
