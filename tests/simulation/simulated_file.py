"""One file of a simulated disk: what programs read, and what a power cut may leave.

::

    current content (a memfd, mapped and written)      read by every program
    durable content                                    certainly on the device
    log of effects, oldest first                       the difference between the two

An effect is a change of the size, a 512-byte sector of a write or a 4 KiB page of a mapping, with
the bytes of the page cache. It is *pending*, *durable*, or *lost*: a failed sync leaves pages
clean, so that no later sync writes them (the Linux behaviour), and whether they reached the device
is unknown. A crash applies the durable effects and a choice of the others, in order, to the durable
content. Bytes beyond the surviving size are cut off.

Stores into a mapping cannot be observed as they happen: they are noted at syncs and at the crash.

Depends on numpy only.
"""

from __future__ import annotations

import os
import weakref
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any, Final

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

PAGE: Final = 4096
SECTOR: Final = 512


class EffectState(Enum):
    """Whether a change is on the device."""

    PENDING = "pending"
    DURABLE = "durable"
    LOST = "lost"


@dataclass(eq=False)
class Effect:
    """One change that a crash may keep or lose, whole."""

    kind: (
        str  # "size", "sector", "page"; of folders: "create", "unlink", "rename", "link", "folder"
    )
    path: str
    position: int = 0  # of the image; for "size" the new size
    image: bytes = b""
    state: EffectState = EffectState.PENDING

    def __str__(self) -> str:
        return f"{self.kind} {self.path} @{self.position}"


