"""The request to a peer and its answer: two Arrow tables, each with a JSON text in its metadata.

::

    question   {version, crc, node, epoch, owner, number, limit}   a row a lookup: hash, kind, topic, times
    answer     {version, crc, node, epoch, owner, number, files, missing, refresh_to}
               a row an entry: file, lookup, place, and the item's fields; newest first in file and lookup

A question is for one owner of one node, as the manifest named it at `number`. The answer says who gave
it, and is complete for what the manifest does not list at that number, unless it says `refresh_to`: then
files were listed since, and may be in neither. `crc` is of the rows and the rest of the JSON text. Whatever
does not fit is refused: another version, another owner, a damaged byte, a row that was not asked for.

Depends on requests, indexfile, lifecycle, fileparts, errors, numpy, orjson and pyarrow.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import orjson
import pyarrow as pa

from tierdex.errors import InvalidRequestError
from tierdex.fileparts.checksums import checksum
from tierdex.index_service.requests.lookups import NO_TOPIC, Lookups
from tierdex.indexfile.layout import KIND_KEY, KIND_MESSAGE_ID
from tierdex.lifecycle.paths import NUMBER_LIMIT

VERSION: Final = 1
_KEY: Final = b"tierdex-peer"
_QUESTION: Final = pa.schema(
    [("hash", pa.uint64()), ("kind", pa.uint8()), ("topic", pa.string()), ("begin", pa.int64()),
     ("end", pa.int64())]
)  # fmt: skip
_ROW: Final = pa.schema(
    [("file", pa.int32()), ("lookup", pa.int32()), ("place", pa.int64()), ("topic", pa.string()),
     ("queue_id", pa.int32()), ("offset", pa.int64()), ("size", pa.uint32()), ("timestamp", pa.int64())]
)  # fmt: skip


class PeerRefusedError(InvalidRequestError):
    """A message of a peer that is not what was agreed on: nothing of it is used."""


@dataclass(frozen=True, slots=True)
class Owner:
    """Who is asked, or answers: the owner that a node's manifest named at `number`."""

    node: str
    epoch: int
    owner: str  # hex
    number: int


@dataclass(frozen=True, slots=True)
class Question:
    """Lookups for one owner; each file answers at most `limit` rows of each."""

    asked: Owner
    limit: int
    lookups: Lookups


@dataclass(frozen=True, slots=True)
class PeerFile:
    """One file that is not published, and the rows in it. `lookups` i8, `places` i8, one a row."""

    number: int
    uuid: bytes
    state: str
    min_time: int
    max_time: int
    lookups: np.ndarray
    places: np.ndarray
    topics: list[str]
    columns: dict[str, np.ndarray]  # queue_id, offset, size, timestamp
    cut: frozenset[int] = frozenset()  # lookups that have more rows than these


@dataclass(frozen=True, slots=True)
class PeerAnswer:
    """What one owner holds and has not published, or `refresh_to`: read the manifest so far first."""

    given_by: Owner
    files: list[PeerFile] = field(default_factory=list)
    missing: list[tuple[str, str]] = field(default_factory=list)
    refresh_to: int | None = None


def encode_question(question: Question) -> bytes:
    """Return the question as an Arrow stream."""
    lookups = question.lookups
    names = [None if n == NO_TOPIC else lookups.topics[n] for n in lookups.topic_index.tolist()]
    columns = [lookups.hashes, lookups.kinds, names, lookups.begin, lookups.end]
    arrays = [pa.array(c, f.type) for c, f in zip(columns, _QUESTION, strict=True)]
    return _write(
        pa.Table.from_arrays(arrays, schema=_QUESTION),
        {**_owner(question.asked), "limit": question.limit},
    )


