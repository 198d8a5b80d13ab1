"""A file's membership filter: which hashes cannot be in the file.

A 4-wise binary fuse filter in partitions by hash range (partition = upper half of hash x partition
count), at most about 200 k keys each, so that a partition is built in the cache and is one checksummed
unit. It never says no to a hash that is in the file; it says maybe to a stranger with probability
2**-bits. Bits are 16, 8 or 0 (no filter: always maybe).

Seeds come from the file's uuid, the partition and the attempt, so building twice gives the same
bytes. Depends on layout, checksums, fuse_build, fuse_filter and memory.
"""

from __future__ import annotations

import hashlib
import math
from typing import TYPE_CHECKING

import numpy as np

from tierdex.errors import CorruptFileError
from tierdex.fileparts.checksums import checksum, part_seed, unit_seed
from tierdex.fileparts.kernels import fuse_filter as kernels
from tierdex.fileparts.kernels.fuse_build import Scratch, build_partition
from tierdex.fileparts.layout import FILTER_PARTITION, Part
from tierdex.fileparts.memory import address, thread_buffer

if TYPE_CHECKING:
    from collections.abc import Sequence

    from typing_extensions import Buffer

KEYS_PER_PARTITION = 3 << 16  # 196,608: half a megabyte to verify when first asked
_SEGMENT_LENGTH_MAX = 1 << 18
_ATTEMPTS_MAX = 1000  # each fails with a probability far below a half


