"""How much work searches may cost, whatever the keys.

Colliding keys make long chains, and a batch of them walks them side by side: so the bound is inside the
search (`Search.most_items`), not behind it. Depends on errors.
"""

from __future__ import annotations

from typing import NamedTuple

from tierdex.errors import TierdexError


class BudgetExceededError(TierdexError):
    """An allowance of requests, items or entries is used up; the answer says so."""


class WorkLimit(NamedTuple):
    """`items` may be looked at and `rows` be found."""

    items: int = 1 << 62
    rows: int = 1 << 62

    def share_of(self, lookups: int) -> WorkLimit:
        """Return what each of so many lookups may cost in one search, at least one item and one row.

        All together stay within a quarter of the items and the half of the rows: the rest is for other
        files, and for the lookups that go on alone.
        """
        return WorkLimit(max(1, self.items // (4 * lookups)), max(1, self.rows // (2 * lookups)))

    def refuse(self) -> BudgetExceededError:
        """Return the error of a search that would go beyond."""
        return BudgetExceededError(
            "the work budget is used up: more items or entries than query_max_items or "
            "query_max_entries"
        )


NO_LIMIT = WorkLimit()
