"""As of when a node's entries are all visible to a reader of its manifest: pure.

::

    shared by jobs, never written      all of them: what is acknowledged is listed      bound None
    closed, with nothing left behind   all of them                                      bound None
    retired, adopted                   nothing is waited for                            bound None
    live or silent                     those acknowledged before `published_through`    bound
    taken over without its folder      ... before what the owners of before published   bound
    never said anything (unknown)      not known                                        bound None

A live owner acknowledges more from its last record on, and may be dead since: a reader that did not ask it
itself knows nothing of that. A record is due every `interval_ms`: an owner is `late` when one is missing,
`silent` when three are.

`None` binds to nothing but the time of the reading. An `unknown` node is one of an older program.

Depends on manifest and live_record.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from tierdex.lifecycle.manifests.manifest import NodeKind, NodeOwner

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from tierdex.lifecycle.manifests.live_record import LiveRecord
    from tierdex.lifecycle.manifests.manifest import ManifestState

LIVE: Final = "live"
LATE: Final = "late"
SILENT: Final = "silent"
CLOSED: Final = "closed"
RETIRED: Final = "retired"
SHARED: Final = "shared"
UNKNOWN: Final = "unknown"
STANDINGS: Final = (LIVE, LATE, SILENT, CLOSED, RETIRED, SHARED, UNKNOWN)

NO_OWNER: Final = bytes(16)
_MISSED_RECORDS: Final = 3  # in a row, until an owner counts as silent


class Liveness(NamedTuple):
    """What is known of a node beside its files. Times are int64 ms."""

    node: str
    standing: str  # one of STANDINGS, as of the reading
    bound: int | None  # see the module's page
    published_through: int | None = None  # of its present owner
    holds_unpublished: bool = False  # or held it when it was last heard
    heard_ms: int | None = None  # of the newest record, in the owner's time
    interval_ms: int = 0  # until the next one
    skew_ms: int | None = None
    advertise_url: str | None = None
    lost_through: int | None = None  # what owners of before had published whose folder is gone

    def at(self, now_ms: int) -> str:
        """Return the standing at a time: a live node is late, then silent, without a new record."""
        if self.standing != LIVE or self.heard_ms is None:
            return self.standing
        age_ms = now_ms - self.heard_ms
        if age_ms <= self.interval_ms:
            return LIVE
        return LATE if age_ms <= _MISSED_RECORDS * self.interval_ms else SILENT

    def is_proven(self) -> bool:
        """Return whether its times can be compared with others: they were counted by the store's clock."""
        return self.standing != UNKNOWN and (self.bound is None or self.skew_ms is not None)


def through_of(state: ManifestState, live: LiveRecord | None) -> int | None:
    """Return until when all that the node's present owner acknowledged is listed; None: it never said."""
    said = [state.published_through]
    if live is not None and state.names_owner_of(live):
        said.append(live.published_through)
    return max((each for each in said if each is not None), default=None)


def is_closed(state: ManifestState, live: LiveRecord | None) -> bool:
    """Return whether the node's owner ended and left nothing behind that is not listed."""
    return (
        live is not None
        and state.names_owner_of(live)
        and live.is_closed
        and not live.holds_unpublished
    )


def standings_of(
    states: Mapping[str, ManifestState], lives: Mapping[str, LiveRecord | None]
) -> dict[str, Liveness]:
    """Return where each of the nodes that were read together stands."""
    adopted = frozenset[NodeOwner]().union(*(state.adopted for state in states.values()))
    return {node: standing_of(state, lives[node], adopted) for node, state in states.items()}


def standing_of(
    state: ManifestState, live: LiveRecord | None, adopted: Collection[NodeOwner]
) -> Liveness:
    """Return where a node stands; `adopted` are the owners that any node read with it has adopted."""
    node = state.node
    if state.kind is NodeKind.SHARED or state.owner == NO_OWNER:
        return Liveness(node, SHARED if state.kind is NodeKind.SHARED else CLOSED, None)
    live = live if live is not None and state.names_owner_of(live) else None
    through = through_of(state, live)
    lost = [
        each for owner, each in state.outstanding.items() if NodeOwner(node, owner) not in adopted
    ]
    is_over = state.is_retired or NodeOwner(node, state.owner) in adopted or is_closed(state, live)
    waited_for = [*lost, *([] if is_over or through is None else [through])]
    if state.is_retired:
        name = RETIRED
    elif live is not None and live.is_closed:
        name = CLOSED
    else:
        name = UNKNOWN if through is None else LIVE
    return Liveness(
        node=node,
        standing=CLOSED if is_over and name != RETIRED else name,
        bound=min(waited_for, default=None),
        published_through=through,
        holds_unpublished=bool(lost)
        or (not is_over and live is not None and live.holds_unpublished),
        heard_ms=None if live is None else live.time_ms,
        interval_ms=0 if live is None else live.interval_ms,
        skew_ms=None if live is None else live.skew_ms,
        advertise_url=None if live is None or is_over else live.advertise_url,
        lost_through=min(lost, default=None),
    )
