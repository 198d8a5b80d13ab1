"""The disk blocks of a file that is being written: reserved before appends need them, in steps.

A full disk is an error to an append, never a SIGBUS. Appends reserve what they lack themselves; a
thread beside them may reserve ahead, so that none waits for the disk, whose journal may be busy with
another file's sync for a second.

Depends on filesystem and layout.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from tierdex.fileparts.layout import BLOCK_BYTES, round_up
from tierdex.indexfile import layout

if TYPE_CHECKING:
    from collections.abc import Callable

    from tierdex.filesystem import OpenFile
    from tierdex.indexfile.header import FileHeader

RESERVE_STEP_MIN = 256 << 10
RESERVE_STEP_MAX = 4 << 20  # 9 ms where a virtual machine's host gives the memory only now, else 1
_AHEAD_MAX = 96 << 20  # what a quarter of a second of the fastest puts may fill


class ReservedBlocks:
    """What is reserved of one file, from byte 0 up to `end`. Safe to share between threads."""

    def __init__(
        self, file: OpenFile, populate: Callable[[int, int], None], header: FileHeader
    ) -> None:
        """Header and slots are reserved; `populate` brings new blocks into memory."""
        self._file = file
        self._populate = populate
        self._rows_begin = layout.rows_position(header.slot_count)
        self._full_length = header.full_length
        self.end = self._rows_begin
        self._growing = threading.Lock()  # held while `end` changes
        self._turn = threading.Lock()  # held by an append that waits for it
        self._has_stopped = False
        self._has_slots = False  # in memory

    def expect_items(self, items: int) -> None:
        """Bring the slots into memory once there are so many items that most pages will be used.

        One by one, in random order, their faults would cost more, and would make the kernel read
        rows ahead in single pages.
        """
        if not self._has_slots and items >= self._rows_begin // BLOCK_BYTES:
            self._has_slots = True
            self._populate(0, self._rows_begin)

    def make_room(self, needed: int) -> None:
        """Reserve up to the byte `needed`, and a step beyond when the disk has it. Raises OSError."""
        if needed > self.end:
            # A thread that reserves ahead takes the lock again at once, and would get it before us each
            # time; a step of theirs is what we wait for.
            with self._turn, self._growing:
                if needed > self.end:
                    self._grow_for(needed)

    def _grow_for(self, needed: int) -> None:
        target = max(needed, self._next_step())
        try:
            self._reserve_up_to(target)
        except OSError:
            # The disk may still have what this append needs, if not what the next ones will.
            if target == needed:
                raise
            self._reserve_up_to(needed)

    def are_short(self, used: int) -> bool:
        """Return whether appends, which have come to byte `used`, will soon have to wait for blocks."""
        return self.end - used < self._goal(used) // 2

    def reserve_ahead(self, used: Callable[[], int], expected: int) -> None:
        """Reserve as much again as is used, or `expected` bytes, in bounds. Raises OSError.

        What is reserved stays below twice what is used, or `expected`. A file that expects more than
        its slots take has them brought into memory too. The goal is that of the beginning: appends as
        fast as the disk would else keep the caller here, who has more to make than these blocks.
        """
        if expected > self._rows_begin and not self._has_stopped:
            self.expect_items(expected)
        now = used()
        goal = now + max(self._goal(now), min(expected, _AHEAD_MAX, self._full_length - now))
        while True:
            with self._turn:
                pass  # an append that waits goes first
            with self._growing:
                if self._has_stopped or self.end >= goal:
                    return
                self._reserve_up_to(self._next_step())

    def stop(self) -> None:
        """Reserve nothing ahead any more: the file is about to be cut, or closed."""
        with self._growing:
            self._has_stopped = True

    def _goal(self, used: int) -> int:
        return min(used - self._rows_begin, _AHEAD_MAX, self._full_length - used)

    def _next_step(self) -> int:
        used = self.end - self._rows_begin
        step = min(max(used, RESERVE_STEP_MIN), RESERVE_STEP_MAX)
        return min(round_up(self.end + step, BLOCK_BYTES), self._full_length)

    def _reserve_up_to(self, target: int) -> None:
        self._file.reserve(self.end, target - self.end)
        self._populate(self.end, target - self.end)
        self.end = target
