"""LZ4 blocks are unpacked as pyarrow unpacks them, and nothing is written beyond the target's slack."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from tierdex.fileparts.kernels.lz4 import SLACK_BYTES, unpack_lz4
from tierdex.fileparts.memory import address

CODEC = pa.Codec("lz4_raw")
MARK = 0xA5
# Runs of every short distance, long ones, and bytes that do not repeat.
PIECES = st.lists(
    st.tuples(st.binary(min_size=1, max_size=40), st.integers(1, 600)), min_size=0, max_size=6
)


def unpack(block: bytes, size: int) -> bytes | None:
    """Return what a block unpacks to; None for one that is refused."""
    data = np.frombuffer(block or b"\0", np.uint8)
    memory = np.full(size + 2 * SLACK_BYTES, MARK, np.uint8)
    is_whole = unpack_lz4(address(data), len(block), address(memory), size)
    assert (memory[size + SLACK_BYTES :] == MARK).all()
    return memory[:size].tobytes() if is_whole else None


@settings(max_examples=150, deadline=None)
@given(pieces=PIECES)
def test_block_unpacks_to_what_was_packed(pieces):
    raw = b"".join(unit * count for unit, count in pieces)
    block = CODEC.compress(raw, asbytes=True)
    assert unpack(block, len(raw)) == raw
    assert unpack(block, len(raw) + 1) is None
    if raw:
        assert unpack(block, len(raw) - 1) is None
        assert unpack(block[:-1], len(raw)) is None


@settings(max_examples=300, deadline=None)
@given(
    pieces=PIECES,
    damage=st.lists(st.tuples(st.integers(0, 1 << 20), st.integers(1, 255)), min_size=1),
)
def test_damaged_block_is_refused_or_unpacks_as_elsewhere(pieces, damage):
    raw = b"".join(unit * count for unit, count in pieces)
    block = bytearray(CODEC.compress(raw, asbytes=True))
    for place, change in damage:
        block[place % len(block)] ^= change
    found = unpack(bytes(block), len(raw))
    if found is not None and raw:
        assert CODEC.decompress(bytes(block), decompressed_size=len(raw), asbytes=True) == found


@settings(max_examples=300, deadline=None)
@given(block=st.binary(max_size=200), size=st.integers(0, 4000))
def test_any_bytes_stay_within_the_target(block, size):
    found = unpack(block, size)
    assert found is None or len(found) == size
