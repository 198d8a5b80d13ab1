"""How a node may be claimed: what the claimer remembers of it, and when its owner counts as silent.

The age of heartbeats is counted by the store's clock alone, which dates them and the object that asks for the
time (decision 0024).

Depends on manifest, manifest_log, owner_record, storage_layer and errors.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from tierdex.errors import (
    NodeInUseError,
    NotFoundError,
)
from tierdex.storage_layer.probe import read_store_time

if TYPE_CHECKING:
    from collections.abc import Callable

    from tierdex.ids import IdSource
    from tierdex.lifecycle.manifests.manifest import (
        ManifestState,
    )
    from tierdex.lifecycle.manifests.manifest_log import ManifestLog
    from tierdex.lifecycle.nodes.owner_record import OwnerRecord

logger = logging.getLogger(__name__)


class OwnerMemory(Protocol):
    """The part of a claim that survives its process: in a data folder, DATA/OWNER."""

    number: int  # the newest manifest number that was committed or read

    def holds(self, token: bytes) -> bool:
        """Return whether `token` is that of a claim which was made, or begun, with this memory."""
        ...

    def note_claim(self, token: bytes, before: bytes) -> None:
        """Remember a claim about to be committed on top of that of `before`, durably."""
        ...

    def note_commit(self, number: int) -> None:
        """Remember the newest known manifest number."""
        ...


class NoMemory:
    """The memory of an owner without a folder: it never had the node before."""

    number = 0

    def holds(self, token: bytes) -> bool:
        return False

    def note_claim(self, token: bytes, before: bytes) -> None:
        """Do nothing."""

    def note_commit(self, number: int) -> None:
        """Do nothing."""


NO_MEMORY: Final = NoMemory()


def _permit(state: ManifestState, is_ours: bool, is_over: bool) -> None:
    """Permit every claim."""


class ClaimTerms(NamedTuple):
    """How a node may be claimed, and by whom.

    `voice` tells what is published; None: of an owner without a folder. `check` is called with the state
    that is to be claimed, whether it is ours already, and whether its owner ended with everything
    published: it may raise, before anything is committed.

    A living owner had a heartbeat within `takeover_after_s` seconds: its node is taken only with
    `takeover`. An owner that ended in order, with nothing unpublished, is followed at once.
    `accept_rollback` takes it also when the store knows less of the node than before.
    """

    memory: OwnerMemory = NO_MEMORY
    voice: OwnerRecord | None = None
    takeover_after_s: float = 0.0
    takeover: bool = False
    accept_rollback: bool = False
    check: Callable[[ManifestState, bool, bool], None] = _permit


def check_silent(log: ManifestLog, state: ManifestState, ids: IdSource, terms: ClaimTerms) -> None:
    """Raise NodeInUseError when the node's owner, if it has one, has a recent heartbeat."""
    after_s = terms.takeover_after_s
    if after_s <= 0:
        return
    silent_s = seconds_silent(log, state, ids)
    if silent_s >= after_s:
        logger.warning("taken over", extra={"node": log.node, "silent_s": round(silent_s)})
        return
    ago = f"{max(silent_s, 0):.0f} s ago"
    if log.live is not None and state.names_owner_of(log.live) and log.live.is_closed:
        what = (
            f"the owner of node {log.node} ended {ago}, and its data folder holds entries that are not "
            "published: open the node with that folder, or publish them first (`tierdex compact --roll`)"
        )
    else:
        what = (
            f"node {log.node} has another owner, whose last heartbeat was {ago}: it would be fenced"
        )
    if terms.memory.number:
        what += (
            f". This folder had the node before; another owner followed it (epoch {state.epoch})"
        )
    raise NodeInUseError(
        f"{what}. Use another node (node=NAME, --set node=NAME), or --url where it "
        f"serves; if its owner is gone for good, use --take-over (takeover=True). Without it a node "
        f"is taken over {after_s:g} s after the last heartbeat (takeover_after)",
        node=log.node,
    )


def tell_following(state: ManifestState, memory: OwnerMemory) -> None:
    """Warn that the node continues from a folder that was closed in order, with everything published."""
    if memory.number:
        logger.warning(
            "this folder had the node before, and goes on where another owner ended",
            extra={"node": state.node, "epoch": state.epoch},
        )
    else:
        logger.info("follows an owner that ended", extra={"node": state.node, "epoch": state.epoch})


def seconds_silent(log: ManifestLog, state: ManifestState, ids: IdSource) -> float:
    """Return the seconds since the last heartbeat of the node's owner, by the store's clock."""
    heartbeats_ms = []
    for key in (log.paths.manifest(state.number), log.paths.hint):
        try:
            heartbeats_ms.append(log.store.head(key).modified_ms)
        except NotFoundError:
            continue
    # After the heartbeats were read: one in between counts as now.
    now_ms = read_store_time(log.store, log.paths.prefix, ids)
    return (now_ms - max(heartbeats_ms, default=now_ms)) / 1000
