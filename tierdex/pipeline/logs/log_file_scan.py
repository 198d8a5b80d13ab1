"""Which messages of one published log file a scan wants, and their reading by ranges of whole pages.

::

    queues of the file -> [low, high) of each, in messages from the queue's first here
    a page is read     when it has a wanted message, by these and by its times
    near pages         by one request, with read-ahead; a row is given only if it is wanted

Messages that wait for the timer lie in queues of a reserved topic: no scan wants them. Pages that arrive
damaged are fetched once more, then the task fails.

Depends on errors, fileparts, logfile, log_columns, log_options and scan_report.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa

from tierdex.errors import CorruptFileError
from tierdex.fileparts.layout import HEADER_BYTES
from tierdex.logfile.grouped.columns import ExtraColumns, PageColumns, read_columns
from tierdex.logfile.grouped.pages import Scratch
from tierdex.logfile.layout import TIMER_TOPIC
from tierdex.pipeline.logs.log_columns import MessageArrays, needs_extras
from tierdex.pipeline.logs.log_options import LogSelection

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from tierdex.logfile.grouped.file import GroupedFile, PageSpan
    from tierdex.logfile.grouped.queue_groups import QueueRows
    from tierdex.pipeline.jobs.scan_report import ScanReport
    from tierdex.pipeline.jobs.snapshot import ListedFile

_SPAN_BYTES: Final = 4 << 20  # of one request
_NEAR_BYTES: Final = 64 << 10  # between wanted pages that one request brings
_LOOK_AHEAD: Final = 2


class WantedMessages:
    """The messages of a file that a scan wants. Immutable."""

    def __init__(self, file: GroupedFile, listed: ListedFile, selection: LogSelection) -> None:
        """Raises CorruptFileError."""
        self.file = file
        self.topic_names = topic_names(file)
        self._selection = selection
        self.queues = file.queues()
        self.starts = np.cumsum(self.queues.counts) - self.queues.counts
        directory = file.directory()
        first = directory["first_queue"][:-1].astype(np.int64)
        if len(first) and int(first.max()) >= len(self.starts):
            raise CorruptFileError(file.path, "a page begins with a queue that the file lacks")
        self.page_starts = np.append(
            self.starts[first] + directory["first_ordinal"][:-1], file.message_count
        )
        self.low, self.high = _wanted(file, listed, selection, self.queues)
        self._forgotten = _forgotten(file, listed, self.queues, self.starts)
        self._before = np.concatenate([[0], np.cumsum(self.high - self.low)])

    @property
    def count(self) -> int:
        """Messages that are wanted, whatever their times."""
        return int(self._before[-1])

    def keep(self, low: np.ndarray, high: np.ndarray) -> None:
        """Want no more than [low, high) of each queue."""
        self.low = np.clip(low, self.low, self.high)
        self.high = np.clip(high, self.low, self.high)
        self._before = np.concatenate([[0], np.cumsum(self.high - self.low)])

    def before(self, messages: np.ndarray) -> np.ndarray:
        """Return how many wanted messages stand before each place (i8) among the file's messages."""
        queues = np.maximum(np.searchsorted(self.starts, messages, side="right") - 1, 0)
        within = messages - self.starts[queues] - self.low[queues]
        found = self._before[queues] + np.clip(within, 0, self.high[queues] - self.low[queues])
        return np.asarray(found)

    def pages(self, first: int, last: int) -> np.ndarray:
        """Return the pages of [first, last) that may have a wanted message, ascending (i8)."""
        if not self.count:
            return np.empty(0, np.int64)
        mine = self.file.directory()[first:last]
        selection = self._selection
        wanted = (mine["min_time"] <= selection.end) & (mine["max_time"] >= selection.begin)
        wanted &= np.diff(self.before(self.page_starts[first : last + 1])) > 0
        return np.flatnonzero(wanted) + first

    def forget(self, columns: PageColumns) -> PageColumns:
        """Return the messages as the log's own reads show them: forgotten ones are empty."""
        gone = self._mask_of(self._forgotten, columns)
        return columns.emptied(gone) if gone.any() else columns

    def _mask_of(self, messages: np.ndarray, columns: PageColumns) -> np.ndarray:
        """Return which messages of some pages are among `messages` (i8, sorted)."""
        first = int(self.page_starts[columns.first_page])
        low, high = np.searchsorted(messages, [first, first + len(columns)])
        mask = np.zeros(len(columns), bool)
        mask[messages[low:high] - first] = True
        return mask

    def select(self, columns: PageColumns) -> tuple[dict[str, np.ndarray], np.ndarray | None]:
        """Return (topic, queue_id and offset of each message; which are wanted, None: all).

        Raises CorruptFileError for pages with other messages than the directory says.
        """
        first = int(self.page_starts[columns.first_page])
        end = int(self.page_starts[columns.first_page + columns.page_count])
        queues, rows = columns.queues, self.queues
        if len(columns) != end - first or int(queues.max()) >= len(rows):
            raise CorruptFileError(
                self.file.path, f"page {columns.first_page} or behind it has other messages"
            )
        ordinals = np.arange(first, end) - self.starts[queues]
        if (ordinals < 0).any() or (ordinals >= rows.counts[queues]).any():
            raise CorruptFileError(
                self.file.path, f"page {columns.first_page} or behind it has other queues"
            )
        place = {
            "topic": rows.topics[queues].astype(np.int32),
            "queue_id": rows.queue_ids[queues].astype(np.int32),
            "offset": rows.first_offsets[queues] + ordinals,
        }
        masks = []
        before = self.before(np.array([first, end]))
        if int(before[1] - before[0]) < len(columns):
            masks.append((ordinals >= self.low[queues]) & (ordinals < self.high[queues]))
        selection, file = self._selection, self.file
        if selection.begin > file.min_time or selection.end < file.max_time:
            masks.append((columns.times >= selection.begin) & (columns.times <= selection.end))
        return place, np.logical_and.reduce(masks) if masks else None


