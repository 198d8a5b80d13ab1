"""`KnownTopics`: the topics of a view, and the time as of which the list is complete.

Depends on answer.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from tierdex.index_service.answer import Missing, Unasked


class KnownTopics(NamedTuple):
    """The topics that any file of a view holds, sorted.

    A topic of which an entry was acknowledged anywhere before `as_of` (int64 ms) is among them; of later
    ones the nodes in `unasked` may hold entries that they have not published. `missing` names the nodes
    because of which the list is older than was asked for (`fresh_within`), and files that are gone or
    damaged.
    """

    names: list[str]
    as_of: int
    unasked: tuple[Unasked, ...]
    missing: tuple[Missing, ...] = ()
