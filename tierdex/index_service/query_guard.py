"""What surrounds every query that is not answered from memory alone.

::

    with guard:       every put that returned is shown; a closed index is refused
        ...           the files are asked
                      closed meanwhile: refused again, since the files may have left the table
                      the disk failed: a typed error, see disk_errors.py

Depends on disk_errors; on components and writer for their types only.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tierdex.index_service.disk_errors import disk_error, is_of_the_disk

if TYPE_CHECKING:
    from tierdex.index_service.components import Components
    from tierdex.index_service.ingest.writer import Writer


class QueryGuard:
    """Around a query: every put that returned is shown to it, and no closed index looks empty."""

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
        if isinstance(error, OSError) and is_of_the_disk(error):
            raise disk_error(error) from error


def refuse_closed(components: Components) -> None:
    """Raise ClosedError when the index was closed, ForkedError in a child of the process it belongs to."""
    refusal = components.refusal
    if refusal is not None:
        raise type(refusal)(*refusal.args)  # a new one each time: tracebacks add up
