"""A Kafka topic as a source: its partitions and offsets are ours.

The consumer is assigned partitions at our positions: it joins no group and commits nothing. Aborted
transactions are not read (``isolation.level=read_committed`` unless an option says otherwise), and the end
of a partition is the last stable offset: what lies behind is not decided yet. librdkafka tells the end of a
partition, so positions come to stand behind markers of transactions and what compaction left out.

`identity` is the cluster's and the topic's ID: a topic that was deleted and made again is another log.

Options are librdkafka's properties. Its log goes to ours.

Depends on errors, options, records, confluent_kafka and numpy.
"""

from __future__ import annotations

import logging
import re
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Final, NoReturn

import confluent_kafka as kafka
import numpy as np
from confluent_kafka.admin import AdminClient, OffsetSpec

from tierdex.errors import (
    InvalidRequestError,
    NotFoundError,
    PermissionDeniedError,
    UnavailableError,
)
from tierdex.following.records import Bounds, Parts, Record, RecordBatch

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tierdex.clock import Clock
    from tierdex.filesystem import FileSystem
    from tierdex.following.sources.options import Address

logger = logging.getLogger(__name__)

_SHAPE: Final = "kafka://HOST:PORT/TOPIC"
_PORT: Final = 9092
_TOPIC: Final = re.compile(r"[A-Za-z0-9._-]{1,249}")
_ASK_S = 5.0
_GATHER_S: Final = 0.02
_CONSUME_MAX: Final = (
    3_000  # messages at one time: 20,000 leave the CPU's cache, and cost a third more
)
_Code: Any = kafka.KafkaError
_Message: Any = kafka.Message  # its methods, called by map: half the time of a generator
_UNKNOWN: Final = (_Code.UNKNOWN_TOPIC_OR_PART, _Code._UNKNOWN_TOPIC, _Code._UNKNOWN_PARTITION)
_REFUSED: Final = (
    _Code.TOPIC_AUTHORIZATION_FAILED,
    _Code.CLUSTER_AUTHORIZATION_FAILED,
    _Code.SASL_AUTHENTICATION_FAILED,
    _Code._AUTHENTICATION,
)
_NOT_OURS: Final = _Code.GROUP_AUTHORIZATION_FAILED  # rights to a group: we need none
_OWN: Final = {
    "group.id": "tierdex-follow",  # librdkafka wants one, and looks for it; nothing is done with it
    "enable.auto.commit": "false",
    "enable.auto.offset.store": "false",
    "enable.partition.eof": "true",
    "auto.offset.reset": "error",  # what is gone is looked into, not jumped over
    "allow.auto.create.topics": "false",
}


