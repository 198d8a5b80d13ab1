"""`merge`: many small files become few large ones, in tasks, and are swapped in by one commit.

::

    snapshot -> runs of small neighbours (the compactor's plan) -> one task a run
             -> one commit of the shared node: merged rows in, own sources out, others' sources replaced

Owned nodes keep listing their sources until their owners remove them; readers leave them out from
the commit on. Readers that planned before the commit still find the sources for the grace time. A
run of which another writer removed a source meanwhile is left out of the commit and reported.

Depends on times, merge_task, publishing, runs, snapshot, log_index_node, compactor, lifecycle, job_store,
numbered_tasks and options.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import astuple, dataclass
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from tierdex.compactor.merge import plan_merge
from tierdex.compactor.upload import Target
from tierdex.errors import InvalidRequestError
from tierdex.lifecycle.manifests.file_row import FileRow
from tierdex.lifecycle.manifests.manifest import Change, ManifestState, NodeKind, RemoveReason
from tierdex.lifecycle.manifests.row_codec import decode_row, encode_row
from tierdex.lifecycle.nodes.expiry import expire_rows
from tierdex.lifecycle.nodes.shared_node import SharedNode
from tierdex.lifecycle.retention import plan_expiry
from tierdex.pipeline.jobs.job_store import StoreLink
from tierdex.pipeline.jobs.numbered_tasks import run_numbered
from tierdex.pipeline.jobs.options import DEFAULT_NODE, MAX_TIME, MIN_TIME
from tierdex.pipeline.jobs.publishing import JobNode
from tierdex.pipeline.jobs.snapshot import ListedFile, open_log, take_snapshot
from tierdex.pipeline.logs.log_index_node import log_node_of
from tierdex.pipeline.merging.merge_task import merge_group
from tierdex.pipeline.merging.runs import DAY_MS, PIECE_ITEMS, RunPlan, plan_runs
from tierdex.settings import load_settings
from tierdex.times import to_ms

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tierdex.lifecycle.manifests.manifest import Retention
    from tierdex.pipeline.jobs.snapshot import Snapshot
    from tierdex.storage_layer.base import Store

logger = logging.getLogger(__name__)

MERGE_TARGET_ITEMS = 20_000_000
RUNS_NODE = "runs"

Group = list[tuple[str, FileRow]]
"""The sources of one merge: node and row, oldest first."""
RunAll = Callable[[int, Callable[[int], bytes]], Sequence[bytes]]
"""Calls a function with each number below the first argument, on any machines; returns what it returned."""


@dataclass(frozen=True, slots=True)
class MergeReport:
    """The result of a merge. `skipped` counts files of runs that lost a source meanwhile."""

    files_considered: int
    files_merged: int
    files_written: int
    items: int
    bytes: int
    skipped: int

    def plus(self, other: MergeReport) -> MergeReport:
        return MergeReport(*map(sum, zip(astuple(self), astuple(other), strict=True)))


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
    piece_items: int | None = None,
    older_than_ms: int = DAY_MS,
    options: Mapping[str, str] | None = None,
) -> MergeReport:
    """Merge the small files of `nodes` (all by default) into files of the shared node `node`.

    Takes files below `below_items` whose entries all lie within [begin, end] (milliseconds or RFC
    3339), neighbours of one schema together, up to `target_items` each. Files of a node whose
    retention differs from that of `node` stay as they are. With `piece_items` all files that were sealed
    `older_than_ms` ago become runs instead, whatever their size and times: see `merge_runs`. `options`
    may hold the store's credentials. Raises OwnershipError when `node` has an owner, and what the store
    raises.
    """
    low = MIN_TIME if begin is None else to_ms(begin, "begin")
    high = MAX_TIME if end is None else to_ms(end, "end", is_end=True)
    if low > high:
        raise InvalidRequestError("lies after end", field="begin")
    link = StoreLink.of(store_url, options)
    if piece_items is not None:
        return merge_runs(
            link.open,
            node=node,
            older_than_ms=older_than_ms,
            piece_items=piece_items,
            min_files=min_files,
            run_all=partial(_run_in_spark, spark),
        )
    store = link.open()
    target = JobNode(store, node)
    snapshot = take_snapshot(store, nodes)
    files = [
        file
        for file in mergeable(snapshot, target.shared.state.retention, node)
        if low <= file.row.min_time and file.row.max_time <= high
    ]
    groups = _plan(files, below_items=below_items, target_items=target_items, min_files=min_files)
    to = Target(node, target.shared.state.number, load_settings().filter_bits, snapshot.forgotten)

    def run_one(number: int) -> bytes:
        (row,) = merge_group(link.open(), groups[number], to)
        return encode_row(row)

    rows = [[decode_row(data)] for data in run_numbered(spark, len(groups), run_one, "merge")]
    return commit_merges(store, target, len(files), list(zip(groups, rows, strict=True)))


def merge_runs(
    open_store: Callable[[], Store],
    *,
    node: str = RUNS_NODE,
    older_than_ms: int = DAY_MS,
    piece_items: int = PIECE_ITEMS,
    min_files: int = 2,
    run_all: RunAll | None = None,
) -> MergeReport:
    """Merge the files that were sealed before `older_than_ms` ago into runs, one for each day.

    Takes all nodes' files, for the shared node `node`::

        1 pieces uploaded      under names that no manifest lists: a crash leaves garbage
        2 commit to `node`     every reader sees all pieces and none of the sources, which it hides
        3 sources removed      from the lists of shared nodes; owners remove theirs by themselves

    A reader that saw sources leave before it saw their run reads the manifests again. Of two merges at
    once one commits a run, the other leaves it out. `run_all` writes all runs side by side, then one commit
    lists them; else each is committed before the next is begun. Raises OwnershipError when `node` has an
    owner, and what the store raises.
    """
    store = open_store()
    target = JobNode(store, node)
    now_ms = target.clock.now_ms()
    snapshot = take_snapshot(store)
    rules = _take_rules(target, snapshot)
    _expire(target, now_ms)
    plans = plan_runs(
        snapshot.files,
        {file.row.uuid for file in mergeable(snapshot, rules, node)},
        rules,
        sealed_before_ms=now_ms - older_than_ms,
        piece_items=piece_items,
        min_files=min_files,
    )
    report = MergeReport(len(snapshot.files), 0, 0, 0, 0, 0)
    for some in [plans] if run_all is not None else [[plan] for plan in plans]:
        number, bits = target.shared.refresh().number, load_settings().filter_bits
        to = Target(node, number, bits, snapshot.forgotten)
        write = partial(_write_run, open_store, some, to)
        written = run_all(len(some), write) if run_all else [write(n) for n in range(len(some))]
        rows = [[decode_row(line) for line in lines.splitlines()] for lines in written]
        merges = [(plan.group, pieces) for plan, pieces in zip(some, rows, strict=True)]
        report = report.plus(commit_merges(store, target, 0, merges, collect=False))
    target.collect()
    return report


def _write_run(
    open_store: Callable[[], Store], plans: Sequence[RunPlan], to: Target, number: int
) -> bytes:
    """Write and upload one run; return the rows of its pieces, a line each."""
    plan = plans[number]
    rows = merge_group(open_store(), plan.group, to, piece_items=plan.piece_items)
    return b"\n".join(map(encode_row, rows))


def _run_in_spark(spark: Any, count: int, run_one: Callable[[int], bytes]) -> list[bytes]:
    return run_numbered(spark, count, run_one, "merge")


def _take_rules(target: JobNode, snapshot: Snapshot) -> Retention:
    """Return the target's rules of retention; a node without files takes those of all that have some."""
    state = target.shared.state
    nodes = {file.node for file in snapshot.files}.difference([target.name])
    others = [snapshot.retention[node] for node in nodes]
    if state.files or not others or any(rules != others[0] for rules in others):
        return state.retention
    if state.retention != others[0]:
        target.shared.commit(lambda _: Change(retention=others[0]))
    return others[0]


