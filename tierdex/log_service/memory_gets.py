"""The messages of a key that memory has: a lookup in the index, then one kernel call for all of its entries.

It takes what was asked of the only writer of a log, as long as every message found lies in the journal that
grows and has the level asked for. All else, an index that does not take what is written or has no whole
answer, is left to `find_messages`, which reads the same places one by one.

Depends on answer, key_lookups, levels, read_policy, log_components and index_service.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from tierdex.log_service.answer import FoundMessages
from tierdex.log_service.keys.key_lookups import PartialGet
from tierdex.log_service.levels import Level
from tierdex.log_service.read_policy import ReadExplain

if TYPE_CHECKING:
    from tierdex.index_service.answer import Unasked
    from tierdex.index_service.view.node_ages import NodeAges
    from tierdex.log_service.log_components import LogComponents

_LEVELS: Final = {"os": Level.OS, "disk": Level.DISK}


class MemoryGets:
    """Answers `MessageLog.get` where it can. Safe to share between threads."""

    def __init__(self, components: LogComponents) -> None:
        self._components = components
        self._node = components.options.settings.node
        self._told: tuple[NodeAges, int, tuple[Unasked, ...]] | None = None  # what ages say

    def find(
        self, topic: Any, key: Any, message_id: Any, begin: Any, end: Any, max_count: Any, visible: Any
    ) -> FoundMessages | PartialGet | None:  # fmt: skip
        """Return the messages, or what was begun; None: nothing was. Raises as `Index.query`."""
        components = self._components
        level = _LEVELS.get(visible) if type(visible) is str else None
        writing = components.writing
        if level is None or writing is None or components.missing or components.refusal is not None:
            return None
        log_index = writing.log_index
        index = None if log_index is None else log_index.index_of_all()
        if log_index is None or index is None:
            return None
        ages = log_index.ages  # before the files: the answer must not promise more than they hold
        told = self._told
        if told is None or told[0] is not ages:
            told = self._told = ages, ages.as_of(), ages.unasked()
        answer = index.query(
            topic, key=key, message_id=message_id, begin=begin, end=end, max_count=max_count
        )
        entries, node = answer.entries, self._node
        found = None
        if answer.complete and (len(entries) < max_count or answer.next_cursor is None):
            for entry in entries:
                if entry.node != node:
                    break
            else:
                found = components.tail_reads.find(entries, key, message_id, level)
        if found is None:
            return PartialGet(answer, *told[1:])
        messages, content = found
        return FoundMessages(
            tuple(messages), (), None, (), ReadExplain(content), told[1], told[2], ()
        )
