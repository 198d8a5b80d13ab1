"""The writer's background work, and all background work without threads.

Depends on the ground.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from tierdex.errors import FencedError, UnavailableError

if TYPE_CHECKING:
    from tierdex.compactor.heartbeat import Heartbeat
    from tierdex.compactor.worker import Compactor
    from tierdex.index_service.forget.forgetting import Forgetter
    from tierdex.index_service.ingest.writer import Writer
    from tierdex.index_service.tables.table_objects import TablePublisher
    from tierdex.index_service.view.read_view import ReadView
    from tierdex.settings import Settings

logger = logging.getLogger(__name__)

_TEND_EVERY_S = 0.5


class PutFlusher:
    """Writes received puts after a few milliseconds."""

    name = "flush"

    def __init__(self, settings: Settings, writer: Writer) -> None:
        self._settings = settings
        self._writer = writer

    def step(self) -> float:
        if self._writer.has_buffered:
            try:
                self._writer.flush_buffer()
            except (UnavailableError, FencedError) as error:
                # No entry is lost: they stay in the buffer, and the next put raises.
                logger.warning("puts not written", extra={"error": str(error)})
                return 1.0
        return self._settings.put_buffer_delay


class WriterTending:
    """Rolls an old file, or for a request to forget, and makes the next one ahead of time."""

    name = "tend"

    def __init__(self, writer: Writer, forgetter: Forgetter) -> None:
        self._writer = writer
        self._forgetter = forgetter

    def step(self) -> float:
        try:
            self._forgetter.acknowledge()
            self._writer.roll_when_old()
            self._writer.prepare_next()
        except (UnavailableError, FencedError) as error:
            logger.warning("next file not made", extra={"error": str(error)})
        return _TEND_EVERY_S


class Maintenance:
    """All work that is due, in one call, for `run_compaction()`."""

    def __init__(
        self,
        writer: Writer,
        compactor: Compactor,
        read_view: ReadView,
        sign: Heartbeat,
        forgetter: Forgetter,
        tables: TablePublisher,
    ) -> None:
        self._forgetter = forgetter
        self._tables = tables
        self._writer = writer
        self._compactor = compactor
        self._read_view = read_view
        self._sign = sign

    def run_all(self, *, yes: bool = False) -> int:
        """Refresh, roll an old file, bring every rolled file to published; return the number of units.

        `yes` is that of `Compactor.run_all`. Raises the first error; the files stay where they are.
        """
        self._read_view.refresh()
        self._sign.step()
        self._writer.show_buffered()
        self._forgetter.acknowledge()
        self._writer.roll_when_old()
        count = self._compactor.run_all(yes=yes)
        self._writer.look_again()
        self._writer.flush_buffer()
        fenced = self._compactor.fenced
        if fenced is None:
            self._tables.run()
        if fenced is not None:  # local work is done; the rest cannot be
            raise FencedError(*fenced.args)
        return count
