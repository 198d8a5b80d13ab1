"""One sequential read of one queue: message after message, a window at a time.

Depends on errors and answer.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tierdex.errors import IncompleteAnswerError, OffsetsReusedError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tierdex.log_service.answer import Message, ReadAnswer

DEFAULT_GROUP: Final = "reader"  # of readers that are of no group: they read on


class QueueReader:
    """Iterates over the messages of a queue from an offset on. For one thread.

    `offset` is that of the next message: keep it, with `generation`, to go on later. At the end the
    iteration stops; it may be begun again, and goes on.
    """

    def __init__(
        self,
        read: Callable[[int, int | None], ReadAnswer],
        offset: int,
        generation: int | None = None,
    ) -> None:
        """`read` takes an offset and a greatest count, None for a whole window.

        `generation` is that of the last message read before `offset`, if one was.
        """
        self._read = read
        self.offset = offset
        self.generation = generation

    def __iter__(self) -> Iterator[Message]:
        """Yield messages. Raises IncompleteAnswerError where one cannot be read, OffsetsReusedError."""
        while True:
            self._refuse_reused()
            answer = self._read(self.offset, None)
            for message in answer.messages:
                self.offset = message.offset + 1
                self.generation = answer.generation
                yield message
            refuse_missing(answer, self.offset)
            if not len(answer):
                return

    def _refuse_reused(self) -> None:
        """Raise OffsetsReusedError when the message read last is another one by now."""
        if self.generation is None or self.offset == 0:
            return
        refuse_reused(self._read(self.offset - 1, 1), self.offset, self.generation)


def refuse_missing(answer: ReadAnswer, offset: int) -> None:
    """Raise IncompleteAnswerError when what follows in the queue could not be read."""
    if answer.missing:
        what = answer.missing[0]
        raise IncompleteAnswerError(
            f"offset {offset} cannot be read: {what.file} {what.reason}", missing=answer.missing
        )


def refuse_reused(last: ReadAnswer, offset: int, generation: int) -> None:
    """Raise OffsetsReusedError unless `last`, read before `offset`, is what a reader has seen."""
    if not len(last) or last.first_offset != offset - 1 or last.generation > generation:
        raise OffsetsReusedError(
            f"the message at offset {offset - 1} is not the one that was read: a crash took offsets back",
            offset=offset - 1,
            generation=last.generation,
        )
