"""Hashing a column of keys in blocks: the same hashes, and nothing read that is not the column's."""

import mmap

import numpy as np
import pyarrow as pa
import pytest
import xxhash

from tierdex.fileparts.memory import address
from tierdex.indexfile.columns import StringColumn
from tierdex.indexfile.hashing import plain_hashes
from tierdex.indexfile.kernels.key_column import hash_key_column

SEED = 0xFEDCBA9876543210
SIGNED_SEED = SEED - (1 << 64)


def hashes_of(values: list[bytes]) -> list[int]:
    return [xxhash.xxh64_intdigest(value, SEED) for value in values]


@pytest.mark.parametrize("kind", [pa.binary(), pa.large_binary()], ids=["32 bit", "64 bit"])
@pytest.mark.parametrize("most", [1, 8, 31, 33, 64, 300])
def test_hashes_equal_the_package_for_keys_of_mixed_lengths(kind, most):
    rng = np.random.default_rng(most)
    values = [rng.bytes(length) for length in rng.integers(1, most + 1, 1000)]
    column = StringColumn.from_values(pa.array(values, kind))
    found = plain_hashes(column, SEED, most, is_text=True)
    assert found is not None
    assert found.tolist() == hashes_of(values)


def test_slice_of_a_column_is_hashed_as_such():
    values = [b"%d" % (7**n) for n in range(200)]
    column = StringColumn.from_values(pa.array(values, pa.binary()).slice(33, 150))
    found = plain_hashes(column, SEED, 1024)
    assert found is not None
    assert found.tolist() == hashes_of(values[33:183])


@pytest.mark.parametrize("place", [0, 31, 32, 63, 64, 100, 199])
def test_byte_beyond_ascii_is_noticed_wherever_it_is(place):
    plain = [b"k" * 200] * 300
    odd = bytearray(plain[0])
    odd[place] = 0x80
    for row in (0, 127, 128, 299):
        values = [*plain[:row], bytes(odd), *plain[row + 1 :]]
        column = StringColumn.from_values(pa.array(values, pa.binary()))
        assert plain_hashes(column, SEED, 200) is None
        assert plain_hashes(column, SEED, 200, is_text=True) is not None
    assert plain_hashes(StringColumn.from_values(pa.array(plain, pa.binary())), SEED, 200)[0]


@pytest.mark.parametrize("row", [0, 127, 128, 299])
@pytest.mark.parametrize("bad", [b"", b"k" * 51], ids=["empty", "too long"])
def test_key_of_a_wrong_length_is_noticed(row, bad):
    values = [b"k" * 50] * 300
    assert plain_hashes(StringColumn.from_values(pa.array(values, pa.binary())), SEED, 50)[0]
    values[row] = bad
    column = StringColumn.from_values(pa.array(values, pa.binary()))
    assert plain_hashes(column, SEED, 50, is_text=True) is None


def test_offsets_that_lead_outside_are_refused():
    data = np.full(5000, ord("k"), np.uint8)
    out = np.zeros(300, np.uint64)
    sound = np.arange(301, dtype=np.int32) * 10
    for row, value in ((0, -1), (300, 5001), (150, 1_000_000), (150, -5)):
        offsets = sound.copy()
        offsets[row] = value
        for most in (50, 1 << 40):
            assert not hash_key_column(
                address(offsets), 4, address(data), len(data), 300, most, SIGNED_SEED, True, address(out)
            )  # fmt: skip


@pytest.mark.parametrize("length", [1, 20, 40, 90])
def test_nothing_beyond_the_columns_bytes_is_read(length):
    # The column ends with a mapped page: a load beyond it would likely end this process.
    memory = mmap.mmap(-1, 1 << 20)
    count = len(memory) // length
    data = np.frombuffer(memory, np.uint8)[len(memory) - count * length :]
    offsets = np.arange(count + 1, dtype=np.int64) * length
    out = np.zeros(count, np.uint64)
    assert hash_key_column(
        address(offsets), 8, address(data), len(data), count, 1024, SIGNED_SEED, False, address(out)
    )
    assert (out == np.uint64(xxhash.xxh64_intdigest(bytes(length), SEED))).all()
