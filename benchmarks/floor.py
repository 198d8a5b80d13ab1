"""The floor in C: compiled when there is a compiler, called through ctypes, absent otherwise."""

from __future__ import annotations

import ctypes
import platform
import shutil
import subprocess
import tempfile
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from tierdex.indexfile.layout import rows_position

if TYPE_CHECKING:
    from tierdex.indexfile.chained.file import ChainedFile
    from tierdex.indexfile.compacted.file import CompactedFile

SOURCE = Path(__file__).with_name("floor.c")
_I64 = ctypes.c_int64


@cache
def load_floor() -> Any | None:
    """Return the compiled library, or None with the reason printed."""
    compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if compiler is None:
        print("the C floor is absent: no C compiler found")
        return None
    if platform.machine() != "x86_64":
        print(f"the C floor is absent: it is written for x86-64, this is {platform.machine()}")
        return None
    with tempfile.TemporaryDirectory(prefix="tierdex-floor-") as folder:
        target = Path(folder) / "floor.so"
        command = [
            compiler,
            "-O3",
            "-march=native",
            "-shared",
            "-fPIC",
            "-o",
            str(target),
            str(SOURCE),
        ]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            print(f"the C floor is absent: {done.stderr.strip()[-300:]}")
            return None
        library = ctypes.CDLL(str(target))  # stays loaded when its file is gone
    for name in ("floor_get", "floor_compact", "floor_get_compacted", "floor_unpack"):
        getattr(library, name).restype = _I64
    for name in ("floor_put", "floor_contains"):
        getattr(library, name).restype = None
    return library


def place(array: np.ndarray) -> _I64:
    """Return an array's address as a C argument."""
    return _I64(array.__array_interface__["data"][0])


def key_buffers(keys: Any) -> tuple[np.ndarray, np.ndarray]:
    """Return (offsets i4, bytes u1) of an Arrow string array, without a copy."""
    _, offsets, data = keys.buffers()
    return (
        np.frombuffer(offsets, np.int32, len(keys) + 1, 4 * keys.offset),
        np.frombuffer(data, np.uint8),
    )


class Gathered:
    """Columns that a floor lookup fills: what our Arrow answer holds."""

    def __init__(self, count: int) -> None:
        self.lookup = np.empty(count, np.int64)
        self.topic = np.empty(count, np.int32)
        self.time = np.empty(count, np.int64)
        self.offset = np.empty(count, np.int64)
        self.size = np.empty(count, np.uint32)
        self.queue = np.empty(count, np.int32)

    def places(self) -> tuple[_I64, ...]:
        columns = (self.lookup, self.topic, self.time, self.offset, self.size, self.queue)
        return tuple(place(column) for column in columns)


class FloorTable:
    """Slots and rows of one chained file of our making, filled by the floor's own append."""

    def __init__(self, library: Any, file: ChainedFile, seed: int) -> None:
        """Take a new, empty `file`; its blocks are reserved by each put, as by ours."""
        self._library = library
        self._file = file
        self._view = file._view  # its mapping: the floor works on the same bytes
        self._seed = seed
        self._row = 1
        self._rows_begin = self._reserved = rows_position(file.slot_count)
        self._state = np.array([0, np.iinfo(np.int64).max, np.iinfo(np.int64).min], np.int64)
        self._ends = np.zeros(8, np.int64)

    def put(self, keys: Any, columns: dict[str, np.ndarray]) -> None:
        end = self._rows_begin + (self._row + len(keys)) * 40
        if end > self._reserved:
            self._file._file.reserve(self._reserved, end - self._reserved)
            self._reserved = end
        array = self._view.array
        offsets, data = key_buffers(keys)
        self._library.floor_put(
            _I64(int(array[0])), _I64(self._file.slot_count), _I64(int(array[2])),
            _I64(self._row), _I64(len(keys)), place(offsets), place(data),
            ctypes.c_uint64(self._seed), ctypes.c_uint32(0),
            place(columns["timestamp"]), place(columns["offset"]), place(columns["size"]),
            place(columns["queue_id"]), place(self._state), place(self._ends),
        )  # fmt: skip
        self._row += len(keys)


def floor_get(library: Any, file: ChainedFile, keys: Any, seed: int, tag: int) -> Gathered:
    """Look `keys` up in a chained file of ours."""
    array = file._view.array
    offsets, data = key_buffers(keys)
    out = Gathered(len(keys))
    library.floor_get(
        _I64(int(array[0])), _I64(file.slot_count), _I64(int(array[2])), _I64(len(keys)),
        place(offsets), place(data), ctypes.c_uint64(seed), ctypes.c_uint32(tag), *out.places(),
    )  # fmt: skip
    return out


def floor_get_compacted(
    library: Any, file: CompactedFile, keys: Any, seed: int, tag: int
) -> tuple[int, Gathered]:
    """Look `keys` up in a compacted file of ours; return how many were found, and them."""
    offsets, data = key_buffers(keys)
    out = Gathered(len(keys))
    found = library.floor_get_compacted(
        _I64(file.address), _I64(len(keys)), place(offsets), place(data),
        ctypes.c_uint64(seed), ctypes.c_uint32(tag), *out.places(),
    )  # fmt: skip
    return found, out


def floor_compact(library: Any, file: ChainedFile, out: np.ndarray) -> int:
    """Write the rows of a chained file to `out` in hash order; return how many."""
    array = file._view.array
    written: int = library.floor_compact(
        _I64(int(array[0])), _I64(file.slot_count), _I64(int(array[2])), place(out)
    )
    return written


def floor_contains(library: Any, file: CompactedFile, hashes: np.ndarray) -> np.ndarray:
    """Return which of `hashes` (u8[n]) the filter of a compacted file may hold (b1[n])."""
    answers = np.empty(len(hashes), bool)
    library.floor_contains(
        _I64(file.filter.address), _I64(file.filter.bits), place(hashes), _I64(len(hashes)),
        place(answers),
    )  # fmt: skip
    return answers


def floor_unpack(library: Any, file: CompactedFile, page: np.ndarray, out: np.ndarray) -> None:
    """Unpack the bytes of one page (u1) to rows."""
    library.floor_unpack(_I64(file.address), place(page), _I64(len(page)), place(out))
