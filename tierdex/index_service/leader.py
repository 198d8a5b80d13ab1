"""What an index beside a message log takes from it: the log leads, always.

::

    log    pwrite of a group commit --> index batch, which notes it       never the other way round
           sync                     --> seal of an index file             `make_durable`
    crash  log recovered            --> index cut to what the log has     `holds`

So no entry names an offset that the log does not hold, whatever a crash takes: offsets that were given and
lost are given again. Nobody else may put into such an index.

Depends on indexfile, lifecycle and the ground.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from tierdex.filesystem import FolderLock
    from tierdex.indexfile.source import Source
    from tierdex.lifecycle.file_number import NextNumber


@dataclass(frozen=True, slots=True)
class Leader:
    """The log of the data folder, which has recovered."""

    lock: FolderLock  # of the data folder: given back by the log, too
    numbers: NextNumber  # of the node's files, log and index
    holds: Callable[[Source], bool]  # whether the log has all batches up to there
    make_durable: Callable[[], None]  # everything that was written, before an index file is sealed
