"""What the caller of an opening allows it to do to others and to the past. Depends on nothing."""

from __future__ import annotations

from typing import NamedTuple


class Claiming(NamedTuple):
    """`adopt`: the folder's files go on under another node. `takeover`: a living owner is fenced.

    `accept_rollback`: the store may know less of the node than it once did.
    """

    adopt: bool = False
    takeover: bool = False
    accept_rollback: bool = False
