"""The undelivered messages of one hour, in the order of their delivery.

16 bytes a message: when it is due, and its offset in the hour's queue. Two sorted runs, since messages come
while others go: what came lately joins the large one when it has grown. Depends on delayed_rows.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from tierdex.log_service.timer.delayed_rows import Mark

_FRESH_LEAST = 4096
_FRESH_SHARE = 8  # the small run stays below this part of the large one


class DueHour:
    """Read up to `read_to` of the hour's queue. For one thread."""

    def __init__(self, hour: int) -> None:
        self.hour = hour
        self.read_to = 0
        self._runs = [_no_messages(), _no_messages()]  # large, fresh: (times, offsets) i8
        self._from_large = np.zeros(0, np.bool_)  # which run the messages of the last `peek` are in

    def __len__(self) -> int:
        return sum(len(times) for times, _ in self._runs)

    @property
    def first_due(self) -> int | None:
        """When the next message is due (ms), None without one."""
        return min((int(times[0]) for times, _ in self._runs if len(times)), default=None)

    def add(self, times: np.ndarray, offsets: np.ndarray) -> None:
        """Take messages (i8 both) that are not delivered."""
        large, fresh = self._runs
        fresh = _merged(fresh, (times, offsets))
        if len(fresh[0]) > max(_FRESH_LEAST, len(large[0]) // _FRESH_SHARE):
            large, fresh = _merged(large, fresh), _no_messages()
        self._runs = [large, fresh]

    def peek(self, until: int, most: int) -> tuple[np.ndarray, np.ndarray]:
        """Return (times, offsets) of the next messages that are due by `until`, at most `most`."""
        parts = []
        for times, offsets in self._runs:
            end = min(int(np.searchsorted(times, until, "right")), most)
            parts.append((times[:end], offsets[:end]))
        times, offsets = (np.concatenate(columns) for columns in zip(*parts, strict=True))
        order = np.lexsort((offsets, times))[:most]
        self._from_large = order < len(parts[0][0])
        return times[order], offsets[order]

    def drop(self, count: int) -> None:
        """Drop the first messages of the last `peek`."""
        of_large = int(self._from_large[:count].sum())
        self._runs = [
            (times[taken:], offsets[taken:])
            for (times, offsets), taken in zip(
                self._runs, (of_large, count - of_large), strict=True
            )
        ]
        self._from_large = self._from_large[count:]


class DeliveryPosition:
    """How far delivery is, in one generation of the log."""

    def __init__(self, generation: int, marks: int, mark: Mark) -> None:
        self.generation = generation
        self.marks = marks  # how many were written
        self.mark = mark  # the last one
        self.hours: dict[int, DueHour] = {}

    def due(self, hour: int) -> DueHour:
        return self.hours.setdefault(hour, DueHour(hour))


def _no_messages() -> tuple[np.ndarray, np.ndarray]:
    return np.zeros(0, np.int64), np.zeros(0, np.int64)


def _merged(
    one: tuple[np.ndarray, np.ndarray], other: tuple[np.ndarray, np.ndarray]
) -> tuple[np.ndarray, np.ndarray]:
    times, offsets = (np.concatenate(columns) for columns in zip(one, other, strict=True))
    order = np.lexsort((offsets, times))
    return times[order], offsets[order]
