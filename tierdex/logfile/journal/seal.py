"""The immutable end of a sealed journal: dense index, queues, parts, footer.

    | HEADER | batches, padded to 4096 | slots | queues, padded to 4096 | parts ... | FOOTER |

The *dense index* is the slots: 4 bytes a message, queue by queue, in order of topic, queue and offset. It
comes from the chunks in memory, not from the rows. Everything from the first batch to the last queue has
a block's checksum and is verified when first used; everything after it has a part's.

Where the length alone would show a sealed file (a tail behind the capacity), all else is synced before the
footer is written: a power cut left a footer over blocks that were not durable.

Depends on blocks, fileparts, layout, kernels, scan and tables.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np

from tierdex.fileparts.footer import PartEntry, encode_footer, make_part
from tierdex.fileparts.layout import BLOCK_BYTES, HEADER_BYTES, Part, round_up
from tierdex.fileparts.memory import address
from tierdex.logfile import layout
from tierdex.logfile.blocks import block_sums
from tierdex.logfile.journal.kernels import locate as k
from tierdex.logfile.journal.kernels import state as s
from tierdex.logfile.layout import Form

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tierdex.logfile.header import LogHeader
    from tierdex.logfile.journal.scan import BatchScan
    from tierdex.logfile.journal.tables import Tables


def encode_tail(
    header: LogHeader, data: np.ndarray, tables: Tables, scan: BatchScan, extra: Mapping[str, Any]
) -> tuple[list[memoryview], bytes]:
    """Return what follows the batches of `data` (u1, the file from byte 0), in pieces, and the ending.

    That is part table and footer: what makes the file a sealed one.
    """
    end = scan.end
    padding = np.zeros(round_up(end.position, BLOCK_BYTES) - end.position, np.uint8)
    queues, topics, names = sorted_queues(tables)
    slot_bytes = layout.SLOT_BYTES * int(queues["count"].sum())
    index_bytes = slot_bytes + queues.nbytes
    index = np.zeros(round_up(index_bytes, BLOCK_BYTES), np.uint8)  # the only copy: it is large
    dense_index(tables, queues, index[:slot_bytes].view(np.uint32))
    index[slot_bytes:index_bytes] = queues.view(np.uint8)
    queue_count = len(queues)
    del queues
    batches = data[HEADER_BYTES : end.position - end.position % BLOCK_BYTES]
    last = np.concatenate([data[HEADER_BYTES + len(batches) : end.position], padding])
    index_begin = end.position + len(padding)
    sums = block_sums([batches, last, index], header.uuid)
    position = index_begin + len(index)
    entries = [
        make_part(
            Part.SLOTS,
            header.uuid,
            index[:slot_bytes],
            index_begin,
            slot_bytes // layout.SLOT_BYTES,
        ),
        make_part(
            Part.QUEUES,
            header.uuid,
            index[slot_bytes:index_bytes],
            index_begin + slot_bytes,
            queue_count,
        ),
    ]
    pieces = [padding.data, index.data]
    for kind, piece, detail in (
        (Part.DICTIONARIES, names.tobytes(), len(topics)),
        (Part.TOPICS, topics.tobytes(), len(topics)),
        (Part.STATISTICS, _statistics(tables, scan, queue_count, len(topics)), 0),
        (Part.CHECKPOINTS, scan.checkpoints.tobytes(), len(scan.checkpoints)),
        (Part.EXTRA, json.dumps(dict(extra), separators=(",", ":"), sort_keys=True).encode(), 0),
        (Part.BLOCK_CHECKSUMS, sums.tobytes(), len(sums)),
    ):
        entries.append(make_part(kind, header.uuid, piece, position, detail))
        gap = bytes(-len(piece) % 8)
        pieces += [memoryview(piece), memoryview(gap)]
        position += len(piece) + len(gap)
    return pieces, _ending(header, entries, tables.message_count, position)


def _ending(header: LogHeader, entries: list[PartEntry], messages: int, position: int) -> bytes:
    """Return part table and footer; a sealed file never has an unsealed one's length."""
    gap = b""
    while True:
        ending = encode_footer(
            form=Form.JOURNAL,
            uuid=header.uuid,
            item_count=messages,
            parts=entries,
            position=position + len(gap),
        )
        if position + len(gap) + len(ending) != header.capacity:
            return gap + ending
        gap = bytes(8)