def decode_question(table: Any) -> Question:
    """Return the question in a table that was read. Raises InvalidRequestError naming the field."""
    said = _said(table, _QUESTION)
    limit = said.get("limit")
    if type(limit) is not int or not 0 < limit <= 10_000:
        raise PeerRefusedError("a number of 1 to 10000", field="limit")
    names = table.column("topic").to_pylist()
    kinds = _numbers(table, "kind", np.uint8)
    if not np.isin(kinds, (KIND_KEY, KIND_MESSAGE_ID)).all():
        raise PeerRefusedError("a key or a message ID", field="kind")
    if any(
        name is None for name, kind in zip(names, kinds.tolist(), strict=True) if kind == KIND_KEY
    ):
        raise PeerRefusedError("a key has a topic", field="topic")
    topics = list(dict.fromkeys(name for name in names if name is not None))
    index = {None: NO_TOPIC, **{name: number for number, name in enumerate(topics)}}
    count = table.num_rows
    lookups = Lookups(
        _numbers(table, "hash", np.uint64),
        kinds,
        topics,
        np.array([index[name] for name in names], np.int32),
        _numbers(table, "begin", np.int64),
        _numbers(table, "end", np.int64),
        np.full(count, limit, np.int64),
        _no_text,
    )
    return Question(_owner_of(said), limit, lookups)


def encode_answer(answer: PeerAnswer) -> bytes:
    """Return the answer as an Arrow stream."""
    columns: dict[str, list[Any]] = {name: [] for name in _ROW.names}
    for number, file in enumerate(answer.files):
        columns["file"].append(np.full(len(file.lookups), number, np.int32))
        columns["lookup"].append(file.lookups)
        columns["place"].append(file.places)
        columns["topic"].append(np.array(file.topics, object))
        for name, values in file.columns.items():
            columns[name].append(values)
    arrays = [
        pa.array(np.concatenate(columns[f.name]) if answer.files else [], f.type) for f in _ROW
    ]
    files = [
        [f.number, f.uuid.hex(), f.state, f.min_time, f.max_time, sorted(f.cut)]
        for f in answer.files
    ]
    said = {**_owner(answer.given_by), "files": files, "missing": answer.missing}
    return _write(
        pa.Table.from_arrays(arrays, schema=_ROW), {**said, "refresh_to": answer.refresh_to}
    )


def decode_answer(data: bytes, question: Question) -> PeerAnswer:
    """Return what a peer answered to `question`. Raises PeerRefusedError."""
    try:
        with pa.ipc.open_stream(pa.py_buffer(data)) as reader:
            table = reader.read_all()
        table.validate(full=True)
        said = _said(table, _ROW)
        given_by, refresh_to = _owner_of(said), said.get("refresh_to")
        if (given_by.node, given_by.epoch, given_by.owner) != (
            question.asked.node, question.asked.epoch, question.asked.owner,
        ):  # fmt: skip
            raise PeerRefusedError("the answer is of another owner", field="node")
        if refresh_to is not None:
            if type(refresh_to) is not int or refresh_to <= question.asked.number:
                raise PeerRefusedError("not above what is known", field="refresh_to")
            return PeerAnswer(given_by, refresh_to=refresh_to)
        missing = [(str(file), str(reason)) for file, reason in said["missing"]]
        return PeerAnswer(given_by, _files_of(table, said["files"], question), missing)
    except PeerRefusedError:
        raise
    except (pa.ArrowException, KeyError, TypeError, ValueError, OSError, IndexError) as error:
        raise PeerRefusedError(f"is not an answer of a peer: {error}", field="answer") from error


