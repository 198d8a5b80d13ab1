"""Writes a grouped file: messages in order of topic, queue and offset in, pages out, the tail at the end.

::

    append(rows by address) -> pages as they fill -> codec -> write(buffer)
                                     `-> directory, topics' totals -> kept until the tail

Queues and their counts are known before the first message, from the sources' own. In memory: the queues,
the directory, less than a page of rows, the filter. Nothing is durable here: the caller syncs what `write`
took, and verifies it. One thread.

Depends on blocks, fileparts, header, layout, pages, queue_groups, page_write and queue_hash.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

from tierdex.errors import CorruptFileError
from tierdex.fileparts.checksums import part_seed
from tierdex.fileparts.filter import FilterBuilder
from tierdex.fileparts.layout import Part
from tierdex.fileparts.memory import address
from tierdex.fileparts.tail_writer import TailWriter
from tierdex.logfile import layout
from tierdex.logfile.blocks import block_sums
from tierdex.logfile.grouped.kernels import page_write as k
from tierdex.logfile.grouped.pages import make_codec
from tierdex.logfile.grouped.queue_groups import QueueRows, encode_queues
from tierdex.logfile.kernels.queue_hash import hash_queues
from tierdex.logfile.layout import Codec, Form

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from typing_extensions import Buffer

    from tierdex.logfile.header import LogHeader

_OUT_BYTES = 1 << 20
_SLACK = 64
_DIRECTORY_BEGUN = 1024  # entries; as many again whenever they are used up
_INT64 = np.iinfo(np.int64)


@dataclass(frozen=True)
class GroupedSummary:
    """What was written; times are 0 and -1 without messages."""

    message_count: int
    queue_count: int
    topic_count: int
    min_time: int
    max_time: int
    bytes: int
    sidecar_position: int
    footer_crc: int


class BesideMessages(NamedTuple):
    """What a grouped file holds beside its messages."""

    filter_bits: int = 8  # of its filter; 0: none
    extra: Mapping[str, Any] = MappingProxyType({})
    queue_table: bytes | None = None  # where the queues end that it does not hold


NOTHING_BESIDE: Final = BesideMessages()


class GroupedWriter:
    """Packs messages that come in order of their queues, and in a queue of their offsets."""

    def __init__(
        self,
        write: Callable[[Buffer], None],
        *,
        header: LogHeader,
        names: tuple[np.ndarray, np.ndarray],
        queues: QueueRows,
        beside: BesideMessages,
        shares: bytes | None = None,
    ) -> None:
        """Write the header. `names` are (ends i8, bytes u1) of the topics, in order, as `queues` knows them.

        Every topic has a queue, every queue a message. What `write` was given may change when it has
        returned.
        """
        assert header.form is Form.GROUPED
        self._file = TailWriter(write, header.uuid)
        self._header = header.encode()
        self._uuid = header.uuid
        self._ends, self._names = names
        self._queues = queues
        self._filter_bits = beside.filter_bits
        self._extra = dict(beside.extra)
        self._more = {Part.QUEUE_TABLE: beside.queue_table, Part.SHARES: shares}
        self._counts = queues.counts.astype(np.uint32)
        self._topic_of = queues.topics.astype(np.uint32)
        self._totals = np.zeros((len(self._ends), 4), np.int64)
        self._totals[:, 2], self._totals[:, 3] = _INT64.max, _INT64.min
        self._left = int(queues.counts.sum())
        self._message_count = self._left
        self._payload_bytes = 0
        g = self._g = np.zeros(k.WRITER_WORDS, np.int64)
        g[k.G_COUNTS], g[k.G_TOPICS] = address(self._counts), address(self._topic_of)
        g[k.G_TOTALS] = address(self._totals)
        g[k.G_PAGE_BYTES] = header.page_bytes
        self._scratch = np.empty((k.SCRATCH_ROWS, k.MOST), np.uint64)
        self._page = np.empty(0, np.uint8)
        self._out = np.empty(_OUT_BYTES + _SLACK, np.uint8)
        self._out_used = 0
        self._directory = np.empty(_DIRECTORY_BEGUN, layout.DIRECTORY_ENTRY)
        self._page_count = 0
        self._kept = np.empty(0, np.int64), np.empty(0, np.int64)
        self._kept_rows = np.empty(0, np.uint8)
        self._page_seed = np.uint32(part_seed(header.uuid, Part.PAGE))
        self._codec = make_codec(header.codec) if header.codec else None
        self._codec_number = header.codec
        self._file.write(self._header)

    def append(self, addresses: np.ndarray, bases: np.ndarray) -> None:
        """Take rows (journal's, by address i8; base of their times i8) that go on where the last ended.

        They may be gone when this returns. Raises CorruptFileError when there are more than the queues
        say, and what `write` raises; the file is useless then.
        """
        self._left -= len(addresses)
        if self._left < 0:
            raise CorruptFileError("rows to group", "are more than their queues count")
        kept_addresses, kept_bases = self._kept
        if len(kept_addresses):
            addresses = np.concatenate([kept_addresses, addresses])
            bases = np.concatenate([kept_bases, bases])
        done = self._put_pages(addresses, bases, is_last=self._left == 0)
        self._keep(addresses[done:], bases[done:])

    def finish(self) -> GroupedSummary:
        """Write the tail. Raises what `append` raises, and CorruptFileError when messages are missing."""
        if self._left:
            raise CorruptFileError("rows to group", f"lack {self._left} that their queues count")
        sidecar_position = self._file.position + self._out_used
        self._flush()
        has_any = bool(self._message_count)
        min_time = int(self._totals[:, 2].min()) if has_any else 0
        max_time = int(self._totals[:, 3].max()) if has_any else -1
        footer_crc = self._write_tail(min_time, max_time)
        return GroupedSummary(
            message_count=self._message_count,
            queue_count=len(self._queues),
            topic_count=len(self._ends),
            min_time=min_time,
            max_time=max_time,
            bytes=self._file.position,
            sidecar_position=sidecar_position,
            footer_crc=footer_crc,
        )

    # -- rows to pages ------------------------------------------------------------------------------

    def _put_pages(self, addresses: np.ndarray, bases: np.ndarray, *, is_last: bool) -> int:
        """Write pages of the rows while they fill; return how many rows are in them."""
        addresses = np.ascontiguousarray(addresses)
        bases = np.ascontiguousarray(bases)
        at, bases_at, done = address(addresses), address(bases), 0
        while done < len(addresses):
            left = len(addresses) - done
            taken = int(
                k.choose_page(
                    self._g, at + 8 * done, bases_at + 8 * done, left, self._scratch, is_last
                )
            )
            if not taken:
                break
            self._put_page()
            done += taken
        return done

    def _put_page(self) -> None:
        """Pack the chosen page, compress it, note it in the directory, hand it on."""
        g = self._g
        raw_bytes = int(g[k.G_RAW])
        most = layout.PAGE_HEADER_BYTES + raw_bytes
        if len(self._page) < most + _SLACK:
            self._page = np.empty(most + _SLACK + most // 8, np.uint8)
        entry = int(g[k.G_QUEUE]), int(g[k.G_ORDINAL])
        times = int(g[k.G_TIME_BASE]), int(g[k.G_MAX_TIME])
        place = address(self._page)
        k.write_page(g, self._scratch, place)
        stored, codec = raw_bytes, Codec.PLAIN
        if self._codec is not None:
            raw = self._page[layout.PAGE_HEADER_BYTES : most]
            packed = self._codec.compress(raw.data, asbytes=True)
            if len(packed) <= raw_bytes - raw_bytes // 8:
                self._page[layout.PAGE_HEADER_BYTES :][: len(packed)] = np.frombuffer(
                    packed, np.uint8
                )
                stored, codec = len(packed), self._codec_number
        number = self._page_count
        k.finish_page(place, stored, int(codec), self._page_seed, number)
        self._note_page((self._file.position + self._out_used, *entry, *times))
        self._payload_bytes += raw_bytes
        self._hand_on(self._page[: layout.PAGE_HEADER_BYTES + stored])

    def _note_page(self, entry: tuple[int, ...]) -> None:
        if self._page_count == len(self._directory):
            self._directory = np.resize(self._directory, 2 * self._page_count)
        self._directory[self._page_count] = entry
        self._page_count += 1

    def _hand_on(self, page: np.ndarray) -> None:
        """Gather pages: a write is about a megabyte."""
        if self._out_used + len(page) > _OUT_BYTES:
            self._flush()
        if len(page) > _OUT_BYTES:
            self._file.write(page.data)
            return
        self._out[self._out_used : self._out_used + len(page)] = page
        self._out_used += len(page)

    def _flush(self) -> None:
        used, self._out_used = self._out_used, 0
        self._file.write(self._out[:used].data)

    def _keep(self, addresses: np.ndarray, bases: np.ndarray) -> None:
        """Copy the rows that wait for their page: the caller may release them."""
        count = len(addresses)
        if not count:
            self._kept = np.empty(0, np.int64), np.empty(0, np.int64)
            return
        addresses, bases = np.ascontiguousarray(addresses), np.ascontiguousarray(bases)
        rows = np.empty(int(k.kept_bytes(address(addresses), count)), np.uint8)
        kept = np.empty(count, np.int64)
        k.keep_rows(address(addresses), address(bases), count, address(rows), address(kept))
        self._kept_rows, self._kept = rows, (kept, np.zeros(count, np.int64))

    # -- the tail ------------------------------------------------------------------------------------

    def _write_tail(self, min_time: int, max_time: int) -> int:
        """Write all parts, the part table and the footer; return the footer's checksum."""
        directory = self._encode_directory(min_time, max_time)
        groups, packed = encode_queues(self._queues)
        topics = self._encode_topics()
        checked = [_padded(groups.view(np.uint8)), _padded(packed), directory.view(np.uint8)]
        sums = block_sums([np.concatenate(checked)], self._uuid, Part.CHECKSUMS)
        partitions, fingerprints = self._encode_filter()
        statistics = self._encode_statistics(min_time, max_time)
        extra = json.dumps(self._extra, separators=(",", ":"), sort_keys=True).encode()
        parts: list[tuple[Part, list[Buffer | np.ndarray]]] = [
            (Part.HEADER_COPY, [self._header.rstrip(b"\0")]),
            (Part.STATISTICS, [statistics]),
            (Part.DICTIONARIES, [self._names.tobytes()]),
            (Part.TOPICS, [topics]),
            (Part.EXTRA, [extra]),
            (Part.CHECKSUMS, [sums.tobytes()]),
            (Part.FILTER_PARTITIONS, [partitions]),
            (Part.QUEUE_GROUPS, [groups.tobytes()]),
            (Part.QUEUES, [packed.tobytes()]),
            (Part.DIRECTORY, [directory.tobytes()]),
            (Part.FILTER, list(fingerprints)),
        ]
        parts[5:5] = [(kind, [data]) for kind, data in self._more.items() if data is not None]
        return self._file.write_tail(parts, form=Form.GROUPED, item_count=self._message_count)

    def _encode_directory(self, min_time: int, max_time: int) -> np.ndarray:
        closing = (self._file.position, len(self._queues), 0, min_time, max_time)
        self._note_page(closing)
        self._page_count -= 1
        return self._directory[: self._page_count + 1]

    def _encode_topics(self) -> bytes:
        topics = np.zeros(len(self._ends), layout.TOPIC)
        topics["name_end"] = self._ends
        queues = np.bincount(self._queues.topics, minlength=len(topics))
        topics["queue_count"], topics["first_queue"] = queues, np.cumsum(queues) - queues
        for column, name in enumerate(("message_count", "body_bytes", "min_time", "max_time")):
            topics[name] = self._totals[:, column]
        return topics.tobytes()

    def _encode_filter(self) -> tuple[bytes, list[np.ndarray]]:
        """Return partitions and fingerprints of the filter over all queues."""
        queues = self._queues
        hashes, ids = np.empty(len(queues), np.uint64), queues.queue_ids.astype(np.int32)
        hash_queues(
            address(self._names), address(self._ends), address(self._topic_of),
            address(ids), len(queues), address(hashes),
        )  # fmt: skip
        builder = FilterBuilder(self._uuid, self._filter_bits, len(queues))
        builder.add(np.unique(hashes))
        return builder.finish()

    def _encode_statistics(self, min_time: int, max_time: int) -> bytes:
        statistics = np.zeros((), layout.GROUPED_STATISTICS)
        statistics["message_count"] = self._message_count
        statistics["body_bytes"] = self._totals[:, 1].sum()
        statistics["payload_bytes"] = self._payload_bytes
        statistics["queue_count"], statistics["topic_count"] = len(self._queues), len(self._ends)
        statistics["page_count"] = self._page_count
        statistics["filter_bits"] = self._filter_bits
        statistics["min_time"], statistics["max_time"] = min_time, max_time
        return statistics.tobytes()


def _padded(piece: np.ndarray) -> np.ndarray:
    """Return a part's bytes with the zeros behind them: checked as they lie in the file."""
    return np.concatenate([piece, np.zeros(-len(piece) % 8, np.uint8)])
