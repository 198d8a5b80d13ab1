"""The age of an answer: what the file table shows of every node at one moment, and as of when it is complete.

::

    manifests read, table changed  ->  NodeAges  ->  as_of, unasked, older_than: of answers from that table
                                                 ->  live_peers: who holds more, and where it serves

A query takes the `NodeAges` before it takes its files: the files are then as new, or newer, and the answer
promises no more than they hold. Afterwards it adds the owners that answered for themselves. Such an owner
holds nothing back, but counts as of the reading of its manifest all the same: a takeover since is not known
here, and no owner was asked for what the new one acknowledged.

Immutable. Depends on answer, file_info and lifecycle.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

from tierdex.index_service.answer import Missing, Unasked
from tierdex.index_service.file_info import NodeInfo
from tierdex.lifecycle.manifests.forgotten import NOTHING_FORGOTTEN, ForgottenEntries
from tierdex.lifecycle.manifests.live_record import OwnerAddress
from tierdex.lifecycle.manifests.liveness import LATE, LIVE, UNKNOWN, Liveness

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Set

    from tierdex.lifecycle.manifests.manifest import ManifestState
    from tierdex.lifecycle.nodes.node_reading import NodeReading

NO_NODES: Final[frozenset[str]] = frozenset()
UNREAD: Final = 0  # the time of a node that was never read


@dataclass(frozen=True, slots=True)
class NodeAges:
    """What is known of all nodes. Times are int64 ms, the store's when `is_dated`, else our clock's.

    `listed_ms` is when the nodes were listed; None: they are given. `known_ms` is the time as of which the
    table shows each node. `local` are nodes whose unpublished files are in the table, too; they were read
    at `local_ms` (None: they are as of whenever they are asked).
    """

    taken_ms: int = 0
    is_dated: bool = False
    listed_ms: int | None = UNREAD
    known_ms: Mapping[str, int] = field(default_factory=dict)
    standings: Mapping[str, Liveness] = field(default_factory=dict)
    states: Mapping[str, ManifestState] = field(default_factory=dict)
    local: frozenset[str] = NO_NODES
    local_ms: int | None = None
    forgotten: ForgottenEntries = NOTHING_FORGOTTEN  # that the files may still hold

    def as_of(self, answered: Set[str] = NO_NODES) -> int:
        """Return the time before which everything acknowledged anywhere is in what the table shows.

        Nodes that were not in the list had acknowledged nothing before. Nodes
        of programs that never said how far they have published are left out: see `unasked`.
        """
        return min(self._times(answered), default=self.taken_ms)

    def of_node(self, node: str) -> NodeAges:
        """Return what is known of one node, for an answer that is about its entries alone."""
        known_ms = {node: self.known_ms.get(node, UNREAD)}
        standings = {node: self.standings[node]} if node in self.standings else {}
        return replace(self, listed_ms=None, known_ms=known_ms, standings=standings)

    def describe(self, reading: NodeReading, now_ms: int) -> NodeInfo:
        """Return a node as operators see it."""
        node, state = reading.node, reading.state
        standing = self.standings.get(node) or Liveness(node, UNKNOWN, None)
        through = standing.bound
        if node in self.local or (through is None and standing.standing != UNKNOWN):
            through = self.known_ms.get(node) if standing.lost_through is None else through
        return NodeInfo(
            node=node,
            number=state.number,
            files=len(state.files),
            problem=reading.problem,
            standing=standing.at(now_ms),
            published_through=through,
            lag_s=None if through is None else max(0, now_ms - through) / 1000,
            skew_s=None if standing.skew_ms is None else standing.skew_ms / 1000,
            holds_unpublished=standing.holds_unpublished,
            url=standing.advertise_url,
            heard_at=standing.heard_ms,
        )

    def _times(self, answered: Set[str]) -> Iterator[int]:
        if self.listed_ms is not None:
            yield self.listed_ms
        for node, known_ms in self.known_ms.items():
            yield known_ms
            standing = self.standings.get(node)
            if standing is None:
                continue
            is_here = node in self.local
            if is_here and self.local_ms is not None:
                yield self.local_ms
            bound = standing.lost_through if is_here or node in answered else standing.bound
            if bound is not None:
                yield bound

    def unasked(self, answered: Set[str] = NO_NODES) -> tuple[Unasked, ...]:
        """Return the nodes that may hold entries which are not published, by name.

        A live owner may since its last record, whatever that said of before.

        Of a node that `answered` itself only what a lost folder held is out of reach.
        """
        return tuple(
            Unasked(
                node,
                standing.at(self.taken_ms),
                standing.bound,
                standing.holds_unpublished,
                standing.heard_ms,
            )
            for node, standing in sorted(self.standings.items())
            if self._may_hold_unpublished(standing, answered)
        )

    def _may_hold_unpublished(self, standing: Liveness, answered: Set[str]) -> bool:
        if standing.node in self.local or standing.node in answered:
            return standing.lost_through is not None
        return standing.bound is not None or standing.standing == UNKNOWN

    def older_than(self, oldest: int, answered: Set[str] = NO_NODES) -> list[Missing]:
        """Return the nodes because of which answers are older than `oldest`, for all that is known."""
        found = []
        if not self.is_dated:
            found.append(Missing("clock", "ours was never compared with the store's"))
        if self.listed_ms is not None and self.listed_ms < oldest:
            found.append(Missing("store", "nodes were not listed lately"))
        for node, known_ms in sorted(self.known_ms.items()):
            reason = self._why_older(node, known_ms, oldest, answered)
            if reason is not None:
                found.append(Missing(f"node:{node}", reason))
        return found

    def _why_older(self, node: str, known_ms: int, oldest: int, answered: Set[str]) -> str | None:
        standing = self.standings.get(node)
        if standing is None or known_ms < oldest:
            return "manifest not read lately"
        if node in self.local or node in answered:
            lost = standing.lost_through
            return None if lost is None or lost >= oldest else _why_behind(standing, oldest)
        return _why_behind(standing, oldest)

    def read_ms(self) -> int:
        """Return when what answers are made of was last read: manifests, the list of nodes, a folder."""
        times = [*self.known_ms.values()]
        times += [ms for ms in (self.listed_ms, self.local_ms) if ms is not None]
        return min(times, default=self.taken_ms)

    def live_peers(self, now_ms: int) -> list[OwnerAddress]:
        """Return the live owners of other nodes that say where they serve."""
        return [
            OwnerAddress(node, state.epoch, state.owner.hex(), state.number, standing.advertise_url)
            for node, standing in sorted(self.standings.items())
            if standing.advertise_url is not None
            and standing.at(now_ms) in (LIVE, LATE)
            and node not in self.local
            and (state := self.states[node])
        ]


def _why_behind(standing: Liveness, oldest: int) -> str | None:
    """Return why a node's answer may be older than `oldest` (ms), None when it is not."""
    if standing.standing == UNKNOWN:
        return "never said how far it has published: a program of before"
    if not standing.is_proven():
        return "its clock was never compared with the store's"
    if standing.bound is None or standing.bound >= oldest:
        return None
    behind_s = (oldest - standing.bound) / 1000
    return f"has published what is {behind_s:.0f} s older than asked for; it was not asked itself"