def _files_of(table: Any, listed: list[Any], question: Question) -> list[PeerFile]:
    count = question.lookups.count
    file, lookup = _numbers(table, "file", np.int64), _numbers(table, "lookup", np.int64)
    order = file * max(1, count) + lookup
    if len(file) and (
        file.min() < 0 or file.max() >= len(listed) or lookup.min() < 0 or lookup.max() >= count
        or (np.diff(order) < 0).any()
    ):  # fmt: skip
        raise PeerRefusedError("rows of no file or lookup, or in no order", field="answer")
    topics = table.column("topic").to_pylist()
    asked = question.lookups.topic_index[lookup]
    names = [*question.lookups.topics, None]
    if any(names[n] not in (None, topic) for n, topic in zip(asked.tolist(), topics, strict=True)):
        raise PeerRefusedError("entries of other topics", field="answer")
    columns = {
        name: _numbers(table, name, _ROW.field(name).type.to_pandas_dtype())
        for name in ("queue_id", "offset", "size", "timestamp")
    }
    times, lookups = columns["timestamp"], question.lookups
    if ((times < lookups.begin[lookup]) | (times > lookups.end[lookup])).any():
        raise PeerRefusedError("entries of other times", field="answer")
    places = _numbers(table, "place", np.int64)
    bounds = np.searchsorted(file, np.arange(len(listed) + 1)).tolist()
    files = []
    for position, (number, uuid, state, least, most, cut) in enumerate(listed):
        part = slice(bounds[position], bounds[position + 1])
        if not 0 < int(number) < NUMBER_LIMIT or len(bytes.fromhex(uuid)) != 16:
            raise PeerRefusedError("no file", field="files")
        files.append(
            PeerFile(
                int(number), bytes.fromhex(uuid), str(state), int(least), int(most), lookup[part],
                places[part], topics[part], {n: c[part] for n, c in columns.items()}, frozenset(cut),
            )
        )  # fmt: skip
    return files


def _owner(owner: Owner) -> dict[str, Any]:
    return {"node": owner.node, "epoch": owner.epoch, "owner": owner.owner, "number": owner.number}


def _owner_of(said: dict[str, Any]) -> Owner:
    node, epoch, owner, number = (said.get(name) for name in ("node", "epoch", "owner", "number"))
    if not (isinstance(node, str) and isinstance(owner, str)):
        raise PeerRefusedError("names no owner", field="node")
    if type(epoch) is not int or type(number) is not int:
        raise PeerRefusedError("names no numbers", field="number")
    return Owner(node, epoch, owner, number)


def _said(table: Any, schema: Any) -> dict[str, Any]:
    """Return the JSON of a message whose columns are those of `schema`. Raises PeerRefusedError."""
    if not table.schema.equals(schema, check_metadata=False):
        raise PeerRefusedError(f"the columns are not {', '.join(schema.names)}", field="columns")
    try:
        said = orjson.loads((table.schema.metadata or {}).get(_KEY, b"null"))
    except orjson.JSONDecodeError as error:
        raise PeerRefusedError(f"not JSON: {error}", field="metadata") from error
    if not isinstance(said, dict) or said.get("version") != VERSION:
        raise PeerRefusedError(f"not version {VERSION} of these messages", field="version")
    if any(
        column.null_count
        for name, column in zip(table.column_names, table.columns, strict=True)
        if name != "topic"
    ):
        raise PeerRefusedError("nulls", field="columns")
    if said.pop("crc", None) != _checksum(table, said):
        raise PeerRefusedError("was damaged in transit", field="crc")
    return said


def _checksum(table: Any, said: dict[str, Any]) -> int:
    """Return the CRC32C of all that a message says, whatever the layout of its batches."""
    crc = checksum(orjson.dumps(said, option=orjson.OPT_SORT_KEYS), 0)
    for column in table.columns:
        if pa.types.is_string(column.type):
            data = orjson.dumps(column.to_pylist())
        else:
            data = np.ascontiguousarray(column.to_numpy()).tobytes()
        crc = checksum(data, crc)
    return crc


def _numbers(table: Any, name: str, dtype: Any) -> np.ndarray:
    return np.ascontiguousarray(table.column(name).to_numpy(), dtype)


def _no_text(number: int) -> str:
    raise AssertionError(f"a peer knows the hash of lookup {number} only")


def _write(table: Any, said: dict[str, Any]) -> bytes:
    said = orjson.loads(orjson.dumps({"version": VERSION, **said}))
    said["crc"] = _checksum(table, said)
    told = table.replace_schema_metadata({_KEY: orjson.dumps(said)})
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, told.schema) as writer:
        writer.write_table(told)
    return bytes(sink.getvalue())