def partition_shape(key_count: int, attempt: int = 0) -> tuple[int, int]:
    """Return (segment_length, segment_count) for `key_count` keys; later attempts get more room."""
    if key_count == 0:
        return 0, 0
    logarithm = math.log(max(key_count, 2))
    length = 1 << max(2, math.floor(logarithm / math.log(2.91) - 0.5))
    length = min(length, _SEGMENT_LENGTH_MAX)
    factor = max(1.075, 0.77 + 0.305 * math.log(600_000) / logarithm)
    capacity = round(key_count * factor * (1 + attempt // 8 / 16))
    return length, max(1, -(-capacity // length) - 3)


def partition_seed(uuid: bytes, partition: int, attempt: int) -> int:
    """Return the seed (64 bit) of one attempt to build one partition."""
    data = uuid + partition.to_bytes(8, "little") + attempt.to_bytes(8, "little")
    return int.from_bytes(hashlib.blake2b(data, digest_size=8).digest(), "little")


class FilterBuilder:
    """Builds a filter from hashes that come in ascending order, one partition at a time.

    Keeps the finished partitions and the hashes of the current one in memory. One thread.
    """

    def __init__(
        self,
        uuid: bytes,
        bits: int,
        expected_keys: int,
        *,
        keys_per_partition: int = KEYS_PER_PARTITION,
    ) -> None:
        """Prepare for about `expected_keys` distinct hashes; more only make partitions larger."""
        assert bits in (0, 8, 16)
        self._uuid = uuid
        self._bits = bits
        count = max(1, -(-expected_keys // keys_per_partition)) if bits else 0
        self._partitions = np.zeros(count, FILTER_PARTITION)
        self._ends = partition_ends(count)
        self._current = 0
        self._waiting: list[np.ndarray] = []
        self._fingerprints: list[np.ndarray] = []  # of each partition that has keys
        self._length = 0
        self._scratch = _make_scratch(0, 0)  # kept from partition to partition

    def add(self, hashes: np.ndarray) -> None:
        """Take distinct `hashes` (u8[n]), ascending, all above those taken before."""
        if not self._bits or not len(hashes):
            return
        cuts = np.searchsorted(hashes, self._ends[self._current :], side="left").tolist()
        begin = 0
        for cut in cuts:
            if cut == len(hashes):
                break
            self._waiting.append(hashes[begin:cut].copy())
            self._build()
            begin = cut
        self._waiting.append(hashes[begin:].copy())

    def finish(self) -> tuple[bytes, list[np.ndarray]]:
        """Return the partition table, and the fingerprints (u1, in order) of each that has keys."""
        while self._bits and self._current < len(self._partitions):
            self._build()
        return self._partitions.tobytes(), self._fingerprints

    def _build(self) -> None:
        """Build the current partition from what waits, and go on to the next."""
        number = self._current
        hashes = np.concatenate(self._waiting) if self._waiting else np.zeros(0, np.uint64)
        self._waiting = []
        self._current += 1
        entry = self._partitions[number]
        entry["position"] = self._length
        if not len(hashes):
            return
        for attempt in range(_ATTEMPTS_MAX):
            seed = partition_seed(self._uuid, number, attempt)
            length, count = partition_shape(len(hashes), attempt)
            fingerprints = self._try_seed(hashes, seed, length, count)
            if fingerprints is not None:
                break
        else:
            raise AssertionError("hashes of a filter partition are not distinct")
        entry["seed"], entry["segment_length"], entry["segment_count"] = seed, length, count
        entry["key_count"] = len(hashes)
        entry["crc"] = checksum(fingerprints, unit_seed(self._uuid, Part.FILTER, number))
        self._fingerprints.append(fingerprints)
        self._length += len(fingerprints)

    def _try_seed(
        self, hashes: np.ndarray, seed: int, length: int, count: int
    ) -> np.ndarray | None:
        """Return the fingerprints as bytes, or None when the keys cannot be peeled."""
        size = length * (count + 3)
        if len(self._scratch.mixed) < size or len(self._scratch.stack) < len(hashes):
            self._scratch = _make_scratch(size + size // 8, len(hashes) + len(hashes) // 8)
        fingerprints = np.empty(size, np.uint16)
        built = build_partition(
            hashes, np.uint64(seed), length, count, self._bits, self._scratch, fingerprints
        )
        if not built:
            return None
        return fingerprints.view(np.uint8) if self._bits == 16 else fingerprints.astype(np.uint8)


def partition_ends(count: int) -> np.ndarray:
    """Return the first hash (u8) beyond each of `count` partitions but the last."""
    return np.array([-(-(number << 64) // count) for number in range(1, count)], np.uint64)


def partitions_of(hashes: np.ndarray, count: int) -> np.ndarray:
    """Return the partition (i8) of each hash: the upper half of hash x count."""
    return np.searchsorted(partition_ends(count), hashes, side="right")


def _make_scratch(positions: int, keys: int) -> Scratch:
    """Return arrays for a partition of so many positions and keys, or a smaller one."""
    return Scratch(
        mixed=np.empty(positions, np.uint64),
        counts=np.empty(positions, np.uint8),
        alone=np.empty(positions + 1, np.uint32),
        stack=np.empty(keys, np.uint64),
        sides=np.empty(keys, np.uint8),
    )


class FuseFilter:
    """Answers whether a hash may be in the file.

    Borrows the two parts' bytes; verifies a partition when it is first asked. Thread-safe.
    """

    def __init__(
        self, table: Buffer, fingerprints: Buffer, *, bits: int, uuid: bytes, path: object
    ) -> None:
        """Open a filter. Raises CorruptFileError when the table is not plausible."""
        self._path = path
        self.bits = bits
        size = memoryview(table).nbytes
        if size % FILTER_PARTITION.itemsize or (bits and not size):
            raise CorruptFileError(path, f"filter partitions have {size} bytes")
        self.partitions = np.frombuffer(memoryview(table), FILTER_PARTITION)
        self.fingerprints = np.frombuffer(memoryview(fingerprints), np.uint8)
        self._check_table()
        self._verified = np.zeros(len(self.partitions), np.uint8)
        self._words = np.zeros(kernels.FILTER_WORDS, np.int64)
        self._words[kernels.PARTITIONS] = self.partitions.ctypes.data
        self._words[kernels.PARTITION_COUNT] = len(self.partitions)
        self._words[kernels.FINGERPRINTS] = self.fingerprints.ctypes.data
        self._words[kernels.BITS] = bits
        self._words[kernels.VERIFIED] = self._verified.ctypes.data
        self._words[kernels.SEED] = part_seed(uuid, Part.FILTER)
        self.address = int(self._words.ctypes.data)

    @classmethod
    def of_partition(
        cls, entry: np.ndarray, fingerprints: np.ndarray, *, number: int, count: int, bits: int,
        path: object,
    ) -> FuseFilter:  # fmt: skip
        """Open one of `count` partitions, which the caller has verified; it answers for its hashes only.

        `entry` is its row of the table (FILTER_PARTITION[1]), `fingerprints` are its own (u1). Raises
        CorruptFileError when they do not fit.
        """
        own = entry.copy()
        own["position"] = 0
        opened = cls(own.data, fingerprints.data, bits=bits, uuid=bytes(16), path=path)
        opened._verified[:] = 1
        # Kernels go by the partition's number: the row and the map begin so far before.
        opened._words[kernels.PARTITIONS] -= number * FILTER_PARTITION.itemsize
        opened._words[kernels.VERIFIED] -= number
        opened._words[kernels.PARTITION_COUNT] = count
        return opened

    def _check_table(self) -> None:
        """Raise CorruptFileError when a partition could lead a kernel outside the fingerprints."""
        table = self.partitions[self.partitions["key_count"] > 0]
        lengths, counts = (
            table["segment_length"].astype(object),
            table["segment_count"].astype(object),
        )
        ends = table["position"].astype(object) + lengths * (counts + 3) * self.bits // 8
        sound = (table["segment_length"] & (table["segment_length"] - 1)) == 0
        sound &= (table["segment_length"] > 0) & (table["segment_count"] > 0)
        sound &= ends <= len(self.fingerprints)
        if not sound.all():
            raise CorruptFileError(self._path, "implausible filter partition")

    @property
    def key_count(self) -> int:
        return int(self.partitions["key_count"].sum())

    def may_contain(self, key_hash: int) -> bool:
        """Return False only when `key_hash` is not in the file. Raises CorruptFileError."""
        answer = kernels.contains(self.address, np.uint64(key_hash))
        if answer == kernels.DAMAGED:
            self._fail(int(kernels.partition_of(self.address, np.uint64(key_hash))))
        return bool(answer)

    def may_contain_many(self, hashes: np.ndarray) -> np.ndarray:
        """Return may_contain (b1[n]) of each hash (u8[n]). Raises CorruptFileError."""
        hashes = np.ascontiguousarray(hashes, np.uint64)
        answers = np.ones(len(hashes), bool)
        if self.bits:
            damaged = kernels.contains_many(
                self.address, address(hashes), len(hashes), address(answers)
            )
            if damaged >= 0:
                self._fail(damaged)
        return answers

    def damaged_partitions(self) -> list[int]:
        """Return the numbers of all partitions whose checksum differs, verifying each now."""
        self._verified[:] = 0
        count = len(self.partitions) if self.bits else 0
        return [n for n in range(count) if not kernels.partition_is_sound(self.address, n)]

    def _fail(self, partition: int) -> None:
        raise CorruptFileError(self._path, f"checksum of filter partition {partition} differs")


class FilterGroup:
    """The filters of several files, asked for one hash in one step. Safe to share."""

    def __init__(self, filters: Sequence[FuseFilter]) -> None:
        self._filters = tuple(filters)  # they own the memory that the addresses name
        self._addresses = np.array([one.address for one in filters], np.int64)
        self._place = int(self._addresses.ctypes.data)

    def may_contain(self, key_hash: int) -> bytes:
        """Return one byte a filter: 0 only when `key_hash` is not in its file."""
        count = len(self._filters)
        buffer, place = thread_buffer(count)
        signed = key_hash - (1 << 64) if key_hash >> 63 else key_hash
        kernels.contains_each(self._place, count, signed, place)
        return bytes(buffer[:count])
