"""Callers that wait for messages on the event loop: a wait holds no thread, and each wait ends.

::

    register  the committing thread calls back once, at the next commit of a level
    look      read the queue: what came before is seen here, what comes later rings
    wait      until the bell, the time asked for, the caller's departure, or the end of the service

One callback serves all who wait for a level. Bells come at most every few milliseconds, however many
commits there are, since each wakes all callers that wait for the level.

Depends on starlette, problems, log_service and value_rules.
"""

from __future__ import annotations

import asyncio
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from tierdex.app.http.problems import HttpRefusalError
from tierdex.errors import ReadOnlyError, TierdexError, UnavailableError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator

    from starlette.requests import Request

    from tierdex.log_service.answer import ReadAnswer
    from tierdex.log_service.message_log import MessageLog
    from tierdex.value_rules import Durability

_PAUSE_S = 0.005  # between two bells of a level
_LOOK_S = 0.1  # between two looks at a log that another process writes


class Arrivals:
    """The waits of one service. Lives on its event loop."""

    def __init__(self, log: MessageLog, most: int) -> None:
        """`most` is the number of callers that may wait at one time."""
        self._log = log
        self._most = most
        self._bells: dict[Durability, asyncio.Event] = {}  # the next bell of each level
        self._rung_at: dict[Durability, float] = {}
        self._ended = asyncio.Event()
        self._follows_files = False  # another process writes them
        self.waiting = 0

    def end(self) -> None:
        """End all waits, now and later: the service stops. Each answers what it has."""
        self._ended.set()
        for bell in self._bells.values():
            bell.set()

    @contextmanager
    def place(self) -> Iterator[None]:
        """Take one of the places of waiting callers. Raises UnavailableError when all are taken."""
        if self.waiting >= self._most:
            raise UnavailableError("too many callers wait for messages")
        self.waiting += 1
        try:
            yield
        finally:
            self.waiting -= 1

    async def wait_for_more(
        self,
        request: Request,
        read: Callable[[], Awaitable[ReadAnswer]],
        seconds: float,
        visible: Durability,
    ) -> ReadAnswer:
        """Return the first answer of `read` that tells something, or the last one in time.

        Raises HttpRefusalError when the caller has left.
        """
        loop = asyncio.get_running_loop()
        deadline = loop.time() + seconds
        gone = asyncio.ensure_future(_departure(request))
        try:
            while True:
                bell = self._bell(visible)
                answer = await read()
                if _tells(answer):
                    return answer
                is_more = False
                while not is_more:
                    if not await self._rings(bell, gone, deadline - loop.time()):
                        return answer
                    bell = self._bell(visible)
                    is_more = self._has_more(answer, visible)
        finally:
            gone.cancel()

    async def _rings(self, bell: asyncio.Event, gone: asyncio.Future[None], seconds: float) -> bool:
        """Wait for the bell; say whether it rang in time. Raises HttpRefusalError."""
        ring = asyncio.ensure_future(bell.wait())
        try:
            await asyncio.wait(
                (ring, gone), timeout=max(seconds, 0), return_when=asyncio.FIRST_COMPLETED
            )
        finally:
            ring.cancel()
        if gone.done():
            raise HttpRefusalError(499, "the caller left before there was more")
        return bell.is_set() and not self._ended.is_set()

    def _has_more(self, answer: ReadAnswer, visible: Durability) -> bool:
        """Return whether to read again: memory tells, in a log that is written here."""
        with suppress(TierdexError):
            if self._follows_files:
                return True
            end = self._log.end_offset(answer.topic, answer.queue_id, level=visible)
            return end > answer.next_offset
        return True  # the read says what is wrong

    def _bell(self, visible: Durability) -> asyncio.Event:
        """Return the next bell of a level; have it rung."""
        bell = self._bells.get(visible)
        if bell is None:
            bell = self._bells[visible] = asyncio.Event()
            if self._ended.is_set():
                bell.set()
                return bell
            loop = asyncio.get_running_loop()
            try:
                self._log.call_when_more(
                    lambda: _in_loop(loop, lambda: self._came(loop, visible)), visible=visible
                )
            except ReadOnlyError:
                self._follows_files = True
                loop.call_later(_LOOK_S, self._ring, visible)
        return bell

    def _came(self, loop: asyncio.AbstractEventLoop, visible: Durability) -> None:
        due = self._rung_at.get(visible, 0.0) + _PAUSE_S
        if loop.time() >= due:
            self._ring(visible)
        else:
            loop.call_at(due, self._ring, visible)

    def _ring(self, visible: Durability) -> None:
        self._rung_at[visible] = asyncio.get_running_loop().time()
        self._bells.pop(visible).set()


def _tells(answer: ReadAnswer) -> bool:
    return len(answer) > 0 or not answer.complete


def _in_loop(loop: asyncio.AbstractEventLoop, call: Callable[[], None]) -> None:
    with suppress(RuntimeError):  # the loop is closed: no caller waits any more
        loop.call_soon_threadsafe(call)


async def _departure(request: Request) -> None:
    """Return when the caller has closed its connection."""
    while (await request.receive())["type"] != "http.disconnect":
        pass