def _expire(target: JobNode, now_ms: int) -> None:
    state = target.shared.state
    gone = plan_expiry(state.index_files.values(), state.retention, now_ms)
    if gone:
        expire_rows(target.shared, gone)


def commit_merges(
    store: Store,
    target: JobNode,
    considered: int,
    merges: Sequence[tuple[Group, Sequence[FileRow]]],
    *,
    collect: bool = True,
) -> MergeReport:
    """Commit uploaded merges, and remove their sources where no owner does."""
    node = target.name
    own = [[row.uuid for owner, row in group if owner == node] for group, _ in merges]
    pairs = [(rows, uuids) for (_, rows), uuids in zip(merges, own, strict=True)]
    listed = target.merge(pairs) if merges else frozenset[bytes]()
    done = [(group, rows) for group, rows in merges if rows[0].uuid in listed]
    _drop_replaced(store, node, [group for group, _ in done])
    if collect:
        target.collect()
    written = [row for _, rows in done for row in rows]
    merged = sum(len(group) for group, _ in done)
    return MergeReport(
        files_considered=considered,
        files_merged=merged,
        files_written=len(written),
        items=sum(row.item_count for row in written),
        bytes=sum(row.bytes for row in written),
        skipped=sum(len(group) for group, _ in merges) - merged,
    )


def mergeable(snapshot: Snapshot, rules: Retention, target: str | None = None) -> list[ListedFile]:
    """Return the files that may be merged into `target`, with these rules of retention, newest first.

    An entry of a log's index lies at an offset of its own node's log: another node's file does not say
    whose. The node that lists an entry decides its retention: in a node with other rules entries would be
    kept too long or too short. A file with hidden entries keeps its own age. Files of a node that has
    not acknowledged all requests to forget may hold more of what they are about.
    """
    waiting, logs = snapshot.forgotten.waiting_nodes, snapshot.log_nodes
    others = sorted(node for node, own in snapshot.retention.items() if own != rules)
    if others:
        logger.warning("other retention, not merged", extra={"nodes": others})
    return [
        file
        for file in snapshot.files
        if file.node not in others
        and file.node not in waiting
        and not file.is_fading
        and (file.node == target or log_node_of(file.node, logs) not in logs)
    ]


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
