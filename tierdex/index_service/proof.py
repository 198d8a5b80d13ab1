"""Proof of absence: the evidence of each file in the store, for a second party to check.

::

    {asked, time_ms, nodes: [number and digest of each manifest],
     files: [object, its identity, what said no, digest of the bytes that said it], ..., digest}

A proof is a function of the store alone: of the manifests at the numbers that it names, and of the objects
that they list. So it is checked by being made again. A line that differs, a manifest that is another one or
was not the newest, a node that is left out: each is named. What no manifest listed then (`unpublished`) no
second party can look at, and it says so.

The bytes that say no: of times and topics the manifest; of a filter the hash group of the key, and of a
file without groups its sidecar, which is verified against the manifest's row (uuid, footer's checksum); of
pages those that hold the hash.

Depends on readers, requests, indexfile, lifecycle and errors.
"""

from __future__ import annotations

import hashlib
import json
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

from tierdex.errors import CorruptFileError, InvalidRequestError, NotFoundError, TierdexError
from tierdex.index_service.readers.sidecar_parts import SidecarParts
from tierdex.index_service.requests.query import QueryValues, make_request
from tierdex.indexfile.compacted.file import CompactedFile
from tierdex.indexfile.layout import KIND_KEY, KIND_MESSAGE_ID, TAG_NONE, TOPIC_MASK
from tierdex.indexfile.lookup import NO_LIMIT, Search
from tierdex.indexfile.schema import TOPIC_DICTIONARY
from tierdex.lifecycle.manifests.file_row import FilePlace
from tierdex.lifecycle.manifests.manifest import (
    Commit,
    ManifestState,
    Tombstone,
    is_replaced,
    replaced_by,
)
from tierdex.lifecycle.manifests.manifest_log import list_nodes
from tierdex.lifecycle.manifests.manifest_reader import ManifestReader
from tierdex.lifecycle.nodes.node_reading import forgotten_in
from tierdex.lifecycle.paths import StorePaths, make_file_id
from tierdex.lifecycle.retention import is_hidden
from tierdex.lifecycle.topic_set import may_hold

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tierdex.index_service.requests.query import QueryRequest
    from tierdex.lifecycle.manifests.file_row import FileRow
    from tierdex.lifecycle.manifests.forgotten import ForgottenEntries
    from tierdex.settings import Settings
    from tierdex.storage_layer.base import Store

FORMAT: Final = "tierdex-proof 2"
_AT_ONCE: Final = 8
_STORE_SECOND_MS: Final = 1000  # a store may cut its times to whole seconds


class Evidence(NamedTuple):
    """What a proof is made from: the manifests, and the question. `time_ms` is the store's."""

    store: Store
    request: QueryRequest
    states: Mapping[str, ManifestState]
    time_ms: int


def make_proof(
    evidence: Evidence, asked: dict[str, Any], unpublished: Sequence[str]
) -> dict[str, Any]:
    """Return the proof as plain JSON values. Raises what the store raises, CorruptFileError."""
    states = {node: state for node, state in sorted(evidence.states.items()) if state.number}
    replaced = replaced_by(states.values())
    rows = [
        (state, row)
        for state in states.values()
        for row in sorted(state.index_files.values(), key=lambda row: row.number)
        if not is_replaced(row, state.node, replaced)
    ]
    forgotten = forgotten_in(states.values())
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        files = list(pool.map(lambda each: _line(evidence, each[0], each[1], forgotten), rows))
    content = {
        "format": FORMAT,
        "asked": asked,
        "time_ms": evidence.time_ms,
        "nodes": [_node_line(evidence.store, state) for state in states.values()],
        "files": files,
        "unpublished": sorted(unpublished),
        "absent": not any(line["matches"] for line in files),
    }
    return {**content, "digest": _digest_of(content)}


