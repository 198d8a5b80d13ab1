"""Which entries of one key are repeats: the same location at the same time.

A broker that replays puts the same message again, with the same time: that is one entry, and the newest
arrival stands for it. A location that was put at another time is another entry, so that an answer for a
time range never depends on what lies outside of it. Files drop repeats by the same rule when they are
compacted (`identity_masks`).

Depends on answer and numpy.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from tierdex.index_service.answer import Entry

Identity = tuple[tuple[Any, ...], int]
"""What is the same in a repeat: (topic, then the location's fields in the schema's order), the time."""


def identity_of(entry: Entry) -> Identity:
    """Return an entry's identity: what a file's reader gives for its item as a `Candidate`."""
    if entry.location is None:
        return (entry.topic, entry.offset, entry.size, entry.queue_id), entry.timestamp
    return (entry.topic, *entry.location.values()), entry.timestamp


def without_repeats(entries: Iterable[Entry]) -> dict[Identity, Entry]:
    """Return the first entry of each identity, in order."""
    first: dict[Identity, Entry] = {}
    for entry in entries:
        first.setdefault(identity_of(entry), entry)
    return first


def first_of_each(columns: Sequence[np.ndarray]) -> np.ndarray:
    """Return a mask (b1[n]): whether no row before has the same values in all `columns`."""
    order = np.lexsort(columns)  # stable: among equal rows the first stays first
    same = np.ones(max(0, len(order) - 1), bool)
    for column in columns:
        values = column[order]
        same &= values[1:] == values[:-1]
    first = np.ones(len(order), bool)
    first[order[1:][same]] = False
    return first
