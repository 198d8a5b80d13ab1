"""A topic of RocketMQ as a source, read by queue and offset from its brokers.

A partition is a queue: its number in its broker, in the upper bits the broker's, 0 for the one that was seen
first. So the queues of the first broker keep their own numbers. Which broker has which number is remembered
with the positions.

A topic has no ID. What tells that another log stands under its name is the last record that was read: while
its offset is still there, it must lie at the same byte of the commit log, stored at the same time.

A broker that is away takes its queues along for as long: they hold what they held when they were last asked.

Depends on clock, errors, options, records, rocketmq_client, rocketmq_message and numpy.
"""

from __future__ import annotations

import logging
import re
from collections import defaultdict
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

from tierdex.clock import Bell
from tierdex.errors import InvalidRequestError, NotFoundError, UnavailableError
from tierdex.following.records import Bounds, Parts, Record, RecordBatch
from tierdex.following.sources.rocketmq_client import (
    FOUND,
    MAX_OFFSET,
    MIN_OFFSET,
    PULL,
    PULL_NOTHING,
    Cluster,
    Request,
)
from tierdex.following.sources.rocketmq_message import messages_in

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from tierdex.clock import Clock
    from tierdex.filesystem import FileSystem
    from tierdex.following.sources.options import Address
    from tierdex.following.sources.rocketmq_client import Answer
    from tierdex.following.sources.rocketmq_message import StoredMessage

logger = logging.getLogger(__name__)

_SHAPE: Final = "rocketmq://HOST:PORT/TOPIC, of a name server"
_PORT: Final = 9876
_TOPIC: Final = re.compile(r"[%|A-Za-z0-9_-]{1,127}")
_SYSTEM: Final = re.compile(
    r"%(RETRY|DLQ|LMQ|SYS)%|rmq_sys_|RMQ_SYS_|SCHEDULE_TOPIC_XXXX$|TBW102$|OFFSET_MOVED_EVENT$"
)
# What RocketMQ's own index has of a message.
USUAL_KEYS: Final = ("key[*]",)
USUAL_MESSAGE_ID: Final = "header:UNIQ_KEY"
QUEUE_BITS: Final = 16
_PULL_MOST: Final = 512  # a broker gives no more than its own bounds allow: 32 by default
_SUBSCRIPTION: Final = 4  # sysflag: the filter stands in the request
_POLL_S: Final = 0.1


class Mark(NamedTuple):
    """The last record that was read of a queue."""

    offset: int
    position: int
    stored: int


