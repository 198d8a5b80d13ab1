"""The prober: puts canaries and looks them up, so that an operator finds a missed entry first.

A round::

    put a canary -> look it up at once, by key and by message ID
                 -> look remembered canaries up: the oldest, the newest in each state, some others
                 -> look a key up that was never put: it must not be found
                 -> every `publish_every_s`, publish the canary, looking it up on the way

A canary is an entry of topic `tierdex.probe`. Its location and time are made from its token, so
that a wrong answer differs from a right one. A file keeps the canaries between runs: a canary of
last week must still be found. Canaries older than `remember_s` are forgotten: keep that below
retention.

Depends on the ground. It knows no metrics.
"""

from __future__ import annotations

import threading
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from enum import StrEnum
from typing import TYPE_CHECKING, Any, NamedTuple

import orjson

from tierdex.clock import Bell
from tierdex.errors import (
    CorruptFileError,
    IncompleteAnswerError,
    PermissionDeniedError,
    TierdexError,
)
from tierdex.whole_file import read_file, replace_file

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tierdex.clock import Clock
    from tierdex.filesystem import FileSystem
    from tierdex.ids import IdSource
    from tierdex.index_service.answer import Answer

TOPIC = "tierdex.probe"
QUEUES = 4
NOT_STORED = "absent"  # the state of a key that was never put
_MOST_REMEMBERED = 512
_LOOK_INTERVAL_S = 0.01  # between two looks at a canary on its way to the store
_OTHERS = 4  # canaries looked up in a round beside the oldest and the newest of each state


class Outcome(StrEnum):
    """The outcome of a step, gravest first."""

    WRONG = "wrong"  # an entry that was never put, or not as it was put
    MISSED = "missed"  # a complete answer without the canary
    INCOMPLETE = "incomplete"  # not every file could be asked
    FAILED = "failed"  # no answer at all
    OK = "ok"


class Step(NamedTuple):
    """One step of a round: `verb` is put, lookup or publish; `state` is that of the file, where known."""

    verb: str
    state: str
    outcome: Outcome
    seconds: float
    detail: str = ""


@dataclass(frozen=True, slots=True)
class Canary:
    """One entry as it was put. `put_ms`, `timestamp`: epoch ms; `state`: where it was last found."""

    token: str
    queue_id: int
    offset: int
    size: int
    timestamp: int
    put_ms: int
    state: str = "unsealed"

    @property
    def key(self) -> str:
        return f"canary-{self.token}"

    @property
    def message_id(self) -> str:
        return f"canary-id-{self.token}"


class Memory:
    """The canaries that were put, oldest first, in one file. For one process at a time."""

    def __init__(self, filesystem: FileSystem, path: Path) -> None:
        """Read the file, when it is there. Raises CorruptFileError."""
        self._filesystem = filesystem
        self._path = path
        self.canaries: list[Canary] = self._read() if filesystem.exists(path) else []

    def keep(self, canaries: list[Canary]) -> None:
        """Replace the file, durably. Above a limit, every second one of the older half is dropped."""
        while len(canaries) > _MOST_REMEMBERED:
            half = len(canaries) // 2
            canaries = canaries[0:half:2] + canaries[half:]
        self.canaries = canaries
        text = orjson.dumps({"canaries": [asdict(canary) for canary in canaries]})
        replace_file(self._filesystem, self._path, text)

    def _read(self) -> list[Canary]:
        text = read_file(self._filesystem, self._path)
        try:
            return [Canary(**row) for row in orjson.loads(text)["canaries"]]
        except (ValueError, KeyError, TypeError) as error:
            raise CorruptFileError(self._path, f"not a file of canaries: {error}") from error


