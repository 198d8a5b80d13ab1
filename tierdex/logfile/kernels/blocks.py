"""A range of bytes in blocks of 4096, each with a checksum, verified when first used.

`words` of a range: the address of its first byte, its length, the addresses of the checksums (u4 a block)
and of the byte map of verified blocks, the seed, their own address. The last block may be short. Two
threads may verify the same block at once: both write the same byte. Depends on checksum, intrinsics, layout
and the kernel decorator.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from tierdex.fileparts.kernels.checksum import crc32c, numbered_seed
from tierdex.fileparts.kernels.compile import carray, kernel, primitive
from tierdex.fileparts.kernels.intrinsics import (
    load_i64,
    load_u8,
    load_u32,
    numbers_at,
    store_u8,
    store_u32,
)
from tierdex.fileparts.layout import BLOCK_BYTES

R_ADDRESS, R_LENGTH, R_SUMS, R_VERIFIED, R_SEED, R_SELF = range(6)
RANGE_WORDS: Final = 6
SOUND: Final = -1
_BLOCK: Final = BLOCK_BYTES
_BLOCK_BITS: Final = BLOCK_BYTES.bit_length() - 1


@kernel
def block_sums(address: int, length: int, first: int, seed: Any, out: int) -> None:
    """Write the checksum (u4) of each block of `length` bytes; the first one has number `first`."""
    for i in range((length + _BLOCK - 1) // _BLOCK):
        begin = numbered_seed(np.uint32(seed), np.uint64(first + i))
        size = min(_BLOCK, length - i * _BLOCK)
        store_u32(out + 4 * i, crc32c(address + i * _BLOCK, np.int64(size), begin))


@primitive
def touch(place: int, begin: int, end: int) -> Any:
    """Verify the blocks of [begin, end) of the range whose words lie at `place`, in their R_SELF.

    Returns SOUND, or the first block that is not. Bytes beyond the range count as damage of its last block.
    Most were verified before: one look tells. An array instead of its place would cost 10 ns a call.
    """
    first, last = begin >> _BLOCK_BITS, (end - 1) >> _BLOCK_BITS
    if 0 <= begin < end <= load_i64(place + 8 * R_LENGTH) and last <= first + 1:
        verified = load_i64(place + 8 * R_VERIFIED)
        if load_u8(verified + first) & load_u8(verified + last) != 0:
            return np.int64(SOUND)
    return verify(place, begin, end)


@kernel
def verify(place: int, begin: int, end: int) -> Any:
    """Do as `touch`, block by block."""
    words = carray(numbers_at(place), (RANGE_WORDS,))
    length = words[R_LENGTH]
    if begin < 0 or end > length:
        return np.int64(max(0, (length - 1) // _BLOCK))
    for block in range(begin // _BLOCK, (end + _BLOCK - 1) // _BLOCK):
        if load_u8(words[R_VERIFIED] + block) == 0:
            size = min(_BLOCK, length - block * _BLOCK)
            seed = numbered_seed(np.uint32(words[R_SEED]), np.uint64(block))
            crc = crc32c(words[R_ADDRESS] + block * _BLOCK, np.int64(size), seed)
            if crc != load_u32(words[R_SUMS] + 4 * block):
                return np.int64(block)
            store_u8(words[R_VERIFIED] + block, np.uint8(1))
    return np.int64(SOUND)