class RocketSource:
    """Follows one topic. See `Source` and `RememberingSource`."""

    has_times = True
    is_dense = True
    usual_keys = USUAL_KEYS
    usual_message_id = USUAL_MESSAGE_ID
    replaced = 0  # the identity says it
    skipped: Mapping[str, str] = {}

    def __init__(self, address: Address, filesystem: FileSystem, clock: Clock) -> None:
        """`address` is ``rocketmq://host:port,host:port/TOPIC`` of name servers (`rocketmqs` for TLS).

        A login is an access key and its secret. Options: `group`, `ca_file`, `security_token`,
        `system_topics` (true: a topic of retries, dead letters or the brokers' own may be followed).
        """
        servers = address.servers(_SHAPE, _PORT)
        if not _TOPIC.fullmatch(address.path):
            raise InvalidRequestError(f"is {_SHAPE}", field="source")
        if address.take("system_topics") != "true" and is_system_topic(address.path):
            raise InvalidRequestError(
                f"{address.path} holds messages that other topics have, or that brokers note for "
                "themselves: the option system_topics=true follows it",
                field="source",
            )
        self.topic = address.path
        self.name = address.shown
        self._clock = clock
        self._group = address.take("group", "tierdex-follow")
        self._cluster = Cluster(address, servers, address.path)
        address.refuse_rest()
        self._brokers: list[str] = []  # in the order of their numbers
        self._recalled = 0
        self._log = ""
        self._marks: dict[int, Mark] = {}  # as saved
        self._fresh: dict[int, Mark] = {}  # read since
        self._checked = -1
        self._held: dict[int, Bounds] = {}
        self._away: set[str] = set()
        self._positions: dict[int, int] = {}
        self._wanted = Parts()

    # -- which log this is -------------------------------------------------------------------------

    def identity(self) -> str:
        self._look()
        if self._checked != self._cluster.connects:
            for partition, mark in {**self._marks, **self._fresh}.items():
                self._check_mark(partition, mark)
            self._checked = self._cluster.connects
        self._log = self._log or f"{self._cluster.route.cluster}/{self.topic}"
        return self._log

    def recall(self, memory: Mapping[str, Any]) -> None:
        self._brokers = list(memory.get("brokers", ()))
        self._recalled = len(self._brokers)
        self._log = memory.get("log", "")
        self._marks = {int(p): Mark(*mark) for p, mark in memory.get("marks", {}).items()}

    def remembers(self, partition: int) -> bool:
        return partition >> QUEUE_BITS < self._recalled

    def memory(self, positions: Mapping[int, int]) -> dict[str, Any]:
        for partition, position in positions.items():
            mark = self._fresh.get(partition)
            if mark is not None and mark.offset < position:
                self._marks[partition] = mark
        marks = {str(partition): list(mark) for partition, mark in self._marks.items()}
        return {"brokers": self._brokers, "log": self._log, "marks": marks}

    def _check_mark(self, partition: int, mark: Mark) -> None:
        try:
            found = self._pulled(partition, mark.offset, 1)
        except UnavailableError:
            return  # looked at again when its broker is connected
        there = next((each for each in found if each.offset == mark.offset), None)
        if there is not None and (there.position, there.stored) != (mark.position, mark.stored):
            self._log = (
                f"{self._cluster.route.cluster}/{self.topic}, written anew by {there.stored}"
            )
            self._marks, self._fresh = {}, {}

    # -- what it holds -----------------------------------------------------------------------------

    def partitions(self) -> Sequence[int]:
        self._look()
        there = [
            number << QUEUE_BITS | queue
            for number, broker in enumerate(self._brokers)
            for queue in range(self._cluster.route.queues.get(broker, 0))
        ]
        return sorted({*there, *self._held, *self._marks})

    def name_of(self, partition: int) -> str:
        number, queue = _numbers(partition)
        broker = self._brokers[number] if number < len(self._brokers) else str(number)
        return f"{broker}[{queue}]"

    def place_of(self, partition: int, offset: int) -> str:
        return f"{self.name_of(partition)}, offset {offset}"

    def bounds(self, positions: Mapping[int, int | None]) -> Mapping[int, Bounds]:
        for broker, partitions in self._by_broker(positions).items():
            wanted = [
                Request(code, {"topic": self.topic, "queueId": _numbers(each)[1]})
                for each in partitions
                for code in (MIN_OFFSET, MAX_OFFSET)
            ]
            answers = self._ask(broker, wanted)
            if answers is None:
                self._stand_still(partitions, positions)
                continue
            told = [int(each.fields["offset"]) for each in answers]
            for each, first, end in zip(partitions, told[::2], told[1::2], strict=True):
                held = Bounds(max(0, first), max(0, end))
                if held.end < (positions[each] or 0) and not self._cluster.is_master(broker):
                    self._stand_still([each], positions)  # a copy that is behind has lost nothing
                else:
                    self._held[each] = held
        return {each: self._held[each] for each in positions if each in self._held}

    def _stand_still(self, partitions: Iterable[int], positions: Mapping[int, int | None]) -> None:
        for partition in partitions:
            position = positions[partition]
            if partition not in self._held and position is not None:
                self._held[partition] = Bounds(0, position)

    # -- reading -----------------------------------------------------------------------------------

    def open(self, positions: Mapping[int, int], wanted: Parts) -> None:
        self._positions, self._wanted = dict(positions), wanted

    def read(self, max_records: int, timeout_s: float) -> RecordBatch | None:
        give_up = self._clock.monotonic() + timeout_s
        columns = _Columns(self._wanted)
        while len(columns) < max_records:
            before = len(columns), dict(self._positions)
            for broker, partitions in self._by_broker(self._positions).items():
                wanted = [
                    self._pull(each, self._positions[each], _PULL_MOST) for each in partitions
                ]
                answers = self._ask(broker, wanted, (FOUND, *PULL_NOTHING)) or ()
                for partition, answer in zip(partitions, answers, strict=False):
                    self._take(partition, answer, columns)
            if (len(columns), self._positions) == before:
                if len(columns) or self._clock.monotonic() >= give_up:
                    break
                self._clock.wait(Bell(), _POLL_S)
        return columns.batch()

    def fetch(self, partition: int, offset: int) -> Record | None:
        if offset < 0:
            return None
        for broker in self._by_broker([partition]):  # none, or its own
            if broker not in self._cluster.route.queues:
                self._look()
            there = self._cluster.route.queues.get(broker)
            if there is not None and _numbers(partition)[1] >= there:
                return None
            return self._record_at(partition, offset)
        return None

    def _record_at(self, partition: int, offset: int) -> Record | None:
        for each in self._pulled(partition, offset, 1):
            if each.offset == offset:
                return Record(partition, offset, each.stored, each.key, each.value, each.headers)
        return None

    def close(self) -> None:
        self._cluster.close()

    def _take(self, partition: int, answer: Answer, columns: _Columns) -> None:
        position = self._positions[partition]
        if answer.code != FOUND:
            return  # outside of the queue: the next look says what was lost
        found = [each for each in self._messages(answer) if each.offset >= position]
        behind = max([int(answer.fields["nextBeginOffset"]), *(each.offset + 1 for each in found)])
        columns.add(partition, found, behind)
        self._positions[partition] = behind
        if found:
            last = found[-1]
            self._fresh[partition] = Mark(last.offset, last.position, last.stored)

    def _pull(self, partition: int, offset: int, most: int) -> Request:
        return Request(
            PULL,
            {
                "consumerGroup": self._group, "topic": self.topic, "queueId": _numbers(partition)[1],
                "queueOffset": offset, "maxMsgNums": most, "sysFlag": _SUBSCRIPTION,
                "commitOffset": 0, "suspendTimeoutMillis": 0, "subscription": "*", "subVersion": 0,
                "expressionType": "TAG",
            },
        )  # fmt: skip

    def _pulled(self, partition: int, offset: int, most: int) -> list[StoredMessage]:
        """Return what is found from an offset on, none where nothing is. Raises UnavailableError."""
        broker = self._brokers[_numbers(partition)[0]]
        wanted = [self._pull(partition, offset, most)]
        (answer,) = self._cluster.ask(broker, wanted, (FOUND, *PULL_NOTHING))
        return self._messages(answer) if answer.code == FOUND else []

    def _messages(self, answer: Answer) -> list[StoredMessage]:
        try:
            return list(messages_in(answer.body))
        except ValueError as error:
            raise UnavailableError(f"{self.name}: {error}") from error

    # -- brokers -----------------------------------------------------------------------------------

    def _look(self) -> None:
        """Ask for the route; give each broker that is new the next number."""
        try:
            route = self._cluster.look()
        except NotFoundError:
            if not self._brokers:
                raise
            raise UnavailableError(f"{self.name}: no broker has the topic now") from None
        if route.is_static:
            raise InvalidRequestError(
                f"{self.topic} is a static topic, whose queues move between brokers: not followed",
                field="source",
            )
        self._brokers += sorted(set(route.queues) - set(self._brokers))
        self._away -= set(route.queues)

    def _by_broker(self, partitions: Iterable[int]) -> Mapping[str, list[int]]:
        if not self._cluster.route.copies:
            self._look()
        found = defaultdict(list)
        for partition in partitions:
            number, _ = _numbers(partition)
            if 0 <= number < len(self._brokers):
                found[self._brokers[number]].append(partition)
        return found

    def _ask(
        self, broker: str, requests: Sequence[Request], codes: tuple[int, ...] = (FOUND,)
    ) -> list[Answer] | None:
        """Ask a broker; None while it is away and others are not. Raises UnavailableError."""
        if broker in self._away:
            return None
        try:
            return self._cluster.ask(broker, requests, codes)
        except UnavailableError as error:
            self._away.add(broker)
            if self._away >= set(self._brokers):
                self._away.clear()
                raise
            logger.warning("a broker is away", extra={"broker": broker, "error": str(error)})
            return None