def sorted_queues(tables: Tables) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return (queues, topics, names u1) that have messages, as a sealed file stores them."""
    states = tables.states()
    order_of_topics, ends, names = _sorted_names(tables)
    rank = np.empty(len(order_of_topics), np.int64)
    rank[order_of_topics] = np.arange(len(order_of_topics))
    numbers = np.flatnonzero(states["count"])
    keys = (rank[states["topic"][numbers]] << 32) | states["queue_id"][numbers].astype(np.int64)
    order = np.argsort(keys, kind="stable")
    numbers, keys = numbers[order], keys[order]
    used, first, counts = np.unique(keys >> 32, return_index=True, return_counts=True)
    lengths = np.diff(ends, prepend=0)[order_of_topics[used]]
    topics = np.zeros(len(used), layout.TOPIC)
    topics["name_end"] = np.cumsum(lengths)
    topics["first_queue"], topics["queue_count"] = first, counts
    totals = tables.totals()[order_of_topics[used]]
    for column, name in enumerate(("message_count", "body_bytes", "min_time", "max_time")):
        topics[name] = totals[:, column]
    queues = np.zeros(len(numbers), layout.JOURNAL_QUEUE)
    queues["topic"] = np.repeat(np.arange(len(used)), counts)
    for name in ("queue_id", "first_offset", "count"):
        queues[name] = states[name][numbers]
    queues["number"] = numbers
    queues["first_slot"] = np.cumsum(queues["count"], dtype=np.uint64) - queues["count"]
    return queues, topics, _picked_names(order_of_topics[used], ends, names)


def _sorted_names(tables: Tables) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return (topics' numbers in order of their names' bytes, ends of names, bytes of names)."""
    import pyarrow as pa
    import pyarrow.compute as pc

    ends, names = tables.names()
    offsets = np.concatenate([[0], ends]).astype(np.int64)
    column = pa.LargeBinaryArray.from_buffers(
        pa.large_binary(), len(ends), [None, pa.py_buffer(offsets), pa.py_buffer(names)]
    )
    order = pc.sort_indices(column).to_numpy().astype(np.int64)
    return order, ends, names


def _picked_names(picked: np.ndarray, ends: np.ndarray, names: np.ndarray) -> np.ndarray:
    """Return the bytes of the picked topics' names, one after the other."""
    begins = np.concatenate([[0], ends[:-1]]).astype(np.int64)
    lengths = (ends - begins)[picked]
    shift = begins[picked] - (np.cumsum(lengths) - lengths)
    places = np.arange(int(lengths.sum())) + np.repeat(shift, lengths)
    picked_names: np.ndarray = names[places]
    return picked_names


def dense_index(tables: Tables, queues: np.ndarray, slots: np.ndarray) -> np.ndarray:
    """Write the slots (u4) of all messages in the order of `queues`, and return them."""
    words, _arrays = tables.snapshot
    numbers = np.ascontiguousarray(queues["number"], np.uint32)
    done = int(k.locate_all(words, address(numbers), len(numbers), address(slots)))
    assert done == len(slots), "rows were staged while the journal was sealed"
    return slots


def _statistics(tables: Tables, scan: BatchScan, queue_count: int, topic_count: int) -> bytes:
    words, end = tables.words, scan.end
    statistics = np.zeros((), layout.JOURNAL_STATISTICS)
    messages = tables.message_count
    statistics["message_count"], statistics["body_bytes"] = messages, words[s.W_BODY_BYTES]
    statistics["batch_count"], statistics["batch_crc"] = end.number, end.crc
    statistics["end"] = end.position
    statistics["queue_count"], statistics["topic_count"] = queue_count, topic_count
    statistics["base_time"] = words[s.W_BASE_TIME]
    statistics["min_time"] = words[s.W_MIN_TIME] if messages else 0
    statistics["max_time"] = words[s.W_MAX_TIME] if messages else -1
    return statistics.tobytes()
