"""The guard around every query that is not answered from memory alone.

::

    with guard:       refuse when the index is closed; show every put that returned
        ...           the query reads the files
                      refuse when the index was closed meanwhile: the table may have lost its files
                      turn an error of the disk into a typed one, see disk_errors.py

Depends on disk_errors.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tierdex.disk_errors import raise_typed

if TYPE_CHECKING:
    from tierdex.index_service.ingest.writer import Writer
    from tierdex.index_service.opening.components import Components


class QueryGuard:
    """Shows a query every put that returned, and raises rather than let a closed index look empty."""

    __slots__ = ("_components", "_writer")

    def __init__(self, components: Components, writer: Writer | None) -> None:
        self._components = components
        self._writer = writer

    def __enter__(self) -> None:
        refuse_closed(self._components)
        if self._writer is not None and self._writer.has_buffered:
            self._writer.show_buffered()

    def __exit__(
        self, _kind: type[BaseException] | None, error: BaseException | None, _trace: object
    ) -> None:
        refuse_closed(self._components)
        raise_typed(error)


def refuse_closed(components: Components) -> None:
    """Raise ClosedError when the index was closed, ForkedError in a child of the process it belongs to."""
    refusal = components.refusal
    if refusal is not None:
        raise type(refusal)(*refusal.args)  # a new one each time: tracebacks add up