class _Columns:
    """The columns of some pulls."""

    def __init__(self, wanted: Parts) -> None:
        self._wanted = wanted
        self._partitions: list[np.ndarray] = []
        self._messages: list[StoredMessage] = []
        self._moved: dict[int, int] = {}

    def __len__(self) -> int:
        return len(self._messages)

    def add(self, partition: int, messages: list[StoredMessage], behind: int) -> None:
        self._partitions.append(np.full(len(messages), partition, np.int32))
        self._messages += messages
        self._moved[partition] = behind

    def batch(self) -> RecordBatch | None:
        if not self._moved:
            return None
        if not self._messages:
            return RecordBatch.without_records(self._moved)
        return batch_of(np.concatenate(self._partitions), self._messages, self._moved, self._wanted)


def batch_of(
    partitions: np.ndarray,
    messages: Sequence[StoredMessage],
    positions: Mapping[int, int],
    wanted: Parts,
) -> RecordBatch:
    """Return messages as records; `partitions` int32, one a message."""
    count = len(messages)
    return RecordBatch(
        partitions,
        np.fromiter((each.offset for each in messages), np.int64, count),
        np.fromiter((len(each.value) for each in messages), np.uint32, count),
        np.fromiter((each.stored for each in messages), np.int64, count),
        positions,
        [each.key for each in messages] if wanted.key else None,
        [each.value for each in messages] if wanted.value else None,
        [each.headers for each in messages] if wanted.headers else None,
    )


def is_system_topic(topic: str) -> bool:
    """Return whether a topic holds what other topics have, or what brokers note for themselves."""
    return _SYSTEM.match(topic) is not None


def _numbers(partition: int) -> tuple[int, int]:
    """Return the number of a partition's broker, and that of the queue there."""
    return partition >> QUEUE_BITS, partition & (1 << QUEUE_BITS) - 1
