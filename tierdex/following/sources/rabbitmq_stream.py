"""Streams of RabbitMQ as a source: each is a partition, in the order in which the address names them.

Offsets are the stream's own. The broker keeps notes of its own among them, so they may have holes. A message
has the time at which its chunk was written, the same for all in it.

Depends on errors, options, rabbitmq_client, rabbitmq_message, records and numpy.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np

from tierdex.errors import InvalidRequestError, NotFoundError, UnavailableError
from tierdex.following.records import Bounds, Record, RecordBatch
from tierdex.following.sources.rabbitmq_client import FIRST, LAST, SUBSCRIPTIONS, Brokers, behind
from tierdex.following.sources.rabbitmq_message import part

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tierdex.clock import Clock
    from tierdex.filesystem import FileSystem
    from tierdex.following.records import Headers, Parts
    from tierdex.following.sources.options import Address

_SHAPE: Final = "rabbitmq://HOST:PORT/STREAM"
_PORTS: Final = {"rabbitmq": 5552, "rabbitmqs": 5551}
_COMMITTING_S: Final = 5.0  # for what is written, and not yet on enough brokers
_MORE_S: Final = 0.005  # between chunks of one batch


class RabbitStreamSource:
    """Follows one stream or several. See `Source`."""

    has_times = True
    is_dense = True

    def __init__(self, address: Address, filesystem: FileSystem, clock: Clock) -> None:
        """`address` is ``rabbitmq://host:port/STREAM,STREAM`` (`rabbitmqs` for TLS).

        Options: `vhost`, `ca_file`.
        """
        servers = address.servers(_SHAPE, _PORTS[address.kind])
        self._streams = address.path.split(",")
        if not all(self._streams) or len(self._streams) > SUBSCRIPTIONS:
            raise InvalidRequestError(f"is {_SHAPE}", field="source")
        self.topic = self._streams[0]
        self.name = address.shown
        vhost, trusted = address.take("vhost", "/"), address.take("ca_file")
        address.refuse_rest()
        self._brokers = Brokers(
            address, servers, vhost, trusted if address.kind == "rabbitmqs" else None
        )
        self._positions: dict[int, int] = {}
        self._wants_headers = True

    def identity(self) -> str:
        return ""

    def partitions(self) -> Sequence[int]:
        found = [number for number, stream in enumerate(self._streams) if self._is_there(stream)]
        if not found:
            raise NotFoundError(f"{self.name}: there is no such stream")
        return found

    def name_of(self, partition: int) -> str:
        return self._streams[partition] if self._has(partition) else str(partition)

    def place_of(self, partition: int, offset: int) -> str:
        return f"{self.name_of(partition)}, offset {offset}"

    def bounds(self, positions: Mapping[int, int | None]) -> Mapping[int, Bounds]:
        found = {}
        for partition, position in positions.items():
            if self._has(partition) and self._is_there(self._streams[partition]):
                found[partition] = self._bounds_of(self._streams[partition], position)
        return found

    def open(self, positions: Mapping[int, int], wanted: Parts) -> None:
        self._brokers.drop()
        self._positions, self._wants_headers = dict(positions), wanted.headers
        begins = {p: (self._streams[p], position) for p, position in positions.items()}
        self._brokers.ask(self._brokers.subscribe(begins))

    def read(self, max_records: int, timeout_s: float) -> RecordBatch | None:
        if not self._positions:
            return None
        if not self._brokers.is_subscribed:
            raise UnavailableError(f"{self.name}: the connection ended")  # of another call
        columns = _Columns(self._positions, wants_headers=self._wants_headers)
        while len(columns) < max_records:
            patience_s = _MORE_S if len(columns) else timeout_s
            chunk = self._brokers.ask(self._brokers.take_chunk(patience_s))
            if chunk is None:
                break
            columns.add(chunk)
        return columns.batch()

    def fetch(self, partition: int, offset: int) -> Record | None:
        if not self._has(partition) or offset < 0:
            return None
        chunk = self._brokers.ask(self._brokers.one_chunk(self._streams[partition], behind(offset)))
        if chunk is None or not 0 <= offset - chunk.chunk_first_offset < chunk.num_records:
            return None
        try:
            message = bytes(chunk.get_messages()[offset - chunk.chunk_first_offset])
        except _UNPACKING as error:
            raise UnavailableError(f"{self.name}: {offset}: cannot be unpacked ({error})") from None
        return Record(partition, offset, chunk.timestamp, *part(message))

    def close(self) -> None:
        self._brokers.close()

    def _has(self, partition: int) -> bool:
        return 0 <= partition < len(self._streams)

    def _is_there(self, stream: str) -> bool:
        try:
            self._brokers.ask(self._brokers.leader_of(stream))
        except NotFoundError:
            return False
        return True

    def _bounds_of(self, stream: str, position: int | None) -> Bounds:
        """Return the offsets of the first chunk and behind the last.

        Nothing of a stream that has been read is not there for long: an end of 0 would begin it anew.
        """

        def chunk_at(where: Any, patience_s: float) -> Any:
            return self._brokers.ask(self._brokers.one_chunk(stream, where, patience_s))

        first = chunk_at(FIRST, _COMMITTING_S if position else 0)
        if first is None:
            return Bounds(0, 0)
        last = chunk_at(LAST, _COMMITTING_S)
        if last is None:
            raise UnavailableError(
                f"{self.name}: the last messages of {stream} are not yet committed"
            )
        return Bounds(first.chunk_first_offset, last.chunk_first_offset + last.num_records)


# What the client raises of a batch within a chunk that it cannot unpack.
_UNPACKING: Final = (ValueError, TypeError, IndexError, OSError, EOFError)


class _Columns:
    """The columns of some chunks."""

    def __init__(self, positions: dict[int, int], *, wants_headers: bool) -> None:
        self._wanted = positions  # and moved by what comes
        self._wants_headers = wants_headers
        self._partitions: list[np.ndarray] = []
        self._offsets: list[np.ndarray] = []
        self._timestamps: list[np.ndarray] = []
        self._keys: list[bytes | None] = []
        self._values: list[bytes | None] = []
        self._headers: list[Headers | None] = []
        self._moved: dict[int, int] = {}
        self._passed_over = 0

    def __len__(self) -> int:
        return len(self._values) + self._passed_over

    def add(self, chunk: Any) -> None:
        """Take a chunk, from the partition's position on: it may begin before."""
        partition, first = chunk.subscription_id, chunk.chunk_first_offset
        skipped = max(0, self._wanted[partition] - first)
        end = max(self._wanted[partition], first + chunk.num_records)
        self._wanted[partition] = self._moved[partition] = end
        try:
            messages = chunk.get_messages()[skipped:]
        except _UNPACKING:
            self._passed_over += max(0, chunk.num_records - skipped)
            return
        for message in messages:
            key, value, headers = part(bytes(message))
            self._keys.append(key)
            self._values.append(value)
            self._headers.append(headers if self._wants_headers else None)
        count = len(messages)
        self._partitions.append(np.full(count, partition, np.int32))
        self._offsets.append(np.arange(first + skipped, first + skipped + count))
        self._timestamps.append(np.full(count, chunk.timestamp))

    def batch(self) -> RecordBatch | None:
        if not self._moved:
            return None
        if not self._values:
            return RecordBatch.without_records(self._moved, self._passed_over)
        return RecordBatch(
            np.concatenate(self._partitions),
            np.concatenate(self._offsets),
            np.fromiter((len(value or b"") for value in self._values), np.uint32),
            np.concatenate(self._timestamps),
            self._moved,
            self._keys,
            self._values,
            self._headers,
            self._passed_over,
        )
