"""The components of an open index or log, for tests that step its background work or damage what it holds.

What lies in them may change with any release: an application uses the verbs of `Index` and `MessageLog`.

Depends on index_service.index, index_service.opening.components, log_service.message_log and
log_service.log_components only.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, overload

if TYPE_CHECKING:
    from tierdex.index_service.index import Index
    from tierdex.index_service.opening.components import Components
    from tierdex.log_service.log_components import LogComponents
    from tierdex.log_service.message_log import MessageLog


@overload
def components_of(opened: Index) -> Components: ...
@overload
def components_of(opened: MessageLog) -> LogComponents: ...
def components_of(opened: Index | MessageLog) -> Components | LogComponents:
    """Return the components of an index or a log that is open."""
    return opened._components
