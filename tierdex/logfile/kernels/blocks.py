"""A range of bytes in blocks of 4096, each with a checksum, verified when first used.

`words` of a range: the address of its first byte, its length, the addresses of the checksums (u4 a block)
and of the byte map of verified blocks, the seed. The last block may be short. Two threads may verify the
same block at once: both write the same byte. Depends on checksum, intrinsics,
layout and the kernel decorator.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from tierdex.fileparts.kernels.checksum import crc32c, numbered_seed
from tierdex.fileparts.kernels.compile import kernel
from tierdex.fileparts.kernels.intrinsics import load_u8, load_u32, store_u8, store_u32
from tierdex.fileparts.layout import BLOCK_BYTES

R_ADDRESS, R_LENGTH, R_SUMS, R_VERIFIED, R_SEED = range(5)
RANGE_WORDS: Final = 5
SOUND: Final = -1
_BLOCK: Final = BLOCK_BYTES


@kernel
def block_sums(address: int, length: int, first: int, seed: Any, out: int) -> None:
    """Write the checksum (u4) of each block of `length` bytes; the first one has number `first`."""
    for i in range((length + _BLOCK - 1) // _BLOCK):
        begin = numbered_seed(np.uint32(seed), np.uint64(first + i))
        size = min(_BLOCK, length - i * _BLOCK)
        store_u32(out + 4 * i, crc32c(address + i * _BLOCK, np.int64(size), begin))


@kernel
def touch(words: Any, begin: int, end: int) -> Any:
    """Verify the blocks of [begin, end) of a range; return SOUND, or the first block that is not.

    Bytes beyond the range count as damage of its last block.
    """
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
