"""Hypothesis strategies for manifest values."""

from __future__ import annotations

from hypothesis import strategies as st

from tierdex.lifecycle.manifests.file_row import LOG_KIND, FileRef, FileRow, HashGroups, HashRange
from tierdex.lifecycle.manifests.forgotten import AskedHash, Forgetting
from tierdex.lifecycle.manifests.live_record import LiveRecord
from tierdex.lifecycle.manifests.manifest import (
    Change,
    Checkpoint,
    Commit,
    Dropped,
    ManifestState,
    NodeKind,
    NodeOwner,
    QueueTableRef,
    RemoveReason,
    Retention,
)

uuids = st.binary(min_size=16, max_size=16)
counts = st.integers(0, (1 << 63) - 1)
times = st.integers(-(1 << 63), (1 << 63) - 1)
nodes = st.from_regex(r"[a-z0-9][a-z0-9._]{0,8}", fullmatch=True)
topics = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
refs = st.builds(FileRef, nodes, uuids, counts)
ref_tuples = st.lists(refs, max_size=2).map(tuple)
hashes = st.integers(0, (1 << 64) - 1)
hash_ranges = st.lists(hashes, min_size=2, max_size=2).map(lambda two: HashRange(*sorted(two)))
tables = st.none() | st.builds(QueueTableRef, topics, uuids, counts, counts)
streams = st.dictionaries(topics, counts, max_size=2)
bounds = st.dictionaries(uuids, counts, max_size=2)
owners = st.builds(NodeOwner, nodes, uuids)
asked = st.builds(AskedHash, topics, st.just(0), hashes) | st.builds(
    AskedHash, st.none() | topics, st.just(1), hashes
)
forgettings = st.builds(
    Forgetting,
    uuid=uuids,
    time_ms=times,
    asked=st.lists(asked, max_size=2).map(tuple),
    waits=st.lists(nodes, max_size=2).map(tuple),
    only=st.none() | st.lists(st.tuples(counts, counts), max_size=2).map(tuple),
    rewrites=st.booleans(),
    entries=st.binary(min_size=24, max_size=24) | st.just(b""),
    bounds=st.dictionaries(nodes, counts, max_size=2),
    files=ref_tuples,
)
lives = st.builds(
    LiveRecord,
    counts, uuids, counts, counts, times, st.none() | times, st.integers(1, 1 << 40), st.booleans(),
    st.booleans(), st.none() | st.text(max_size=20),
)  # fmt: skip
retentions = st.builds(
    Retention, st.none() | counts, st.dictionaries(topics, st.none() | counts, max_size=2)
)


@st.composite
def groups_in(draw: st.DrawFn, begin: int, end: int) -> HashGroups | None:
    """Groups that lie in [begin, end)."""
    if end == begin or draw(st.booleans()):
        return None
    head_end, position = sorted(draw(st.integers(begin, end - 1)) for _ in range(2))
    count = draw(st.integers(1, end - position))
    return HashGroups(position, draw(st.integers(1, (end - position) // count)), count, head_end)


@st.composite
def rows(draw: st.DrawFn) -> FileRow:
    size = draw(counts)
    sidecar = draw(st.integers(0, size))
    return FileRow(
        uuid=draw(uuids),
        number=draw(counts),
        object_key=draw(topics),
        bytes=size,
        item_count=draw(counts),
        slot_count=draw(counts),
        min_time=draw(times),
        max_time=draw(times),
        begin_ms=draw(times),
        sealed_at_ms=draw(times),
        sidecar_position=sidecar,
        tail_crc=draw(st.integers(0, 2**32 - 1)),
        topics=draw(st.none() | st.frozensets(hashes, max_size=3)),
        schema=draw(topics),
        replaces=draw(ref_tuples),
        parts=draw(ref_tuples),
        hash_range=draw(st.none() | hash_ranges),
        groups=draw(groups_in(sidecar, size)),
        **draw(st.sampled_from([{}, {"tells": True}, {"kind": LOG_KIND}])),
    )


changes = st.builds(
    Change,
    add=st.lists(rows(), max_size=2).map(tuple),
    remove=st.dictionaries(uuids, st.sampled_from(RemoveReason), max_size=2),
    forget=st.lists(uuids, max_size=2).map(tuple),
    forget_replaced=ref_tuples,
    floor=st.none() | counts,
    collected=st.none() | counts,
    rollback=st.none() | counts,
    retention=st.none() | retentions,
    streams=streams,
    queue_table=tables,
    covers=st.lists(uuids, max_size=2).map(tuple),
    outstanding=st.none() | bounds,
    retires=st.booleans(),
    adopts=st.lists(owners, max_size=2).map(tuple),
    forgettings=st.lists(forgettings, max_size=2).map(tuple),
    ends=st.lists(uuids, max_size=2).map(tuple),
)
dropped = st.builds(Dropped, topics, uuids, counts, st.sampled_from(RemoveReason), times)


@st.composite
def states(draw: st.DrawFn) -> ManifestState:
    files = {row.uuid: row for row in draw(st.lists(rows(), max_size=2))}
    return ManifestState(
        node=draw(nodes),
        number=draw(st.integers(0, 1 << 40)),
        kind=draw(st.none() | st.sampled_from(NodeKind)),
        epoch=draw(counts),
        owner=draw(uuids),
        time_ms=draw(times),
        base=draw(counts),
        base_ms=draw(times),
        checkpoints=tuple(
            map(Checkpoint._make, draw(st.lists(st.tuples(counts, times), max_size=3)))
        ),
        collected=draw(counts),
        rollback=draw(counts),
        floor=draw(counts),
        highest_number=draw(counts),
        files=files,
        dropped={d.uuid: d for d in draw(st.lists(dropped, max_size=2))},
        replaced=draw(st.frozensets(refs, max_size=2)),
        retention=draw(retentions),
        streams=draw(streams),
        queue_table=draw(tables),
        uncovered=frozenset(sorted(files)[: draw(st.integers(0, 2))]),
        published_through=draw(st.none() | counts),
        outstanding=draw(bounds),
        is_retired=draw(st.booleans()),
        adopted=frozenset(draw(st.lists(owners, max_size=2))),
        forgettings={r.uuid: r for r in draw(st.lists(forgettings, max_size=1))},
    )


@st.composite
def commits_after(draw: st.DrawFn, state: ManifestState) -> Commit:
    return Commit(
        node=state.node,
        number=state.number + 1,
        kind=draw(st.sampled_from(NodeKind)),
        epoch=draw(counts),
        owner=draw(uuids),
        commit_id=draw(uuids),
        time_ms=draw(times),
        base=draw(st.integers(0, state.number)),
        change=draw(changes),
        published_through=draw(st.none() | counts),
    )
