"""Redis Streams as a source: each stream is a partition, in the order in which the address names them.

An entry's ID, ``1700000000000-5``, becomes an offset: its milliseconds in the upper 42 bits, its sequence
number in the lower 21, so that offsets rise as IDs do (until the year 2109, 2,097,152 entries a
millisecond). An entry whose ID does not fit has no place in an index, and is counted.

An entry is a list of fields, of which several may have one name. With the option `value` one of its fields
is the record's value (the first of that name), else all of them as one JSON object; the other fields are
headers. Its time is its ID's.

A stream does not tell what was trimmed. While the last entry that we read, or the one that is next, is
still there, nothing behind it is lost; else the first entry that is left is where reading goes on, and one
gap is counted.

Depends on errors, options, records, numpy, orjson and redis.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np
import orjson
import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from tierdex.errors import (
    InvalidRequestError,
    NotFoundError,
    PermissionDeniedError,
    UnavailableError,
)
from tierdex.following.records import Bounds, Record, RecordBatch

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tierdex.clock import Clock
    from tierdex.filesystem import FileSystem
    from tierdex.following.records import Headers, Parts
    from tierdex.following.sources.options import Address

_SHAPE: Final = "redis://HOST:PORT/DB/STREAM"
_PORT: Final = 6379
_SEQUENCE_BITS: Final = 21
_SEQUENCE_MAX: Final = (1 << _SEQUENCE_BITS) - 1
_TIME_MAX: Final = (1 << 42) - 1
_BEYOND: Final = (1 << 63) - 1  # the position behind every ID that fits
_READ_MAX: Final = 5_000
_TIMEOUT_S: Final = 10.0


class RedisSource:
    """Follows one stream or several. See `Source`."""

    has_times = True
    is_dense = False

    def __init__(self, address: Address, filesystem: FileSystem, clock: Clock) -> None:
        """`address` is ``redis://host:port/DB/STREAM,STREAM`` (`rediss` for TLS); options: `value`."""
        database, _, names = address.path.partition("/")
        (host, _, port), *others = [each.rpartition(":") for each in address.servers(_SHAPE, _PORT)]
        if others or not database.isdecimal() or not names:
            raise InvalidRequestError(f"is {_SHAPE}", field="source")
        self._address = address
        self._streams = [name.encode() for name in names.split(",")]
        self.topic = names.partition(",")[0]
        self.name = address.shown
        value = address.take("value")
        self._value = value.encode() or None
        address.refuse_rest()
        self._client: Any = redis.Redis(
            host.strip("[]"), int(port), int(database),
            username=address.user, password=address.password, ssl=address.kind == "rediss",
            socket_connect_timeout=_TIMEOUT_S, socket_timeout=_TIMEOUT_S, protocol=2,
            retry=Retry(NoBackoff(), 0),  # the caller says it, waits and asks again
        )  # fmt: skip
        self._positions: dict[int, int] = {}
        self._ends: dict[int, int] = {}  # as of the last look

    def identity(self) -> str:
        return ""

    def partitions(self) -> Sequence[int]:
        there = [n for n, key in enumerate(self._streams) if self._ask("XLEN", key) is not None]
        found = [n for n in there if self._ask("EXISTS", self._streams[n])]
        if not found:
            raise NotFoundError(f"{self.name}: there is no such stream")
        return found

    def name_of(self, partition: int) -> str:
        if 0 <= partition < len(self._streams):
            return self._streams[partition].decode(errors="replace")
        return str(partition)

    def place_of(self, partition: int, offset: int) -> str:
        return f"{self.name_of(partition)}, entry {_id_of(offset).decode()}"

    def bounds(self, positions: Mapping[int, int | None]) -> Mapping[int, Bounds]:
        found = {}
        for partition, position in positions.items():
            if not 0 <= partition < len(self._streams):
                continue
            key = self._streams[partition]
            try:
                told = self._ask("XINFO", "STREAM", key)
            except NotFoundError:
                continue
            said = dict(zip(told[::2], told[1::2], strict=True))
            end = _behind(said[b"last-generated-id"])
            found[partition] = Bounds(self._first(key, position), end)
            self._ends[partition] = end
        return found

    def open(self, positions: Mapping[int, int], wanted: Parts) -> None:
        self._positions = dict(positions)

    def read(self, max_records: int, timeout_s: float) -> RecordBatch | None:
        order = [each for each, position in self._positions.items() if position < _BEYOND]
        keys = [self._streams[partition] for partition in order]
        after = [_id_before(self._positions[partition]) for partition in order]
        if not keys:
            return None
        answer = self._ask(
            "XREAD", "COUNT", min(max_records, _READ_MAX), "BLOCK", max(1, int(timeout_s * 1000)),
            "STREAMS", *keys, *after,
        )  # fmt: skip
        if not answer:
            return self._behind_deleted(order)
        partition_of = dict(zip(keys, order, strict=True))
        columns = _Columns(self._value)
        for key, entries in answer:
            columns.add(partition_of[key], entries)
        batch = columns.batch()
        self._positions.update(batch.positions)
        return batch

    def _behind_deleted(self, order: Sequence[int]) -> RecordBatch | None:
        """Pass what was deleted: nothing came, so nothing is left below the ends that were seen before."""
        moved = {p: end for p in order if (end := self._ends.get(p, 0)) > self._positions[p]}
        self._positions.update(moved)
        return RecordBatch.without_records(moved) if moved else None

    def fetch(self, partition: int, offset: int) -> Record | None:
        if not 0 <= partition < len(self._streams) or offset < 0:
            return None
        at = _id_of(offset)
        entries = self._ask("XRANGE", self._streams[partition], at, at)
        if not entries:
            return None
        value, headers = _split(entries[0][1], self._value)
        return Record(partition, offset, offset >> _SEQUENCE_BITS, None, value, headers)

    def close(self) -> None:
        self._client.close()

    def _first(self, key: bytes, position: int | None) -> int:
        """Return 0 where nothing behind a position is known to be lost, else the first entry's offset."""
        if not position:
            return 0
        if self._ask("XRANGE", key, _id_of(position - 1), _id_of(position), "COUNT", 1):
            return 0
        left = self._ask("XRANGE", key, "-", "+", "COUNT", 1)
        first = _offset_of(left[0][0]) if left else None
        return first if first is not None and first > position else 0

    def _ask(self, *command: Any) -> Any:
        try:
            # Unparsed: the client's own parsing makes a dictionary of each entry.
            connection = self._client.connection_pool.get_connection()
            try:
                connection.send_command(*command)
                return connection.read_response()
            finally:
                self._client.connection_pool.release(connection)
        except (redis.AuthenticationError, redis.exceptions.NoPermissionError) as error:
            raise PermissionDeniedError(self._said(error)) from None
        except redis.ResponseError as error:
            said = str(error)
            if "no such key" in said:
                raise NotFoundError(self._said(error)) from None
            if said.startswith("WRONGTYPE"):
                raise InvalidRequestError(self._said(error), field="source") from None
            raise UnavailableError(self._said(error)) from None
        except (redis.RedisError, OSError) as error:
            raise UnavailableError(self._said(error)) from None

    def _said(self, error: Exception) -> str:
        return f"{self.name}: {self._address.without_secrets(str(error))}"


