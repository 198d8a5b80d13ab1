import google_crc32c
import numpy as np
import pytest

from tierdex.fileparts.checksums import part_seed, unit_seed
from tierdex.fileparts.kernels import checksum
from tierdex.fileparts.kernels.intrinsics import HAS_SSE42_CRC
from tierdex.fileparts.layout import Part

DATA = np.random.default_rng(5).integers(0, 256, 10_000).astype(np.uint8)
KERNELS = [checksum.crc32c_by_table] + [checksum.crc32c_by_instruction] * HAS_SSE42_CRC


@pytest.mark.parametrize("crc32c", KERNELS)
def test_kernel_equals_the_package_for_every_short_length(crc32c):
    for length in [*range(40), 1007, 1008, 1031, 4079, 4080, 4096, 5200, len(DATA)]:
        for seed in (0, 1, 0xFFFFFFFF):
            expected = google_crc32c.extend(seed, DATA[:length].tobytes())
            assert crc32c(DATA.ctypes.data, length, np.uint32(seed)) == expected


def test_units_of_kernel_and_package_have_the_same_seed():
    uuid = bytes(range(16))
    for number in (0, 1, 1 << 40):
        found = checksum.numbered_seed(np.uint32(part_seed(uuid, Part.PAGE)), np.uint64(number))
        assert found == unit_seed(uuid, Part.PAGE, number)


def test_equal_blocks_in_different_places_have_different_checksums():
    data = np.concatenate([DATA[:4096], DATA[:4096]])
    sums = np.zeros(2, np.uint32)
    checksum.block_checksums(data.ctypes.data, 4096, 2, np.uint32(7), sums.ctypes.data)
    assert sums[0] != sums[1]


def test_fingerprint_of_rows_does_not_depend_on_their_order():
    rows = DATA[:4000].reshape(-1, 40)
    other = rows[::-1].copy()
    count = len(rows)
    one = checksum.rows_fingerprint(rows.ctypes.data, 40, count)
    assert one == checksum.rows_fingerprint(other.ctypes.data, 40, count)
    other[3, 17] ^= 1
    assert one != checksum.rows_fingerprint(other.ctypes.data, 40, count)