class SimulatedFile:
    """An inode. Not safe to share between threads: the disk's lock guards it."""

    def __init__(self, path: str, content: bytes = b"", modified_ms: int = 0) -> None:
        self.path = path
        self.modified_ms = modified_ms
        self.permissions = 0o644
        self.descriptor = os.memfd_create("tierdex-simulated", os.MFD_CLOEXEC)
        weakref.finalize(self, os.close, self.descriptor)
        os.pwrite(self.descriptor, content, 0)
        self.size = len(content)
        self.open_count = 0
        self.users: list[Any] = []  # who locked it, shared or alone
        self.log: list[Effect] = []
        self._durable = bytearray(content)
        self._known = bytearray(content)  # the current content as far as the log tells it
        self._allocated = set(range(-(-len(content) // PAGE)))
        self._writable_mapping_seen = False
        self._mappings: list[weakref.ref[object]] = []

    # -- what programs do -------------------------------------------------------------------------

    def read(self, position: int, length: int) -> bytes:
        return os.pread(self.descriptor, max(0, length), position)

    def write(self, position: int, data: bytes) -> None:
        if not data:
            return
        end = position + len(data)
        if end > self.size:
            self._log_size(end)
        os.pwrite(self.descriptor, data, position)
        self._allocated |= pages_of(position, len(data))
        for start in range(position - position % SECTOR, end, SECTOR):
            self._log_image("sector", start, self.read(start, min(SECTOR, self.size - start)))

    def truncate(self, size: int) -> None:
        self.note_stores()
        if size != self.size:
            self._log_size(size)
        os.ftruncate(self.descriptor, size)
        self._allocated = {page for page in self._allocated if page * PAGE < size}

    def reserve(self, position: int, length: int) -> None:
        self._allocated |= pages_of(position, length)
        if position + length > self.size:
            self.truncate(position + length)

    def map(self, length: int, *, writable: bool) -> np.ndarray:
        """Return the first `length` bytes as shared memory. Raises OSError when there are fewer."""
        if length > self.size:
            raise OSError(f"file holds {self.size} bytes, {length} were to be mapped")
        with os.fdopen(os.dup(self.descriptor), "r+b") as file:
            array = np.memmap(file, np.uint8, "r+" if writable else "r", shape=(length,))
        self._writable_mapping_seen |= writable
        self._mappings.append(weakref.ref(array.base if array.base is not None else array))
        return array

    @property
    def is_mapped(self) -> bool:
        """Whether a mapping of the file is left, its descriptor open or not."""
        self._mappings = [mapping for mapping in self._mappings if mapping() is not None]
        return bool(self._mappings)

    # -- what reaches the device ------------------------------------------------------------------

    def sync(self) -> None:
        """Make everything but what a failed sync lost durable."""
        self.note_stores()
        for effect in self.log:
            if effect.state is EffectState.PENDING:
                effect.state = EffectState.DURABLE
        self._fold()

    def sync_pages(self, position: int, length: int, *, with_size: bool) -> None:
        """Make the pages of a range durable, and the size if `with_size`."""
        self.note_stores()
        for effect in self._pending_in(position, length, with_size=with_size):
            effect.state = EffectState.DURABLE
        self._fold()

    def fail_sync(self, position: int = 0, length: int | None = None) -> None:
        """Mark the range's pages clean although they are not durable."""
        self.note_stores()
        length = self.size if length is None else length
        for effect in self._pending_in(position, length, with_size=False):
            effect.state = EffectState.LOST

    def forget_cached(self) -> None:
        """Drop clean pages, so that reads show what the device holds; mapped ones stay, as on Linux."""
        if self.is_mapped:
            return
        self.note_stores()
        self.log = [effect for effect in self.log if effect.state is not EffectState.LOST]
        self._known = apply_effects(self._durable, self.log)
        os.ftruncate(self.descriptor, 0)
        os.pwrite(self.descriptor, self._known, 0)
        self.size = len(self._known)
        os.ftruncate(self.descriptor, self.size)

    def note_stores(self) -> None:
        """Turn what was stored into mappings since the last look into effects, one a page."""
        if not self._writable_mapping_seen or not self.size:
            return
        current = np.frombuffer(self.read(0, self.size), np.uint8)
        changed = np.flatnonzero(current != np.frombuffer(self._known, np.uint8)) // PAGE
        for page in np.unique(changed).tolist():
            image = current[page * PAGE : (page + 1) * PAGE].tobytes()
            self._log_image("page", page * PAGE, image)
            self._allocated.add(page)

    def process_ended(self) -> None:
        """Forget open files and mappings of a process that is gone."""
        self.note_stores()
        self.open_count = 0
        self.users = []
        self._mappings.clear()

    def after_crash(self, choose: Callable[[Effect], bool]) -> bytes:
        """Return the content that is left when `choose` says which uncertain effects persisted."""
        kept = [e for e in self.log if e.state is EffectState.DURABLE or choose(e)]
        return bytes(apply_effects(self._durable, kept))

    def uncertain(self) -> list[Effect]:
        return [effect for effect in self.log if effect.state is not EffectState.DURABLE]

    def allocated_after(self, position: int, length: int) -> int:
        """Return how many pages the file would hold with this range written."""
        return len(self._allocated | pages_of(position, length))

    @property
    def allocated_pages(self) -> int:
        return len(self._allocated)

    # -- the log ----------------------------------------------------------------------------------

    def _log_size(self, size: int) -> None:
        self.log.append(Effect("size", self.path, size))
        self.size = size
        resize(self._known, size)

    def _log_image(self, kind: str, position: int, image: bytes) -> None:
        self.log.append(Effect(kind, self.path, position, image))
        self._known[position : position + len(image)] = image

    def _pending_in(self, position: int, length: int, *, with_size: bool) -> list[Effect]:
        first = position - position % PAGE
        end = -(-(position + length) // PAGE) * PAGE
        return [
            effect
            for effect in self.log
            if effect.state is EffectState.PENDING
            and (with_size if effect.kind == "size" else first <= effect.position < end)
        ]

    def _fold(self) -> None:
        """Take the oldest effects into the durable content as long as they are certain."""
        certain = 0
        while certain < len(self.log) and self.log[certain].state is EffectState.DURABLE:
            certain += 1
        if certain:
            self._durable = apply_effects(self._durable, self.log[:certain])
            del self.log[:certain]


def apply_effects(content: bytearray, effects: Iterable[Effect]) -> bytearray:
    """Return a copy of `content` with the effects applied in order."""
    content = bytearray(content)
    for effect in effects:
        if effect.kind == "size":
            resize(content, effect.position)
        else:
            end = min(effect.position + len(effect.image), len(content))
            if end > effect.position:
                content[effect.position : end] = effect.image[: end - effect.position]
    return content


def resize(content: bytearray, size: int) -> None:
    """Cut off or fill up with zeros."""
    if size < len(content):
        del content[size:]
    else:
        content.extend(bytes(size - len(content)))


def pages_of(position: int, length: int) -> set[int]:
    """Return the numbers of the pages that a range touches."""
    return set(range(position // PAGE, -(-(position + length) // PAGE))) if length > 0 else set()