class Prober:
    """Probes one index. For one thread. With `memory` None, canaries live as long as the prober."""

    def __init__(
        self,
        index: Any,
        *,
        clock: Clock,
        ids: IdSource,
        memory: Memory | None = None,
        durability: str = "os",
        remember_s: float = 7 * 86_400.0,
        publish_every_s: float = 3600.0,
    ) -> None:
        self._index = index
        self._clock = clock
        self._ids = ids
        self._topic_of_ids: dict[str, str] = {}
        self._memory = memory
        self._durability = durability
        self._remember_ms = round(remember_s * 1000)
        self._publish_every_s = publish_every_s
        self._published_at: float | None = None
        self._canaries: list[Canary] = list(memory.canaries) if memory else []

    @property
    def canaries(self) -> list[Canary]:
        """The remembered canaries, oldest first."""
        return list(self._canaries)

    def probe(self) -> list[Step]:
        """Do one round and return its steps. Raises only errors of the memory's file."""
        steps: list[Step] = []
        oldest = self._clock.now_ms() - self._remember_ms
        self._canaries = [canary for canary in self._canaries if canary.put_ms >= oldest]
        for position in self._chosen():
            steps += self._look_up(position)
        steps.append(self._look_up_absent())
        canary = self._make_canary()
        steps.append(self._timed("put", canary.state, lambda: self._put(canary)))
        if steps[-1].outcome is Outcome.OK:
            self._canaries.append(canary)
            steps += self._look_up(len(self._canaries) - 1)
            if self._publish_is_due():
                steps += self._publish()
        if self._memory is not None:
            self._memory.keep(self._canaries)
        return steps

    # -- puts ------------------------------------------------------------------------------------

    def _make_canary(self) -> Canary:
        now = self._clock.now_ms()
        token = self._ids.token(12)
        number = int.from_bytes(self._ids.uuid()[:8], "little")
        return Canary(token, number % QUEUES, now, number % 1_000_000, now, now)

    def _put(self, canary: Canary) -> None:
        self._index.put(
            topic=TOPIC,
            keys=[canary.key],
            message_id=canary.message_id,
            queue_id=canary.queue_id,
            offset=canary.offset,
            size=canary.size,
            timestamp=canary.timestamp,
            durability=self._durability,
        )

    def _publish_is_due(self) -> bool:
        at = self._published_at
        return at is None or self._clock.monotonic() - at >= self._publish_every_s

    def _publish(self) -> Iterator[Step]:
        """Publish the newest canary, looking it up all the while: it must be visible at every moment.

        Yields the first lookup of each state, and every lookup that failed.
        """
        self._published_at = self._clock.monotonic()
        newest = len(self._canaries) - 1
        try:
            # A key of scope `write` may not roll; the publication rolls then.
            with suppress(PermissionDeniedError):
                self._index.roll()
        except TierdexError as error:
            yield Step("publish", self._canaries[newest].state, Outcome.FAILED, 0.0, str(error))
            return
        published: list[Step] = []
        done = Bell()

        def publish() -> None:
            try:
                published.append(
                    self._timed("publish", "uploaded", lambda: self._index.flush("remote"))
                )
            finally:
                done.set()

        thread = threading.Thread(target=publish, name="tierdex-probe-publish")
        thread.start()
        yielded: set[str] = set()
        while not done.is_set():
            for step in self._look_up(newest):
                if step.outcome is not Outcome.OK or step.state not in yielded:
                    yielded.add(step.state)
                    yield step
            self._clock.wait(done, _LOOK_INTERVAL_S)
        thread.join()
        yield from published
        yield from self._look_up(newest)

    # -- lookups ---------------------------------------------------------------------------------

    def _chosen(self) -> list[int]:
        """Return the positions of the canaries to look up in this round."""
        count = len(self._canaries)
        if not count:
            return []
        newest_of_state = {canary.state: i for i, canary in enumerate(self._canaries)}
        others = {int(self._ids.random() * count) for _ in range(_OTHERS)}
        return sorted({0, *newest_of_state.values(), *others})

    def _look_up(self, position: int) -> Iterator[Step]:
        """Look up one canary by its key and by its message ID, and note the state of its file."""
        canary = self._canaries[position]
        by_id = {"message_id": canary.message_id, **self._topic_of_ids}
        for lookup in ({"topic": TOPIC, "key": canary.key}, by_id):
            began = self._clock.monotonic()
            outcome, state, detail = self._ask(canary, lookup)
            seconds = self._clock.monotonic() - began
            self._canaries[position] = replace(canary, state=state)
            yield Step("lookup", state, outcome, seconds, detail)

    def _ask(self, canary: Canary, lookup: dict[str, str]) -> tuple[Outcome, str, str]:
        try:
            answer: Answer = self._index.query(**lookup)
        except PermissionDeniedError as error:
            if "topic" in lookup:
                return Outcome.FAILED, canary.state, f"{canary.key}: {error}"
            # A key of this topic alone: message IDs are looked up in it from now on.
            self._topic_of_ids = {"topic": TOPIC}
            return self._ask(canary, {**lookup, "topic": TOPIC})
        except IncompleteAnswerError as error:
            return Outcome.INCOMPLETE, canary.state, f"{canary.key}: {error}"
        except (TierdexError, OSError) as error:
            return Outcome.FAILED, canary.state, f"{canary.key}: {error}"
        wanted = (TOPIC, canary.queue_id, canary.offset, canary.size, canary.timestamp)
        found = [(e.topic, e.queue_id, e.offset, e.size, e.timestamp) for e in answer.entries]
        if found == [wanted]:
            return Outcome.OK, answer.entries[0].state, ""
        if found:
            return Outcome.WRONG, canary.state, f"{canary.key}: {found}, not {wanted}"
        if not answer.complete:
            return Outcome.INCOMPLETE, canary.state, f"{canary.key}: {answer.missing}"
        return Outcome.MISSED, canary.state, f"{canary.key}, put at {canary.put_ms}, is not found"

    def _look_up_absent(self) -> Step:
        key = f"canary-{self._ids.token(12)}"
        began = self._clock.monotonic()
        try:
            answer = self._index.query(topic=TOPIC, key=key)
            outcome = Outcome.OK if answer.complete else Outcome.INCOMPLETE
            outcome = Outcome.WRONG if answer.entries else outcome
            detail = "" if outcome is Outcome.OK else f"{key}: {answer}"
        except (TierdexError, OSError) as error:
            outcome, detail = Outcome.FAILED, str(error)
        return Step("lookup", NOT_STORED, outcome, self._clock.monotonic() - began, detail)

    def _timed(self, verb: str, state: str, call: Callable[[], object]) -> Step:
        began = self._clock.monotonic()
        try:
            call()
        except (TierdexError, OSError) as error:
            seconds = self._clock.monotonic() - began
            return Step(verb, state, Outcome.FAILED, seconds, str(error))
        return Step(verb, state, Outcome.OK, self._clock.monotonic() - began)


def gravest(steps: list[Step]) -> Outcome:
    """Return the gravest outcome of a round."""
    order = list(Outcome)
    return min((step.outcome for step in steps), key=order.index, default=Outcome.OK)
