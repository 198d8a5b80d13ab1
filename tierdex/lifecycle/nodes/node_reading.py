"""The result of reading each node's manifest. No caller may drop a node from it silently.

::

    nodes/a  manifest read        -> NodeReading(a, state)
    nodes/b  manifest damaged     -> NodeReading(b, the state known before, error)
    no node with a manifest       -> NotFoundError: the address is wrong, or the store is new

A caller that shows or answers goes on with the readable nodes and names the others. A caller that
computes a total raises the error.

Depends on manifest_log, forgotten and live_record.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from tierdex.errors import CorruptFileError, NotFoundError, StoreRefusedError, UnavailableError
from tierdex.lifecycle.manifests.forgotten import FORGOTTEN_NODE, ForgottenEntries

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from tierdex.lifecycle.manifests.live_record import LiveRecord
    from tierdex.lifecycle.manifests.manifest import ManifestState
    from tierdex.lifecycle.manifests.manifest_log import ManifestLog

# Errors of one node that tell nothing about others. Only faulty stores of tests raise OSError.
READING_ERRORS = (UnavailableError, StoreRefusedError, CorruptFileError, OSError)


class NodeReading(NamedTuple):
    """A node, the newest state known of it (number 0: none), and why it could not be read now.

    `live` is what its owner last said of itself, `read_ms` when the store was asked for the state.
    """

    node: str
    state: ManifestState
    error: Exception | None = None
    live: LiveRecord | None = None
    read_ms: int = 0

    @property
    def problem(self) -> str | None:
        """Return what is wrong, in words; None for a node that was read."""
        return None if self.error is None else str(self.error) or type(self.error).__name__


def read_node(log: ManifestLog) -> NodeReading:
    """Follow a node's manifest to its end; an error is part of the reading."""
    try:
        return NodeReading(log.node, log.refresh(), None, log.live, log.read_ms)
    except READING_ERRORS as error:
        return NodeReading(log.node, log.state, error)


def refuse_absent(
    readings: Iterable[NodeReading], place: str, wanted: Collection[str] | None = None
) -> None:
    """Raise NotFoundError when the store `place` holds no manifest, or none of a `wanted` node.

    Call it once every node was read: a node that could not be read exists.
    """
    found = {each.node for each in readings if each.error is not None or each.state.number}
    for node in sorted(set(wanted or ()) - found):
        raise NotFoundError(f"there is no node {node} in {place}: is its name right?")
    if not found:
        raise NotFoundError(
            f"{place} holds no manifest: is the address right? No node was ever written there"
        )


def forgotten_in(states: Iterable[ManifestState]) -> ForgottenEntries:
    """Return the forgotten entries that these manifests list."""
    listing = [state for state in states if state.node == FORGOTTEN_NODE]
    records = [record for state in listing for record in state.forgettings.values()]
    return ForgottenEntries(records, max((state.number for state in listing), default=0))