def check_proof(store: Store, settings: Settings, proof: Any) -> list[str]:
    """Make the proof again from the store; return what differs, in words. Raises what the store raises.

    Raises InvalidRequestError for what is no proof.
    """
    if not isinstance(proof, dict) or proof.get("format") != FORMAT:
        raise InvalidRequestError(f"is not a proof: {FORMAT!r} is expected", field="proof")
    content = {name: value for name, value in proof.items() if name != "digest"}
    if proof.get("digest") != _digest_of(content):
        return ["the proof was altered: its digest is not that of its content"]
    try:
        request = make_request(settings, QueryValues(**proof["asked"]))
        nodes = {line["node"]: line["number"] for line in proof["nodes"]}
        if not all(isinstance(line, dict) for line in proof["files"]):
            raise TypeError("a file is no object")
        time_ms, unpublished = int(proof["time_ms"]), list(proof["unpublished"])
        states = {node: _state_at(store, node, number) for node, number in nodes.items()}
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise InvalidRequestError(f"is not a proof: {error!r}", field="proof") from error
    except CorruptFileError as error:
        return [f"{error.path}: {error.reason}"]
    problems = _missed(store, nodes, time_ms)
    store_ms = store.time_ms()
    if store_ms is not None and time_ms > store_ms + _STORE_SECOND_MS:
        # By then retention hides what is shown now.
        problems.append("the proof is of a time that has not come")
    evidence = Evidence(store, request, states, time_ms)
    try:
        again = make_proof(evidence, proof["asked"], unpublished)
    except (TierdexError, OSError) as error:
        return [*problems, f"the store does not show it: {error}"]
    return problems + _differences(proof, again)


# -- lines ------------------------------------------------------------------------------------------


def _node_line(store: Store, state: ManifestState) -> dict[str, Any]:
    data = store.get(StorePaths(state.node).manifest(state.number))
    return {"node": state.node, "number": state.number, "digest": _sha256(data)}


def _line(
    evidence: Evidence, state: ManifestState, row: FileRow, forgotten: ForgottenEntries
) -> dict[str, Any]:
    """Return what a file says to the question; `matches` counts the entries that a query returns."""
    request = evidence.request
    line: dict[str, Any] = {
        "file_id": make_file_id(row.number, state.node),
        "object_key": row.object_key,
        "uuid": row.uuid.hex(),
        "bytes": row.bytes,
        "footer_crc": row.tail_crc,
        "matches": 0,
    }
    if not row.item_count or row.min_time > request.end or row.max_time < request.begin:
        return line | {"says_no": "time", "min_time": row.min_time, "max_time": row.max_time}
    if request.topic is not None and not may_hold(row.topics, request.topic):
        return line | {"says_no": "topics"}
    hashes = row.hash_range
    if hashes is not None and not hashes.first <= request.key_hash <= hashes.last:
        return line | {"says_no": "hash range", "hash_range": list(hashes)}
    open_file = _whole_sidecar if row.groups is None else _group
    said, file = open_file(evidence, row)
    line |= said
    if file is None:
        return line | {"says_no": "filter"}
    return line | _of_pages(evidence, state, row, file, forgotten)


def _whole_sidecar(evidence: Evidence, row: FileRow) -> tuple[dict[str, Any], CompactedFile | None]:
    """Return the sidecar's digest, and the file if its filter does not exclude the hash."""
    read = partial(evidence.store.get, row.object_key)
    tail = read(row.sidecar_position, row.bytes - row.sidecar_position)
    file = CompactedFile.from_sidecar(
        tail, read, position=row.sidecar_position, name=row.object_key
    )
    if file.uuid != row.uuid or file.footer_crc != row.tail_crc:
        raise CorruptFileError(row.object_key, "is not the file that the manifest lists")
    is_there = file.may_contain(evidence.request.key_hash)
    return {"sidecar_digest": _sha256(tail)}, file if is_there else None


def _group(evidence: Evidence, row: FileRow) -> tuple[dict[str, Any], CompactedFile | None]:
    """Do the same by the hash group of the key; its bytes are bound to the file by uuid and number."""
    assert row.groups is not None
    read: dict[tuple[int, int], str] = {}
    key_hash = evidence.request.key_hash

    def fetch(position: int, length: int) -> bytes:
        data = evidence.store.get(row.object_key, position, length)
        read[position, length] = _sha256(data)
        return data

    parts = SidecarParts(row.bytes, lambda _: None)
    group = parts.group(row, (key_hash * row.groups.group_count) >> 64, fetch)
    file = None
    if group.may_contain(key_hash):
        entries = parts.with_entries(row, group, fetch)
        file = parts.head(row, group, fetch).through(entries)
    ranges = [[position, length, digest] for (position, length), digest in sorted(read.items())]
    return {"sidecar_ranges": ranges}, file


