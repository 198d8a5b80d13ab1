"""Batches as they lie in a file: which bytes are one that verifies, and taking them into the index.

    batch_length   the length that a record claims, when it can be the next batch
    take_batches   batches that verify -> tables and slots        (recovery, readers of other processes)
    list_rows      rows of one batch that verified -> addresses, queues   (a scan in order of arrival)

Rows and entries of a batch that verifies are held to the rules all the same: nothing is read or stored
outside. Depends on state, define, batch_record, totals, intrinsics and layout.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from tierdex.fileparts.kernels.compile import direct_call, kernel, short_kernel, types
from tierdex.fileparts.kernels.intrinsics import (
    load_i32,
    load_i64,
    load_u8,
    load_u32,
    load_u64,
    store_i64,
)
from tierdex.logfile import layout
from tierdex.logfile.journal.kernels.batch_record import batch_crc
from tierdex.logfile.journal.kernels.define import take_entries
from tierdex.logfile.journal.kernels.state import (
    S_TOPIC,
    STATE_AHEAD,
    STATE_BYTES,
    TAIL_AHEAD,
    W_BASE_TIME,
    W_HAS_BASE,
    W_MAX_TIME,
    W_MESSAGES,
    W_NAME_ENDS,
    W_NAMES_LIMIT,
    W_QUEUE_COUNT,
    W_QUEUE_LIMIT,
    W_STATES,
    W_TOPIC_COUNT,
    W_TOPIC_LIMIT,
    add_totals,
    ask_state,
    ask_tail,
    name_bounds,
    note_row,
)
from tierdex.logfile.kernels.totals import TIME_MAX, TIME_MIN

# Words of a scan.
(
    X_NUMBER, X_CRC, X_POSITION,  # the batch that comes next: number, crc of the one before, place
    X_ROW, X_ROWS_END,  # place of the next row of the batch that is being taken; both 0: none is
    X_SEED, X_UUID, X_SYNCED_TO,
    X_CHECKPOINTS, X_CHECKPOINT_LIMIT,
    X_ENTRY_BYTES,  # of the batch for whose entries the tables lack room
) = range(11)  # fmt: skip
SCAN_WORDS: Final = 12

# Answers of take_batches.
SCAN_END = 0  # the next bytes are no batch that verifies
SCAN_GROW = 1  # a table, the arena or the checkpoints are short of room: make some, and go on
SCAN_BROKEN = 2  # a batch that verifies breaks a rule

_RECORD = layout.places(layout.RECORD)
_MAGIC = np.uint32(layout.RECORD_MAGIC)
_R_MAGIC, _R_CRC, _R_NUMBER = _RECORD["magic"], _RECORD["crc"], _RECORD["number"]
_R_COUNT, _R_ENTRIES, _R_ROWS = (
    _RECORD["message_count"],
    _RECORD["entry_bytes"],
    _RECORD["row_bytes"],
)
_R_TIME, _R_UUID = _RECORD["base_time"], _RECORD["uuid"]
_WORD: Final = 8  # of the two that a uuid has
_R_UUID_REST: Final = _R_UUID + _WORD
_R_FLAGS, _R_SYNCED = _RECORD["flags"], _RECORD["synced_to"]
_RECORD_BYTES: Final = layout.RECORD_BYTES
_BATCH_UNIT: Final = layout.BATCH_UNIT
_ENTRY_BYTES: Final = layout.ENTRY_BYTES
_CHECKPOINT_BATCHES: Final = layout.CHECKPOINT_BATCHES
_CHECKPOINT_BYTES: Final = layout.CHECKPOINT.itemsize
_CHECKPOINT = layout.places(layout.CHECKPOINT)
_C_POSITION, _C_CRC = _CHECKPOINT["position"], _CHECKPOINT["crc"]
_C_COUNT, _C_TIME = _CHECKPOINT["message_count"], _CHECKPOINT["max_time"]
_ROW = layout.places(layout.ROW)
_SIZE, _QUEUE, _TIME = _ROW["size"], _ROW["queue"], _ROW["time"]
_ROW_BYTES: Final = layout.ROW_BYTES
_UNIT: Final = layout.POSITION_UNIT
_BODY_MASK: Final = layout.BODY_BYTES_MAX
_FLAGS: Final = layout.ROW_FLAGS
_HAS_EXTRA, _LONG = layout.ROW_HAS_EXTRA, layout.ROW_LONG_TIME
_LONG_BYTES: Final = layout.LONG_TIME_BYTES
_EXTRA_LENGTH: Final = layout.EXTRA_LENGTH_BYTES
_RING: Final = 64
assert STATE_AHEAD < _RING


@kernel
def batch_length(scan: Any, address: int, most: int) -> Any:
    """Return the bytes of the batch whose record is at `address`; 0 when it cannot be the next one.

    `most` bytes are left in the file. The record itself can be read.
    """
    if load_u32(address + _R_MAGIC) != _MAGIC or load_u32(address + _R_FLAGS) != 0:
        return np.int64(0)
    uuid = scan[X_UUID]
    count, rows = np.int64(load_u32(address + _R_COUNT)), load_i64(address + _R_ROWS)
    entries = np.int64(load_u32(address + _R_ENTRIES))
    if (
        load_i64(address + _R_NUMBER) != scan[X_NUMBER]
        or load_u64(address + _R_UUID) != load_u64(uuid)
        or load_u64(address + _R_UUID_REST) != load_u64(uuid + _WORD)
        or (count == 0 and (rows != 0 or entries == 0))
        or rows < count * _ROW_BYTES
        or rows > most
        or rows % _UNIT
    ):
        return np.int64(0)
    length = (_RECORD_BYTES + rows + entries + _BATCH_UNIT - 1) & ~np.int64(_BATCH_UNIT - 1)
    return length if length <= most else np.int64(0)


@kernel
def row_length(address: int, most: int) -> Any:
    """Return the bytes of the row at `address` before rounding, 0 when it does not end in `most`."""
    if most < _ROW_BYTES:
        return np.int64(0)
    size = np.int64(load_u32(address + _SIZE))
    length = _ROW_BYTES + (size & _BODY_MASK)
    if size & ~np.int64(_BODY_MASK | _FLAGS):
        return np.int64(0)
    head = np.int64(_ROW_BYTES)
    if size & _LONG:
        head += _LONG_BYTES
        length += _LONG_BYTES
    if size & _HAS_EXTRA:
        if head + _EXTRA_LENGTH > most:
            return np.int64(0)
        length += _EXTRA_LENGTH + np.int64(load_u32(address + head))
    return length if length <= most else np.int64(0)


@kernel
def row_time(address: int, base: int) -> Any:
    """Return the time of the row at `address`."""
    if np.int64(load_u32(address + _SIZE)) & _LONG:
        return load_i64(address + _ROW_BYTES)
    return base + np.int64(load_i32(address + _TIME))


@kernel
def _lacks_room(words: Any, scan: Any, entry_bytes: int) -> bool:
    """Return whether the tables may be too small for a batch with so many bytes of entries."""
    entries = entry_bytes // _ENTRY_BYTES
    topics = words[W_TOPIC_COUNT]
    names = name_bounds(words[W_NAME_ENDS], topics - 1)[1] if topics > 0 else np.int64(0)
    return bool(
        words[W_QUEUE_COUNT] + entries > words[W_QUEUE_LIMIT]
        or topics + entries > words[W_TOPIC_LIMIT]
        or names + entry_bytes > words[W_NAMES_LIMIT]
        or scan[X_NUMBER] // _CHECKPOINT_BATCHES >= scan[X_CHECKPOINT_LIMIT]
    )


@kernel
def _note_checkpoint(scan: Any, messages: int, greatest: int) -> None:
    """Note where the batch begins that comes next, if it is one of those; there is room."""
    if scan[X_NUMBER] % _CHECKPOINT_BATCHES:
        return
    place = scan[X_CHECKPOINTS] + _CHECKPOINT_BYTES * (scan[X_NUMBER] // _CHECKPOINT_BATCHES)
    store_i64(place + _C_POSITION, scan[X_POSITION])
    store_i64(place + _C_CRC, scan[X_CRC])
    store_i64(place + _C_COUNT, messages)
    store_i64(place + _C_TIME, greatest)


@short_kernel
def step_over(scan: Any, length: int, crc: int, messages: int, greatest: int) -> bool:
    """Scan a batch that was written; False, and nothing done, without room for its checkpoint.

    `messages` and `greatest` time are those before it.
    """
    if scan[X_NUMBER] // _CHECKPOINT_BATCHES >= scan[X_CHECKPOINT_LIMIT]:
        return False
    _note_checkpoint(scan, messages, greatest)
    scan[X_POSITION] += length
    scan[X_NUMBER] += 1
    scan[X_CRC] = crc
    return True


def load_step_over() -> Any:
    """Return what calls `step_over`, and does not look at the arguments first."""
    words: Any = types.Array(types.int64, 1, "C")
    return direct_call(step_over, words, *[types.int64] * 4)


@kernel
def _enter_batch(words: Any, scan: Any, base: int, length: int) -> Any:
    """Take entries of the verified batch at X_POSITION; its rows come next. False: a broken rule."""
    position = scan[X_POSITION]
    address, number = base + position, scan[X_NUMBER]
    _note_checkpoint(scan, words[W_MESSAGES], words[W_MAX_TIME])
    rows, entries = load_i64(address + _R_ROWS), np.int64(load_u32(address + _R_ENTRIES))
    time = load_i64(address + _R_TIME)
    if words[W_HAS_BASE] == 0 and rows > 0:
        words[W_BASE_TIME] = time
        words[W_HAS_BASE] = 1
    if time != words[W_BASE_TIME]:
        return False
    begin = address + _RECORD_BYTES + rows
    if not take_entries(words, begin, begin + entries):
        return False
    for place in range(begin + entries, address + length):
        if load_u8(place) != 0:
            return False
    scan[X_SYNCED_TO] = max(scan[X_SYNCED_TO], np.int64(load_u32(address + _R_SYNCED)))
    scan[X_ROW] = position + _RECORD_BYTES
    scan[X_ROWS_END] = position + _RECORD_BYTES + rows
    scan[X_CRC] = np.int64(load_u32(address + _R_CRC))
    scan[X_NUMBER] = number + 1
    scan[X_POSITION] = position + length
    return True


@kernel
def _take_rows(words: Any, scan: Any, base: int) -> Any:
    """Take the rows from X_ROW to X_ROWS_END into the index.

    Each row is held to the rules once, STATE_AHEAD rows before it is taken; the ring has what was found.
    """
    end, states, base_time = scan[X_ROWS_END], words[W_STATES], words[W_BASE_TIME]
    queue_count = words[W_QUEUE_COUNT]
    ring = np.empty((_RING, 2), np.int64)  # place and queue of the rows that were looked at
    ahead, seen, taken = scan[X_ROW], np.int64(0), np.int64(0)
    topic, messages, message_bytes = np.int64(0), np.int64(0), np.int64(0)
    least, greatest, answer = TIME_MAX, TIME_MIN, SCAN_END
    while True:
        while ahead < end and seen < taken + STATE_AHEAD:
            length = row_length(base + ahead, end - ahead)
            queue = np.int64(load_u32(base + ahead + _QUEUE)) if length > 0 else queue_count
            if queue >= queue_count:
                answer, end = SCAN_BROKEN, ahead  # those before it are taken
                break
            ask_state(words, queue)
            ring[seen & (_RING - 1), 0], ring[seen & (_RING - 1), 1] = ahead, queue
            seen += 1
            ahead += (length + (_UNIT - 1)) & ~np.int64(_UNIT - 1)
        if taken == seen:
            scan[X_ROW] = scan[X_ROWS_END] = 0
            break
        if taken + TAIL_AHEAD < seen:
            ask_tail(words, ring[(taken + TAIL_AHEAD) & (_RING - 1), 1])
        position, queue = ring[taken & (_RING - 1), 0], ring[taken & (_RING - 1), 1]
        state = states + STATE_BYTES * queue
        if not note_row(words, state, np.uint32(position // _UNIT)):
            scan[X_ROW], answer = position, SCAN_GROW
            break
        its_topic = np.int64(load_u32(state + S_TOPIC))
        if its_topic != topic:
            add_totals(words, topic, messages, message_bytes, least, greatest)
            topic, messages, message_bytes = its_topic, np.int64(0), np.int64(0)
            least, greatest = TIME_MAX, TIME_MIN
        time = row_time(base + position, base_time)
        messages += 1
        message_bytes += np.int64(load_u32(base + position + _SIZE)) & _BODY_MASK
        least, greatest = min(least, time), max(greatest, time)
        taken += 1
    add_totals(words, topic, messages, message_bytes, least, greatest)
    return answer


@kernel
def take_batches(words: Any, scan: Any, base: int, end: int) -> Any:
    """Take batch after batch while they lie before `end`; stop as a SCAN_* answer says.

    Byte p of the file lies at address `base` + p. At SCAN_END, X_POSITION is the first byte that belongs
    to no batch that verifies and ends by `end`.
    """
    while True:
        if scan[X_ROW] != 0:
            answer = _take_rows(words, scan, base)
            if answer != SCAN_END:
                return answer
        position = scan[X_POSITION]
        if position + _RECORD_BYTES > end:
            return SCAN_END
        length = batch_length(scan, base + position, end - position)
        if length == 0:
            return SCAN_END
        crc = batch_crc(
            base + position, length, np.uint32(scan[X_SEED]), scan[X_NUMBER], scan[X_CRC]
        )
        if crc != np.int64(load_u32(base + position + _R_CRC)):
            return SCAN_END
        entry_bytes = np.int64(load_u32(base + position + _R_ENTRIES))
        if _lacks_room(words, scan, entry_bytes):
            scan[X_ENTRY_BYTES] = entry_bytes
            return SCAN_GROW
        if not _enter_batch(words, scan, base, length):
            return SCAN_BROKEN


@kernel
def pass_batches(scan: Any, base: int, end: int) -> None:
    """Scan every batch that verifies and ends by `end`, without its content.

    Byte p of the file lies at address `base` + p.
    """
    while True:
        position = scan[X_POSITION]
        if position + _RECORD_BYTES > end:
            return
        length = batch_length(scan, base + position, end - position)
        if length == 0:
            return
        crc = batch_crc(
            base + position, length, np.uint32(scan[X_SEED]), scan[X_NUMBER], scan[X_CRC]
        )
        if crc != np.int64(load_u32(base + position + _R_CRC)):
            return
        scan[X_POSITION] = position + length
        scan[X_NUMBER] += 1
        scan[X_CRC] = crc


@kernel
def list_rows(address: int, count: int, queues_known: int, addresses: int, queues: int) -> Any:
    """Write the address (i8) and queue (i8) of each of the batch's rows; return how many are sound."""
    place = address + _RECORD_BYTES
    end = place + load_i64(address + _R_ROWS)
    for i in range(count):
        length = row_length(place, end - place)
        if length == 0:
            return np.int64(i)
        queue = np.int64(load_u32(place + _QUEUE))
        if queue >= queues_known:
            return np.int64(i)
        store_i64(addresses + 8 * i, place)
        store_i64(queues + 8 * i, queue)
        place += (length + (_UNIT - 1)) & ~np.int64(_UNIT - 1)
    return np.int64(count) if place == end else np.int64(0)
