"""The index of a journal in memory: its topics and queues, and where each queue's messages lie.

Nothing is a Python object a queue or a topic: names in one run of bytes, states in an array, two open
hash tables, slots in chunks of an arena (kernels.state has the picture). A queue costs 32 bytes and its
share of the hash table, a message 4 bytes and its share of a chunk.

Arrays are replaced by larger ones, never moved under a reader: who took `words` keeps its arrays alive
through the Tables' snapshot, and reads a state that was true when it was taken. One thread adds; any
number reads. Depends on fileparts, layout and kernels.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from tierdex.fileparts.memory import address
from tierdex.logfile import layout
from tierdex.logfile.journal.kernels import state as k

_INT64 = np.iinfo(np.int64)
_QUEUES_FIRST, _TOPICS_FIRST, _NAMES_FIRST = 64, 16, 1024
_SEGMENTS_AT_ONCE = 16


class TableArrays(NamedTuple):
    """The arrays of the tables, each of which may be replaced by a larger one."""

    names: np.ndarray  # u1
    name_ends: np.ndarray  # i8, one a topic
    totals: np.ndarray  # i8[n, 4], one a topic
    states: np.ndarray  # u1[n, STATE_BYTES], one a queue
    topic_slots: np.ndarray  # u4, a power of two
    queue_slots: np.ndarray  # u4, a power of two


class Snapshot(NamedTuple):
    """`words` for kernels, and the arrays that its addresses name."""

    words: np.ndarray
    arrays: TableArrays


class Tables:
    """Topics, queues and slots of one journal.

    They change in one step, when `snapshot` is assigned: an interrupt leaves the older or the newer ones.
    """

    def __init__(self) -> None:
        self._segments: list[np.ndarray] = []
        self._segment_table = np.zeros(k.SEGMENT_COUNT_MAX, np.int64)
        words = np.zeros(k.WORD_COUNT, np.int64)
        words[k.W_SEGMENTS] = address(self._segment_table)
        words[k.W_NEXT_SLOT] = 1  # 0 is "no chunk"
        words[k.W_MIN_TIME], words[k.W_MAX_TIME] = _INT64.max, _INT64.min
        arrays = TableArrays(
            np.empty(_NAMES_FIRST, np.uint8),
            np.zeros(_TOPICS_FIRST, np.int64),
            np.zeros((_TOPICS_FIRST, 4), np.int64),
            np.zeros((_QUEUES_FIRST, k.STATE_BYTES), np.uint8),
            np.zeros(2 * _TOPICS_FIRST, np.uint32),
            np.zeros(2 * _QUEUES_FIRST, np.uint32),
        )
        self.snapshot = _bound(words, arrays)
        self.reserve_slots()

    @property
    def words(self) -> np.ndarray:
        return self.snapshot.words

    @property
    def queue_count(self) -> int:
        return int(self.words[k.W_QUEUE_COUNT])

    @property
    def topic_count(self) -> int:
        return int(self.words[k.W_TOPIC_COUNT])

    @property
    def message_count(self) -> int:
        return int(self.words[k.W_MESSAGES])

    @property
    def min_time(self) -> int:
        """The least time of a message; means nothing without one."""
        return int(self.words[k.W_MIN_TIME])

    @property
    def max_time(self) -> int:
        """The greatest time of a message; means nothing without one."""
        return int(self.words[k.W_MAX_TIME])

    @property
    def memory_bytes(self) -> int:
        """Memory that the tables hold, in bytes, used or not."""
        tables = sum(array.nbytes for array in self.snapshot.arrays)
        return tables + sum(segment.nbytes for segment in self._segments)

    # -- room ------------------------------------------------------------------------------------------

    def reserve(self, queues: int, topics: int, name_bytes: int) -> None:
        """Make room for so many more queues, topics and bytes of topics' names."""
        words, arrays = self.snapshot
        names_used = int(arrays.name_ends[self.topic_count - 1]) if self.topic_count else 0
        queues, topics = self.queue_count + queues, self.topic_count + topics
        name_bytes += names_used
        if (
            queues <= int(words[k.W_QUEUE_LIMIT])
            and topics <= int(words[k.W_TOPIC_LIMIT])
            and name_bytes <= int(words[k.W_NAMES_LIMIT])
        ):
            return
        larger = arrays._replace(
            names=_grown(arrays.names, name_bytes),
            name_ends=_grown(arrays.name_ends, topics),
            totals=_grown(arrays.totals, topics),
            states=_grown(arrays.states, queues),
        )
        if 2 * len(larger.name_ends) > len(arrays.topic_slots):
            slots = np.zeros(_power_of_two(2 * len(larger.name_ends)), np.uint32)
            larger = larger._replace(topic_slots=slots)
        if 2 * len(larger.states) > len(arrays.queue_slots):
            slots = np.zeros(_power_of_two(2 * len(larger.states)), np.uint32)
            larger = larger._replace(queue_slots=slots)
        grown = _bound(words.copy(), larger)
        if larger.topic_slots is not arrays.topic_slots:
            k.rehash_topics(grown.words)
        if larger.queue_slots is not arrays.queue_slots:
            k.rehash_queues(grown.words)
        self.snapshot = grown  # readers and the writer go over to the larger ones

    def reserve_slots(self) -> None:
        """Make room in the arena for many more rows."""
        words = self.words
        while int(words[k.W_NEXT_SLOT]) + k.ROOM_OF_ONE > int(words[k.W_SLOT_LIMIT]):
            first = int(words[k.W_SLOT_LIMIT]) // k.SEGMENT_SLOTS
            # A small journal has one segment; of a larger one many at once, for which numpy asks the
            # kernel for huge pages: slots are stored all over them.
            count = min(_SEGMENTS_AT_ONCE if first else 1, k.SEGMENT_COUNT_MAX - first)
            assert count, "more slots than row positions"
            block = np.empty(count * k.SEGMENT_SLOTS, np.uint32)
            self._segments.append(block)
            step = block.itemsize * k.SEGMENT_SLOTS
            self._segment_table[first : first + count] = address(block) + step * np.arange(count)
            words[k.W_SLOT_LIMIT] = (first + count) * k.SEGMENT_SLOTS

    # -- what is in it ---------------------------------------------------------------------------------

    def find(self, topic: bytes, queue_id: int) -> int:
        """Return the number of a queue, or -1."""
        words, _arrays = self.snapshot
        name = np.frombuffer(topic, np.uint8)
        return int(k.find_queue(words, address(name), len(name), queue_id)) if topic else -1

    def find_topic(self, topic: bytes) -> int:
        """Return the number of a topic, or -1."""
        words, _arrays = self.snapshot
        name = np.frombuffer(topic, np.uint8)
        return int(k.find_topic(words, address(name), len(name))) if topic else -1

    def states(self) -> np.ndarray:
        """Return a copy of the queues' states, as an array of STATE."""
        states: np.ndarray = self.snapshot.arrays.states[: self.queue_count].reshape(-1).view(STATE)
        return states.copy()

    def states_of(self, numbers: np.ndarray) -> np.ndarray:
        """Return copies of the states of these queues, as an array of STATE."""
        states = self.snapshot.arrays.states
        picked: np.ndarray = states[numbers].reshape(-1).view(STATE)
        return picked

    def name(self, topic: int) -> bytes:
        """Return the name of the topic with this number."""
        arrays = self.snapshot.arrays
        begin = int(arrays.name_ends[topic - 1]) if topic else 0
        return arrays.names[begin : int(arrays.name_ends[topic])].tobytes()

    def totals(self) -> np.ndarray:
        """Return a copy of the topics' totals: i8[n, 4] messages, body bytes, least and greatest time."""
        return self.snapshot.arrays.totals[: self.topic_count].copy()

    def names(self) -> tuple[np.ndarray, np.ndarray]:
        """Return copies of (ends i8, bytes u1) of the topics' names."""
        arrays = self.snapshot.arrays
        ends = arrays.name_ends[: self.topic_count].copy()
        return ends, arrays.names[: int(ends[-1]) if len(ends) else 0].copy()


