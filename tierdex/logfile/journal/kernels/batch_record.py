"""The record of a batch, which makes the rows of a stage one that verifies.

    close_stage   record before the rows of the open stage, entries and zeros behind them; opens the other
    seal_record   its checksum
    batch_crc     what the checksum of a batch must be

Depends on state, checksum, intrinsics and layout.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from tierdex.fileparts.kernels.checksum import crc32c, numbered_seed
from tierdex.fileparts.kernels.compile import direct_call, kernel, primitive, short_kernel, types
from tierdex.fileparts.kernels.intrinsics import (
    copy_bytes,
    store_i64,
    store_u8,
    store_u32,
)
from tierdex.logfile import layout
from tierdex.logfile.journal.kernels.state import (
    V_ADDRESS,
    V_BEGIN,
    V_CLOSED_ADDRESS,
    V_CLOSED_BEGIN,
    V_COUNT,
    V_ENTRIES,
    V_ENTRY_USED,
    V_LIMIT,
    V_USED,
    W_BASE_TIME,
)

_RECORD = layout.places(layout.RECORD)
_MAGIC = np.uint32(layout.RECORD_MAGIC)
_R_MAGIC, _R_CRC, _R_NUMBER = _RECORD["magic"], _RECORD["crc"], _RECORD["number"]
_R_COUNT, _R_ENTRIES = _RECORD["message_count"], _RECORD["entry_bytes"]
_R_ROWS, _R_TIME, _R_UUID = _RECORD["row_bytes"], _RECORD["base_time"], _RECORD["uuid"]
_R_FLAGS, _R_SYNCED = _RECORD["flags"], _RECORD["synced_to"]
_RECORD_BYTES: Final = layout.RECORD_BYTES
_UUID_BYTES: Final = _R_FLAGS - _R_UUID
_BATCH_UNIT: Final = layout.BATCH_UNIT
_CRC_END: Final = _R_NUMBER  # the checksum covers what follows it


@short_kernel
def close_stage(
    words: Any, stage: Any, number: int, uuid: int, synced_to: int, other: int, room: int, capacity: int
) -> Any:  # fmt: skip
    """Make a batch of the open stage, and open that at the address `other`; return the batch's bytes.

    Its rows begin behind the record; another record's room behind it is zeroed. `synced_to` are blocks,
    `room` the bytes of a stage, `capacity` those of the file. Readers of staged rows keep the GIL, too:
    they see the open stage, or the closed one and the next.
    """
    length = _write_record(words, stage, number, uuid, synced_to)
    stage[V_CLOSED_BEGIN], stage[V_CLOSED_ADDRESS] = stage[V_BEGIN], stage[V_ADDRESS]
    open_stage(stage, stage[V_BEGIN] + length, other, room, capacity)
    return length


@short_kernel
def open_stage(stage: Any, position: int, memory: int, room: int, capacity: int) -> None:
    """Open an empty stage, whose batch goes to byte `position` of the file."""
    stage[V_BEGIN], stage[V_ADDRESS] = position, memory
    stage[V_USED], stage[V_LIMIT] = _RECORD_BYTES, min(room, capacity - position) - _BATCH_UNIT
    stage[V_COUNT] = stage[V_ENTRY_USED] = 0


@primitive
def _write_record(words: Any, stage: Any, number: int, uuid: int, synced_to: int) -> Any:
    memory, entries, rows_end = stage[V_ADDRESS], stage[V_ENTRY_USED], stage[V_USED]
    end = rows_end + entries
    length = (end + _BATCH_UNIT - 1) & ~np.int64(_BATCH_UNIT - 1)
    copy_bytes(memory + rows_end, stage[V_ENTRIES], entries)
    for place in range(memory + end, memory + length + _RECORD_BYTES):
        store_u8(place, np.uint8(0))
    store_u32(memory + _R_MAGIC, _MAGIC)
    store_u32(memory + _R_CRC, np.uint32(0))
    store_i64(memory + _R_NUMBER, number)
    store_u32(memory + _R_COUNT, np.uint32(stage[V_COUNT]))
    store_u32(memory + _R_ENTRIES, np.uint32(entries))
    store_i64(memory + _R_ROWS, rows_end - _RECORD_BYTES)
    store_i64(memory + _R_TIME, words[W_BASE_TIME])
    copy_bytes(memory + _R_UUID, uuid, np.int64(_UUID_BYTES))
    store_u32(memory + _R_FLAGS, np.uint32(0))
    store_u32(memory + _R_SYNCED, np.uint32(synced_to))
    return length


@kernel
def batch_crc(address: int, length: int, seed: Any, number: int, previous: int) -> Any:
    """Return the checksum of the batch at `address`; `previous` is that of the batch before it."""
    begin = numbered_seed(numbered_seed(np.uint32(seed), np.uint64(number)), np.uint64(previous))
    return np.int64(crc32c(address + _CRC_END, np.int64(length - _CRC_END), begin))


@kernel
def seal_record(address: int, length: int, seed: Any, number: int, previous: int) -> Any:
    """Set the checksum of the batch at `address`; return it."""
    crc = batch_crc(address, length, seed, number, previous)
    store_u32(address + _R_CRC, np.uint32(crc))
    return crc


_WORDS: Any = types.Array(types.int64, 1, "C")


def load_close_stage() -> Any:
    """Return what calls `close_stage`: numba's look at the arguments would double what it costs."""
    return direct_call(close_stage, _WORDS, _WORDS, *[types.int64] * 6)


def load_seal_record() -> Any:
    """Return what calls `seal_record`, likewise."""
    return direct_call(seal_record, *[types.int64] * 5)
