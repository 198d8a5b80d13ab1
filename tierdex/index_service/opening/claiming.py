"""The permissions of a caller that opens an index: adopting a folder, a takeover, a rollback.

Depends on nothing.
"""

from __future__ import annotations

from typing import NamedTuple


class Claiming(NamedTuple):
    """`adopt`: publish the folder's files under another node. `takeover`: fence a living owner.

    `accept_rollback`: go on although the store knows less of the node than before. `lossy`: go on with a
    log of which some may lie on another disk alone.
    """

    adopt: bool = False
    takeover: bool = False
    accept_rollback: bool = False
    lossy: bool = False