class _Columns:
    """The columns of one answer of XREAD."""

    def __init__(self, value_field: bytes | None) -> None:
        self._value_field = value_field
        self._partitions: list[int] = []
        self._offsets: list[int] = []
        self._values: list[bytes | None] = []
        self._headers: list[Headers | None] = []
        self._positions: dict[int, int] = {}
        self._passed_over = 0

    def add(self, partition: int, entries: Sequence[Any]) -> None:
        for identifier, fields in entries:
            offset = _offset_of(identifier)
            self._positions[partition] = _behind(identifier)
            if offset is None:
                self._passed_over += 1
                continue
            value, headers = _split(fields or (), self._value_field)
            self._partitions.append(partition)
            self._offsets.append(offset)
            self._values.append(value)
            self._headers.append(headers)

    def batch(self) -> RecordBatch:
        offsets = np.array(self._offsets, np.int64)
        sizes = np.fromiter((len(value or b"") for value in self._values), np.uint32, len(offsets))
        return RecordBatch(
            np.array(self._partitions, np.int32), offsets, sizes, offsets >> _SEQUENCE_BITS,
            self._positions, [None] * len(offsets), self._values, self._headers, self._passed_over,
        )  # fmt: skip


def _offset_of(identifier: bytes) -> int | None:
    """Return an ID as an offset; None when it does not fit."""
    time, _, sequence = identifier.partition(b"-")
    milliseconds, number = int(time), int(sequence)
    if milliseconds > _TIME_MAX or number > _SEQUENCE_MAX:
        return None
    return milliseconds << _SEQUENCE_BITS | number


def _behind(identifier: bytes) -> int:
    """Return the position behind an ID; where it does not fit, behind all that might fit before it."""
    milliseconds, number = map(int, identifier.split(b"-"))
    if milliseconds > _TIME_MAX:
        return _BEYOND
    return min(_BEYOND, (milliseconds << _SEQUENCE_BITS) + min(number, _SEQUENCE_MAX) + 1)


def _id_of(offset: int) -> bytes:
    return b"%d-%d" % (offset >> _SEQUENCE_BITS, offset & _SEQUENCE_MAX)


def _id_before(position: int) -> bytes:
    """Return the ID that XREAD reads behind of, to begin at a position."""
    if position <= 0:
        return b"0-0"
    if position & _SEQUENCE_MAX:
        return _id_of(position - 1)
    return b"%d-%d" % ((position >> _SEQUENCE_BITS) - 1, (1 << 64) - 1)


def _split(fields: Sequence[bytes], value_field: bytes | None) -> tuple[bytes | None, Headers]:
    """Return an entry's value and headers: [(name, bytes)]."""
    pairs = list(zip(fields[::2], fields[1::2], strict=True))
    value = None
    if value_field is not None:
        at = next((n for n, (name, _) in enumerate(pairs) if name == value_field), None)
        value = None if at is None else pairs.pop(at)[1]
    headers = [(name.decode(errors="backslashreplace"), data) for name, data in pairs]
    return (_object(headers) if value_field is None else value), headers


def _object(fields: Headers) -> bytes:
    """Return fields as a JSON object; of one name each of them, in their order."""
    texts = {name: data.decode(errors="backslashreplace") for name, data in fields}
    if len(texts) == len(fields):
        return orjson.dumps(texts)
    pairs = [
        orjson.dumps(name) + b":" + orjson.dumps(data.decode(errors="backslashreplace"))
        for name, data in fields
    ]
    return b"{" + b",".join(pairs) + b"}"