def _of_pages(
    evidence: Evidence,
    state: ManifestState,
    row: FileRow,
    file: CompactedFile,
    forgotten: ForgottenEntries,
) -> dict[str, Any]:
    """Return what the pages say that may hold the hash."""
    request = evidence.request
    kind = KIND_MESSAGE_ID if request.kind == 1 else KIND_KEY
    tag = file.tag_of(request.topic, kind)
    if tag == TAG_NONE:
        return {"says_no": "dictionary"}
    hashes, tags = np.array([request.key_hash], np.uint64), np.array([tag], np.uint32)
    search = Search.of(hashes, tags, begin=request.begin, end=request.end)
    first, last = file.plan_pages(search, NO_LIMIT)[0].tolist()
    if last < first:
        return {"says_no": "directory"}
    span = file.span(first, last - first + 1)
    data = evidence.store.get(row.object_key, span.position, span.length)
    rows = file.search_span(span, data, search).rows
    said = {"pages": [span.position, span.length], "pages_digest": _sha256(data)}
    place = FilePlace(state.node, row.number, row)
    gone = forgotten.hidden(place, file.schema, file.dictionaries, rows)
    kept = rows if gone is None else rows[~gone]
    names = file.dictionaries.strings(TOPIC_DICTIONARY)
    shown = [
        not is_hidden(state.retention, names[tag], row.sealed_at_ms, evidence.time_ms)
        for tag in (kept["tag"] & np.uint32(TOPIC_MASK)).tolist()
    ]
    why = "forgotten" if gone is not None else "retention" if len(kept) else "pages"
    return {**said, "says_no": None if any(shown) else why, "matches": sum(shown)}


# -- checking ---------------------------------------------------------------------------------------


def _state_at(store: Store, node: str, number: int) -> ManifestState:
    """Return a node's state at a number. Raises CorruptFileError when the store has it no more."""
    paths = StorePaths(node)
    reader = ManifestReader(store, paths)
    try:
        commit = reader.read(number)
        if not isinstance(commit, Commit):
            raise CorruptFileError(
                paths.manifest(number), "was collected since: the proof is too old to be checked"
            )
        state = reader.checkpoint(commit.base) if commit.base else ManifestState(node=node)
        while state.number < number:
            state = reader.step(state)
    except NotFoundError as error:
        raise CorruptFileError(paths.manifest(number), "the store has no such manifest") from error
    if state.number != number:
        raise CorruptFileError(paths.manifest(number), "was collected since: make the proof again")
    return state


def _missed(store: Store, nodes: Mapping[str, int], time_ms: int) -> list[str]:
    """Return the nodes that the proof leaves out, and those that had a newer manifest when it was made."""
    problems = []
    for node in list_nodes(store):
        paths = StorePaths(node)
        number = nodes.get(node, 0)
        try:
            written_ms = store.head(paths.manifest(number + 1)).modified_ms
            # A collected number was overwritten since: it is older than its object.
            is_old = isinstance(ManifestReader(store, paths).read(number + 1), Tombstone)
        except NotFoundError:
            continue
        if is_old or written_ms < time_ms - _STORE_SECOND_MS:
            which = f"manifest {number + 1} of node {node}" if number else f"node {node}"
            problems.append(f"the proof leaves out {which}, which was there before it was made")
    return problems


def _differences(proof: dict[str, Any], again: dict[str, Any]) -> list[str]:
    """Return where a proof and the one made again differ, in words."""
    problems = []
    for part, name in (("nodes", "node"), ("files", "file_id")):
        found = {line[name]: line for line in again[part]}
        said = {line.get(name): line for line in proof[part]}
        problems += [f"{each}: the proof leaves it out" for each in found.keys() - said.keys()]
        problems += [f"{each}: no manifest lists it" for each in said.keys() - found.keys()]
        for each in found.keys() & said.keys():
            ours, theirs = found[each], said[each]
            fields = {f for f in ours.keys() | theirs.keys() if ours.get(f) != theirs.get(f)}
            if fields:
                problems.append(f"{each}: the store shows other {', '.join(sorted(fields))}")
    if not problems and {**again, "digest": None} != {**proof, "digest": None}:
        problems.append("the store shows another answer")
    return problems


def _sha256(data: Any) -> str:
    return "sha256:" + hashlib.sha256(data).hexdigest()


def _digest_of(content: Mapping[str, Any]) -> str:
    text = json.dumps(content, sort_keys=True, separators=(",", ":"))
    return _sha256(text.encode())
