"""`merge`: many small files become few large ones, in tasks, and are swapped in by one commit.

::

    snapshot -> runs of small neighbours (the compactor's plan) -> one task a run
             -> one commit of the shared node: merged rows in, own sources out, others' sources replaced

Owned nodes keep listing their sources until their owners remove them; readers leave them out from
the commit on. Readers that planned before the commit still find the sources for the grace time. A
run of which another writer removed a source meanwhile is left out of the commit and reported.

Depends on merge_task, publishing, snapshot, compactor, lifecycle, job_store, numbered_tasks and
options.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from tierdex.compactor.merge import plan_merge
from tierdex.errors import InvalidRequestError
from tierdex.lifecycle.manifest import FileRow, ManifestState, NodeKind, RemoveReason
from tierdex.lifecycle.manifest_codec import decode_row, encode_row
from tierdex.lifecycle.ownership import SharedNode
from tierdex.pipeline.job_store import StoreLink
from tierdex.pipeline.merge_task import merge_group
from tierdex.pipeline.numbered_tasks import run_numbered
from tierdex.pipeline.options import DEFAULT_NODE, MAX_TIME, MIN_TIME, parse_time
from tierdex.pipeline.publishing import JobNode
from tierdex.pipeline.snapshot import ListedFile, open_log, take_snapshot
from tierdex.settings import load_settings

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tierdex.lifecycle.manifest import Retention
    from tierdex.pipeline.snapshot import Snapshot
    from tierdex.storage_layer.base import Store

logger = logging.getLogger(__name__)

MERGE_TARGET_ITEMS = 20_000_000


@dataclass(frozen=True, slots=True)
class MergeReport:
    """The result of a merge. `skipped` counts files of runs that lost a source meanwhile."""

    files_considered: int
    files_merged: int
    files_written: int
    items: int
    bytes: int
    skipped: int


def merge(
    spark: Any,
    store_url: str,
    *,
    node: str = DEFAULT_NODE,
    nodes: Sequence[str] | None = None,
    begin: object = None,
    end: object = None,
    below_items: int = 1_000_000,
    target_items: int = MERGE_TARGET_ITEMS,
    min_files: int = 2,
    options: Mapping[str, str] | None = None,
) -> MergeReport:
    """Merge the small files of `nodes` (all by default) into files of the shared node `node`.

    Takes files below `below_items` whose entries all lie within [begin, end] (milliseconds or RFC
    3339), neighbours of one schema together, up to `target_items` each. Files of a node whose
    retention differs from that of `node` stay as they are. `options` may hold the store's
    credentials. Raises OwnershipError when `node` has an owner, and what the store raises.
    """
    low = MIN_TIME if begin is None else parse_time(begin, field="begin")
    high = MAX_TIME if end is None else parse_time(end, field="end")
    if low > high:
        raise InvalidRequestError("lies after end", field="begin")
    link = StoreLink.of(store_url, options)
    store = link.open()
    target = JobNode(store, node)
    snapshot = take_snapshot(store, nodes)
    files = [
        file
        for file in mergeable(snapshot, target.shared.state.retention)
        if low <= file.row.min_time and file.row.max_time <= high
    ]
    groups = _plan(files, below_items=below_items, target_items=target_items, min_files=min_files)
    read_number, bits = target.shared.state.number, load_settings().filter_bits

    def run_one(number: int) -> bytes:
        row = merge_group(
            link.open(),
            groups[number],
            node=node,
            read_number=read_number,
            filter_bits=bits,
            forgotten=snapshot.forgotten,
        )
        return encode_row(row)

    rows = [decode_row(data) for data in run_numbered(spark, len(groups), run_one, "merge")]
    own = [[row.uuid for owner, row in group if owner == node] for group in groups]
    merges = list(zip(rows, own, strict=True))
    listed = target.merge(merges, snapshot.forgotten) if rows else []
    done = [group for group, row in zip(groups, rows, strict=True) if row.uuid in listed]
    _drop_replaced(store, node, done)
    target.collect()
    return MergeReport(
        files_considered=len(files),
        files_merged=sum(map(len, done)),
        files_written=len(done),
        items=sum(row.item_count for row in rows if row.uuid in listed),
        bytes=sum(row.bytes for row in rows if row.uuid in listed),
        skipped=sum(map(len, groups)) - sum(map(len, done)),
    )


def mergeable(snapshot: Snapshot, rules: Retention) -> list[ListedFile]:
    """Return the files that may be merged into a node with these rules of retention, newest first.

    The node that lists an entry decides its retention: in a node with other rules entries would be
    kept too long or too short. A file with hidden entries keeps its own age.
    """
    others = sorted(node for node, own in snapshot.retention.items() if own != rules)
    if others:
        logger.warning("other retention, not merged", extra={"nodes": others})
    return [file for file in snapshot.files if file.node not in others and not file.is_fading]


def collect_garbage(
    store_url: str,
    *,
    node: str = DEFAULT_NODE,
    options: Mapping[str, str] | None = None,
    yes: bool = False,
) -> int:
    """Delete the objects of failed jobs and of merged files, once the grace time has passed.

    Returns the number of deleted objects. `merge` and the sinks also do this. When more than half
    of the node's objects are in no manifest, these stay and a warning is logged, unless `yes`.
    """
    return JobNode(StoreLink.of(store_url, options).open(), node).collect(yes=yes)


def _plan(
    files: Sequence[ListedFile], *, below_items: int, target_items: int, min_files: int
) -> list[list[tuple[str, FileRow]]]:
    """Return the runs to merge, each oldest first: the compactor's plan over all nodes together."""
    owners = {file.row.uuid: file.node for file in files}
    settings = load_settings(
        merge_below_items=below_items, merge_min_files=min_files, item_capacity=target_items
    )
    rows = {file.row.uuid: file.row for file in files}
    state = ManifestState(node=DEFAULT_NODE, files=MappingProxyType(rows))
    taken: set[bytes] = set()
    groups = []
    while run := plan_merge(state, settings, taken, in_tiers=False):
        taken.update(row.uuid for row in run)
        groups.append([(owners[row.uuid], row) for row in run])
    return groups


def _drop_replaced(store: Store, node: str, groups: Sequence[list[tuple[str, FileRow]]]) -> None:
    """Remove merged files from the lists of other shared nodes; owners remove theirs."""
    by_node: dict[str, list[bytes]] = {}
    for owner, row in (source for group in groups for source in group):
        if owner != node:
            by_node.setdefault(owner, []).append(row.uuid)
    for owner, uuids in by_node.items():
        log = open_log(store, owner)
        if log.load().kind is NodeKind.SHARED:
            SharedNode(log).remove(uuids, RemoveReason.REPLACED)