class KafkaSource:
    """Follows one topic. See `Source`."""

    has_times = True
    is_dense = True

    def __init__(self, address: Address, filesystem: FileSystem, clock: Clock) -> None:
        """`address` is ``kafka://host:port,host:port/topic``; a login becomes SASL's."""
        servers = address.servers(_SHAPE, _PORT)
        if not _TOPIC.fullmatch(address.path):
            raise InvalidRequestError(f"is {_SHAPE}", field="source")
        self._address = address
        self._clock = clock
        self.topic = address.path
        self.name = address.shown
        self._last_error: Any = (
            None  # what the client said of its connections since the last question
        )
        login = {"sasl.username": address.user, "sasl.password": address.password}
        self._options = {
            "isolation.level": "read_committed",
            "log_level": "2",  # a server that is away is told once, by the follower
            "bootstrap.servers": ",".join(servers),
            **{name: value for name, value in login.items() if value},
            **address.options,
            **_OWN,
            "error_cb": self._note_error,
            "logger": logger,
        }
        self._consumer: Any = None
        self._fetcher: Any = None
        self._admin: Any = None
        self._wanted = Parts()
        self._told: Any = None  # an error that came with records, for the next read

    def identity(self) -> str:
        cluster = self._metadata().cluster_id
        return f"{cluster or ''}/{self._topic_id()}" if cluster else ""

    def partitions(self) -> Sequence[int]:
        found = self._metadata().topics.get(self.topic)
        if found is None:
            raise NotFoundError(f"{self.name}: there is no such topic")
        if found.error is not None:
            self._raise(found.error)
        return sorted(found.partitions)

    def name_of(self, partition: int) -> str:
        return f"{self.topic}[{partition}]"

    def place_of(self, partition: int, offset: int) -> str:
        return f"{self.name_of(partition)}, offset {offset}"

    def bounds(self, positions: Mapping[int, int | None]) -> Mapping[int, Bounds]:
        first = self._offsets(list(positions), OffsetSpec.earliest())
        end = self._offsets(list(positions), OffsetSpec.latest())
        return {each: Bounds(first[each], end[each]) for each in first if each in end}

    def open(self, positions: Mapping[int, int], wanted: Parts) -> None:
        self._wanted, self._told = wanted, None
        places = [kafka.TopicPartition(self.topic, each, at) for each, at in positions.items()]
        self._ask(self._reader().assign, places)

    def read(self, max_records: int, timeout_s: float) -> RecordBatch | None:
        consumer = self._reader()
        if self._told is not None:
            told, self._told = self._told, None
            self._raise(told)
        messages = self._ask(consumer.consume, 1, timeout_s)
        if messages:
            messages += self._ask(consumer.consume, min(max_records, _CONSUME_MAX), _GATHER_S)
        if not messages:
            return None
        positions: dict[int, int] = {}
        told = []
        if any(map(_Message.error, messages)):
            told = [message for message in messages if message.error() is not None]
            messages = [message for message in messages if message.error() is None]
        batch = self._batch(messages, positions)
        for message in told:  # behind the records: the end is behind them
            if message.error().code() == _Code._PARTITION_EOF:
                partition = message.partition()
                positions[partition] = max(positions.get(partition, 0), message.offset())
            elif message.error().code() != _NOT_OURS:
                self._told = message.error()  # behind what came before it
        return batch

    def fetch(self, partition: int, offset: int) -> Record | None:
        if offset < 0 or partition not in self.partitions():
            return None
        if self._fetcher is None:
            small = {"queued.min.messages": "1", "fetch.wait.max.ms": "10"}
            self._fetcher = self._make(kafka.Consumer, {**self._options, **small})
        self._ask(self._fetcher.assign, [kafka.TopicPartition(self.topic, partition, offset)])
        give_up = self._clock.monotonic() + _ASK_S
        while self._clock.monotonic() < give_up:
            message = self._ask(self._fetcher.poll, 0.5)
            if message is None:
                continue
            error = message.error()
            if error is None:
                return _record(message) if message.offset() == offset else None
            if error.code() in (_Code._PARTITION_EOF, _Code._AUTO_OFFSET_RESET):
                return None
            if error.code() != _NOT_OURS:
                self._raise(error)
        raise UnavailableError(f"{self.name}: no answer for {_ASK_S:.0f} s")

    def close(self) -> None:
        for consumer in (self._consumer, self._fetcher):
            if consumer is not None:
                consumer.close()
        self._consumer = self._fetcher = self._admin = None

    # -- the client ----------------------------------------------------------------------------------

    def _batch(self, messages: list[Any], positions: dict[int, int]) -> RecordBatch:
        count = len(messages)
        partitions = np.fromiter(map(_Message.partition, messages), np.int32, count)
        offsets = np.fromiter(map(_Message.offset, messages), np.int64, count)
        ends = np.flatnonzero(np.append(partitions[1:] != partitions[:-1], count > 0))  # of runs
        behind = (offsets[ends] + 1).tolist()
        positions.update(zip(partitions[ends].tolist(), behind, strict=True))
        wanted = self._wanted
        return RecordBatch(
            partitions,
            offsets,
            np.fromiter(map(len, messages), np.uint32, count),
            np.fromiter(map(itemgetter(1), map(_Message.timestamp, messages)), np.int64, count),
            positions,
            list(map(_Message.key, messages)) if wanted.key else None,
            list(map(_Message.value, messages)) if wanted.value else None,
            [_headers(each) for each in messages] if wanted.headers else None,
        )

    def _reader(self) -> Any:
        if self._consumer is None:
            self._consumer = self._make(kafka.Consumer, self._options)
        return self._consumer

    def _metadata(self) -> Any:
        """Return what the cluster says of the topic. After an error `open` must be called again."""
        self._last_error = None
        try:
            return self._reader().list_topics(self.topic, timeout=_ASK_S)
        except kafka.KafkaException as error:
            self._reader().poll(0)  # calls `_note_error`, which may know more; it may take a record
            self._raise(self._last_error or error.args[0])

    def _offsets(self, partitions: Sequence[int], which: Any) -> dict[int, int]:
        if not partitions:
            return {}
        if self._admin is None:
            self._admin = self._make(AdminClient, self._options)
        level = self._options["isolation.level"]
        isolation = kafka.IsolationLevel[str(level).upper()]
        asked = self._ask(
            self._admin.list_offsets,
            {kafka.TopicPartition(self.topic, each): which for each in partitions},
            isolation_level=isolation,
            request_timeout=_ASK_S,
        )
        found = {}
        for place, future in asked.items():
            try:
                found[place.partition] = self._ask(future.result).offset
            except NotFoundError:
                continue
        return found

    def _topic_id(self) -> str:
        if self._admin is None:
            self._admin = self._make(AdminClient, self._options)
        try:
            asked = self._admin.describe_topics(
                kafka.TopicCollection([self.topic]), request_timeout=_ASK_S
            )
            return str(self._ask(asked[self.topic].result).topic_id)
        except (UnavailableError, NotFoundError, PermissionDeniedError, kafka.KafkaException):
            return ""

    def _make(self, kind: Any, options: Mapping[str, Any]) -> Any:
        try:
            return kind(dict(options))
        except (kafka.KafkaException, TypeError, ValueError) as error:
            said = self._address.without_secrets(str(error))
            raise InvalidRequestError(f"librdkafka refuses: {said}", field="source") from None

    def _ask(self, call: Any, *arguments: Any, **named: Any) -> Any:
        """Call the client; its errors become ours."""
        self._last_error = None
        try:
            return call(*arguments, **named)
        except kafka.KafkaException as error:
            self._raise(self._last_error or error.args[0])

    def _note_error(self, error: Any) -> None:
        if error.code() != _NOT_OURS and (self._last_error is None or error.code() in _REFUSED):
            self._last_error = error

    def _raise(self, error: Any) -> NoReturn:
        code = error.code()
        said = f"{self.name}: {self._address.without_secrets(error.str())}"
        if code in _UNKNOWN:
            raise NotFoundError(said) from None
        if code in _REFUSED:
            raise PermissionDeniedError(said) from None
        raise UnavailableError(said) from None


def _headers(message: Any) -> list[tuple[str, bytes]] | None:
    headers = message.headers()
    return [(name, value or b"") for name, value in headers] if headers else None


def _record(message: Any) -> Record:
    return Record(
        message.partition(),
        message.offset(),
        message.timestamp()[1],
        message.key(),
        message.value(),
        _headers(message) or (),
    )
