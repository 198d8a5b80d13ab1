"""The verbs of `MessageLog` over HTTP: what `Client` and `AsyncClient` have beside those of `Index`.

Names, answers and errors are those of the embedded log; only its `topics` is `log_topics` here, since
`topics` are the index's. An append is never repeated: where its answer was lost, look at the end offset, or
give `expect_offset`. Only `reader` is written twice: an iterator is not an asynchronous one.

Depends on message_calls, verbs, log_service and value_rules.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tierdex.client import message_calls as calls
from tierdex.client.verbs import Asynchronous, Synchronous, Verb
from tierdex.log_service.read.queue_reader import (
    DEFAULT_GROUP,
    QueueReader,
    refuse_missing,
    refuse_reused,
)

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from tierdex.log_service.answer import Message, ReadAnswer
    from tierdex.value_rules import Durability, ReadPolicyName


class LogVerbs:
    """The verbs of a message log that both clients have."""

    append = Verb(calls.append)
    append_batch = Verb(calls.append_batch)
    read = Verb(calls.read)
    read_arrow = Verb(calls.read_arrow)
    get = Verb(calls.get)
    begin_offset = Verb(calls.begin_offset)
    end_offset = Verb(calls.end_offset)
    end_offsets = Verb(calls.end_offsets)
    offset_at = Verb(calls.offset_at)
    timers = Verb(calls.timers)
    log_topics = Verb(calls.log_topics)
    queues = Verb(calls.queues)


class LogReading(LogVerbs, Synchronous):
    """The verbs of a message log, synchronous."""

    def reader(
        self,
        topic: str,
        queue_id: int,
        offset: int = 0,
        *,
        group: str = DEFAULT_GROUP,
        generation: int | None = None,
        max_count: int = 1000,
        max_bytes: int = 1 << 20,
        wait: float = 0.0,
        visible: Durability = "disk",
        policy: ReadPolicyName | None = None,
    ) -> QueueReader:
        """Return an iterator over the messages from `offset` on, as `MessageLog.reader` does."""

        def read(at: int, count: int | None) -> ReadAnswer:
            return self.read(
                topic, queue_id, at, max_count=count or max_count, max_bytes=max_bytes,
                wait=0.0 if count else wait, visible=visible, policy=policy,
                group=None if count else group,
            )  # fmt: skip

        return QueueReader(read, offset, generation)


class AsyncLogReading(LogVerbs, Asynchronous):
    """The verbs of a message log, awaited."""

    async def reader(
        self,
        topic: str,
        queue_id: int,
        offset: int = 0,
        *,
        group: str = DEFAULT_GROUP,
        generation: int | None = None,
        max_count: int = 1000,
        max_bytes: int = 1 << 20,
        wait: float = 0.0,
        visible: Durability = "disk",
        policy: ReadPolicyName | None = None,
    ) -> AsyncIterator[Message]:
        """Yield the messages from `offset` on, until the end, as `MessageLog.reader` does.

        Raises IncompleteAnswerError where one cannot be read, OffsetsReusedError as `MessageLog.reader`.
        """
        while True:
            if generation is not None and offset:
                last = await self.read(topic, queue_id, offset - 1, max_count=1)
                refuse_reused(last, offset, generation)
            answer = await self.read(
                topic, queue_id, offset, max_count=max_count, max_bytes=max_bytes, wait=wait,
                visible=visible, policy=policy, group=group,
            )  # fmt: skip
            for message in answer.messages:
                offset, generation = message.offset + 1, answer.generation
                yield message
            refuse_missing(answer, offset)
            if not len(answer):
                return
