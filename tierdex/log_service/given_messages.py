"""The columns of messages as a caller gave them, not checked yet: of the embedded log and of its clients.

Depends on nothing.
"""

from __future__ import annotations

from typing import Any, NamedTuple


class GivenMessages(NamedTuple):
    """The columns of `append_batch`, or the values of `append`; a name is that of its argument."""

    topic: Any
    queue_id: Any
    body: Any
    keys: Any = None
    message_id: Any = None
    headers: Any = None
    timestamp: Any = None
    deliver_at: Any = None