STATE = np.dtype(
    {
        "names": ["first_offset", "tail", "count", "topic", "queue_id", "hint"],
        "formats": ["<i8", "<u8", "<u4", "<u4", "<i4", "<u4"],
    }
)
assert STATE.itemsize == k.STATE_BYTES
assert np.dtype(np.uint32).itemsize == layout.SLOT_BYTES


def _bound(words: np.ndarray, arrays: TableArrays) -> Snapshot:
    """Note the addresses and lengths of all arrays in `words`."""
    words[k.W_NAMES], words[k.W_NAMES_LIMIT] = address(arrays.names), len(arrays.names)
    words[k.W_NAME_ENDS], words[k.W_TOPIC_LIMIT] = address(arrays.name_ends), len(arrays.name_ends)
    words[k.W_TOTALS] = address(arrays.totals)
    words[k.W_TOPIC_SLOTS] = address(arrays.topic_slots)
    words[k.W_TOPIC_MASK] = len(arrays.topic_slots) - 1
    words[k.W_QUEUE_SLOTS] = address(arrays.queue_slots)
    words[k.W_QUEUE_MASK] = len(arrays.queue_slots) - 1
    words[k.W_STATES], words[k.W_QUEUE_LIMIT] = address(arrays.states), len(arrays.states)
    words[k.W_SELF] = address(words)
    return Snapshot(words, arrays)


def _grown(array: np.ndarray, length: int) -> np.ndarray:
    """Return `array`, or a copy with room for twice `length` rows."""
    if length <= len(array):
        return array
    larger = np.zeros((2 * length, *array.shape[1:]), array.dtype)
    larger[: len(array)] = array
    return larger


def _power_of_two(count: int) -> int:
    return 1 << (count - 1).bit_length()
