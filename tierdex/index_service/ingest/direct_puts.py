"""Direct puts: single messages that take no lock, into memory or into the open file.

::

    gather ---> rows that wait --- gathered, drop ---> one batch, when the writer comes for them
    append ---> the open file, one batch a message

`gather` and `append` are kernels (single_puts): each call is one step for every Python thread, checks
what it is given, and returns 0 with nothing done for a wrong value and where room is short. The writer,
under its lock, shuts them while it touches what they touch: `shut` for the file; `drop` shuts the rows
for the moment that it needs. An entry leaves the buffer only after its batch was written.

Topics have numbers here, given when the writer first meets them; a number is never given twice.

Depends on put, indexfile and fileparts.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np

from tierdex.fileparts.memory import address
from tierdex.indexfile.chained.kernels import single_puts as k
from tierdex.indexfile.columns import ItemRows
from tierdex.indexfile.hashing import MESSAGE_ID_SEED, signed_bits, topic_seed
from tierdex.indexfile.layout import KIND_BIT, TOPIC_MASK
from tierdex.indexfile.schema import MESSAGE_SCHEMA, TOPIC_DICTIONARY

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tierdex.index_service.requests.put import CheckedPut
    from tierdex.indexfile.chained.file import ChainedFile

# Items that a file takes without the writer looking: at room, the disk's budget, what comes next.
_ITEMS_BETWEEN_LOOKS: Final = 1024
_TOPICS_REMEMBERED: Final = 65_536
_ROW_BYTES: Final = MESSAGE_SCHEMA.item_bytes


class DirectPuts:
    """Rows of messages that are received and not yet written, and whether a file takes them directly.

    The kernels are called by any thread, as are `refuse` and `shut`; the others under the writer's lock.
    """

    __slots__ = (
        "_cells", "_file", "_is_refusing", "_names", "_room", "_rows", "_tags", "arguments", "kernels",
        "topics", "waits",
    )  # fmt: skip

    def __init__(self, entries: int, item_capacity: int, max_key_bytes: int) -> None:
        """Gather so many entries of one name, fewer of more names: what one file surely takes."""
        self._room = min(entries, item_capacity)
        self._rows = np.zeros(self._room * _ROW_BYTES, np.uint8)
        self._tags = np.zeros(_TOPICS_REMEMBERED, np.uint32)
        # The kernels' arguments. The first byte is 1 while entries wait: the cheapest check from Python.
        self.waits = bytearray(8 * k.ARGUMENTS_LENGTH)
        self._cells = memoryview(self.waits).cast("q")
        self._cells[k.A_ROWS] = address(self._rows)
        self._cells[k.A_MOST_BYTES] = max_key_bytes
        self._cells[k.A_ID_SEED] = signed_bits(MESSAGE_ID_SEED)
        self._cells[k.A_TAGS] = address(self._tags)
        self.arguments = address(np.frombuffer(self.waits, np.uint8))
        # Level -> kernel; they load with the first topic.
        self.kernels: dict[str, Any] = {}
        # The seed of a topic's keys (as i8) and its number, which both kernels want.
        self.topics: dict[str, tuple[int, int]] = {}
        self._names: list[str] = []
        self._file: ChainedFile | None = None
        self._is_refusing = False
        self._open()

    # -- topics ----------------------------------------------------------------------------------

    def learn(self, topic: str) -> bool:
        """Give a legal topic a number, if it has none; False when there is no place for it."""
        if topic in self.topics:
            return True
        if len(self._names) >= _TOPICS_REMEMBERED:
            return False
        if not self.kernels:
            self.kernels["received"], self.kernels["os"] = k.load()
        self._names.append(topic)  # the name first: a reader that finds the number finds the name
        number = self._cells[k.A_FIRST_TOPIC] + len(self._names) - 1
        self.topics[topic] = signed_bits(topic_seed(topic)), number
        return True

    def forget_topics(self) -> None:
        """Make place for new topics, unless entries wait that have old ones."""
        self._shut_rows()
        if not self._cells[k.A_COUNT]:
            self.close_file()
            self._cells[k.A_FIRST_TOPIC] += len(self._names)  # who holds a number is refused
            self.topics.clear()
            self._names.clear()
        self._open()

    def _place_of(self, topic: str) -> int:
        return self.topics[topic][1] - int(self._cells[k.A_FIRST_TOPIC])

    # -- at either level -------------------------------------------------------------------------

    def put(self, entry: CheckedPut, level: str) -> bool:
        """Put an entry as `Index.put` tries to; False also for a topic or a level that has no kernel."""
        topic, keys, message_id, *location = entry
        try:
            seed, number = self.topics[topic]
            kernel = self.kernels[level]
        except (KeyError, TypeError):
            return False
        return bool(kernel(self.arguments, keys, message_id, seed, number, *location))

    # -- rows that wait --------------------------------------------------------------------------

    def items_of(self, entry: CheckedPut) -> ItemRows:
        """Return a checked entry as what a file takes, gathered aside. Its topic is known."""
        topic, keys, message_id, *location = entry
        seed, number = self.topics[topic]
        room = len(keys) + (message_id is not None)
        rows = np.empty(room * _ROW_BYTES, np.uint8)
        aside = np.frombuffer(self.waits, np.int64).copy()
        aside[[k.A_COUNT, k.A_ROOM, k.A_ROWS, k.A_IS_CHECKED]] = 0, room, address(rows), 1
        gather = self.kernels["received"]
        is_taken = gather(address(aside), keys, message_id, seed, number, *location)
        assert is_taken, "a checked entry"
        return self._items(rows)

    def gathered(self) -> ItemRows | None:
        """Return the rows that wait, which one batch holds; they stay until `drop`."""
        count = self._cells[k.A_COUNT]
        return self._items(self._rows[: count * _ROW_BYTES].copy()) if count else None

    def _items(self, data: np.ndarray) -> ItemRows:
        rows = data.view(MESSAGE_SCHEMA.dtype)
        numbers = rows["tag"] & np.uint32(TOPIC_MASK)
        if (numbers == numbers[0]).all():
            used, tags = numbers[:1], np.uint32(0)
        else:
            used, indexes = np.unique(numbers, return_inverse=True)
            tags = indexes.astype(np.uint32)
        rows["tag"] = (rows["tag"] & np.uint32(KIND_BIT)) | tags
        return ItemRows(rows, [self._names[number] for number in used.tolist()])

    def drop(self, count: int) -> None:
        """Forget the oldest `count` rows: they are written."""
        self._shut_rows()
        left = self._cells[k.A_COUNT] - count
        begin, size = count * _ROW_BYTES, left * _ROW_BYTES
        self._rows[:size] = self._rows[begin : begin + size]
        self._cells[k.A_COUNT] = left
        self._cells[k.A_WAITS] = left > 0
        self._open()

    def _shut_rows(self) -> None:
        self._cells[k.A_ROOM] = 0

    def _open(self) -> None:
        self._cells[k.A_ROOM] = self._room
        if self._is_refusing:  # looked at last: `refuse` may have come in between
            self._shut_rows()

    # -- the open file ---------------------------------------------------------------------------

    def open_to(self, file: ChainedFile, topics: Iterable[str]) -> None:
        """Open `file` for direct puts for a while, also of `topics`, which it has just taken."""
        assert not self._cells[k.A_STATISTICS], "open while the file was touched"
        if file is not self._file:
            self.close_file()
            self._file = file
        for topic in topics:
            if topic in self.topics:
                index = file.dictionaries.index(TOPIC_DICTIONARY, topic)
                self._tags[self._place_of(topic)] = 1 + index
        most, last = file.room_for_singles(_ITEMS_BETWEEN_LOOKS)
        self._cells[k.A_MOST_ITEMS], self._cells[k.A_LAST_ROW] = most, last
        self._cells[k.A_STATISTICS] = file.statistics_address()
        if self._is_refusing or file.suspect:  # looked at last, as in `_open`
            self.shut()

    def shut(self) -> None:
        """Shut the open file for direct puts; no kernel call is under way when this returns."""
        self._cells[k.A_STATISTICS] = 0

    def close_file(self) -> None:
        """Release the open file."""
        self.shut()
        self._file = None
        self._tags[: len(self._names)] = 0

    def refuse(self) -> None:
        """Take no more entries, at neither level, from now on."""
        self._is_refusing = True
        self._shut_rows()
        self.shut()