class ChosenMessages(WantedMessages):
    """Single messages of a file, wherever they are. One lookup's."""

    def __init__(self, file: GroupedFile, listed: ListedFile) -> None:
        """Raises CorruptFileError."""
        super().__init__(file, listed, LogSelection())
        self._chosen = np.empty(0, np.int64)

    def find(
        self, topics: Any, queue_ids: np.ndarray, offsets: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return which places (i8) are of messages that the file shows, and their places among all of it."""
        coded = topics.dictionary_encode()
        known = [self.file.topics.find(name.encode()) for name in coded.dictionary.to_pylist()]
        names = np.array([*known, -1], np.int64)[np.asarray(coded.indices)]
        keys = (names << 32) | queue_ids
        rows = self.queues
        queues = np.minimum(np.searchsorted(rows.keys, keys), max(0, len(rows) - 1))
        ordinals = offsets - rows.first_offsets[queues]
        is_here = (rows.keys[queues] == keys) & (names >= 0)
        is_here &= (ordinals >= self.low[queues]) & (ordinals < self.high[queues])
        found = np.flatnonzero(is_here)
        return found, (self.starts[queues] + ordinals)[found]

    def choose(self, messages: np.ndarray) -> np.ndarray:
        """Want these messages alone; return them sorted, each once, as they are read."""
        self._chosen = np.unique(messages)
        return self._chosen

    def chosen_pages(self) -> np.ndarray:
        """Return the pages that they lie in, ascending (i8)."""
        found = np.searchsorted(self.page_starts, self._chosen, side="right") - 1
        return np.unique(found)

    def select(self, columns: PageColumns) -> tuple[dict[str, np.ndarray], np.ndarray | None]:
        place, _ = super().select(columns)
        return place, self._mask_of(self._chosen, columns)


def _wanted(
    file: GroupedFile, listed: ListedFile, selection: LogSelection, queues: QueueRows
) -> tuple[np.ndarray, np.ndarray]:
    """Return [low, high) of each queue: places from its first message here (i8)."""
    topics = np.array([_is_wanted(name, listed, selection) for name in topic_names(file)], bool)
    is_wanted = topics[queues.topics]
    if selection.queue_ids is not None:
        is_wanted &= np.isin(queues.queue_ids, selection.queue_ids)
    firsts, counts = queues.first_offsets, queues.counts
    low = np.clip(selection.begin_offset - firsts, 0, counts)
    high = np.where(is_wanted, np.clip(selection.end_offset - firsts, low, counts), low)
    return low, high


def _forgotten(
    file: GroupedFile, listed: ListedFile, queues: QueueRows, starts: np.ndarray
) -> np.ndarray:
    """Return the forgotten messages among the file's (i8, sorted)."""
    found = [np.empty(0, np.int64)]
    for name, queue_id, offsets in listed.places.queues():
        key = (file.topics.find(name) << 32) | queue_id
        queue = int(np.searchsorted(queues.keys, key))
        if queue < len(queues) and int(queues.keys[queue]) == key:
            ordinals = offsets - queues.first_offsets[queue]
            is_here = (ordinals >= 0) & (ordinals < queues.counts[queue])
            found.append(starts[queue] + ordinals[is_here])
    return np.sort(np.concatenate(found))


def topic_names(file: GroupedFile) -> list[bytes]:
    """Return the names of a file's topics, in order."""
    return [file.topics.name(index) for index in range(len(file.topics))]


def _is_wanted(name: bytes, listed: ListedFile, selection: LogSelection) -> bool:
    if name == TIMER_TOPIC:
        return False
    topic = name.decode()
    return (selection.topics is None or topic in selection.topics) and listed.shows(topic)


def page_range(file: GroupedFile, part: int, parts: int) -> tuple[int, int]:
    """Return the pages [first, last) that begin in range `part` of `parts` of a file's pages, by bytes."""
    begins = file.directory()["position"][:-1].astype(np.int64)
    length = file.sidecar_position - HEADER_BYTES
    edges = [HEADER_BYTES + length * part // parts, HEADER_BYTES + length * (part + 1) // parts]
    first, last = np.searchsorted(begins, edges)
    return int(first), len(begins) if part + 1 == parts else int(last)


def read_messages(
    file: GroupedFile, wanted: WantedMessages, pages: np.ndarray, listed: ListedFile,
    fetch: Callable[[int, int], bytes], columns: Sequence[str], report: ScanReport,
) -> Iterator[pa.RecordBatch]:  # fmt: skip
    """Yield the wanted messages of ascending `pages`, which `fetch` brings by (position, length).

    Raises CorruptFileError, and what `fetch` raises.
    """
    names = [name.decode() for name in wanted.topic_names]
    arrays = MessageArrays(columns, {"node": listed.node, "file_id": listed.file_id}, names)
    for piece in _read_pieces(file, pages, fetch):
        report.pages_read += piece.page_count
        report.items_read += len(piece)
        place, mask = wanted.select(piece)
        if mask is not None and not mask.any():
            continue
        piece = wanted.forget(piece)
        extras = ExtraColumns(piece, file.path) if needs_extras(columns) else None
        batch = arrays.batch(piece, extras, place)
        if mask is not None:
            batch = batch.filter(pa.array(mask))
        report.entries += batch.num_rows
        yield batch


def _read_pieces(
    file: GroupedFile, pages: np.ndarray, fetch: Callable[[int, int], bytes]
) -> Iterator[PageColumns]:
    spans, scratch = list(spans_of(file, pages)), Scratch()
    with ThreadPoolExecutor(_LOOK_AHEAD) as pool:
        waiting = [pool.submit(fetch, span.position, span.length) for span in spans[:_LOOK_AHEAD]]
        for number, span in enumerate(spans):
            data = waiting.pop(0).result()
            if number + _LOOK_AHEAD < len(spans):
                later = spans[number + _LOOK_AHEAD]
                waiting.append(pool.submit(fetch, later.position, later.length))
            # All pages of a range are verified before the first message of it is given.
            pieces = read_columns(file, span, data, scratch)
            try:
                first = next(pieces)
            except CorruptFileError:
                pieces = read_columns(file, span, fetch(span.position, span.length), scratch)
                first = next(pieces)
            yield first
            yield from pieces


def spans_of(file: GroupedFile, pages: np.ndarray) -> Iterator[PageSpan]:
    """Yield ranges that bring ascending `pages`, and the few bytes between near ones."""
    positions = file.directory()["position"].astype(np.int64)
    begins, ends = positions[pages].tolist(), positions[pages + 1].tolist()
    numbers = pages.tolist()
    begin = 0
    while begin < len(numbers):
        end = begin + 1
        while (
            end < len(numbers)
            and begins[end] - ends[end - 1] <= _NEAR_BYTES
            and ends[end] - begins[begin] <= _SPAN_BYTES
        ):
            end += 1
        yield file.span(numbers[begin], numbers[end - 1] - numbers[begin] + 1)
        begin = end
