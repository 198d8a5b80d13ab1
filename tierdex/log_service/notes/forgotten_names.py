"""The places of one request to forget messages, and under which names the index has each of them.

::

    places    where the messages lie                                  they hide it from every read
    names     (kind, hash), place: each name of each message          they tell the index, and find it again

Once a message is forgotten nothing else tells its names: neither the message, which reads as empty, nor the
index, whose entries go. Names are hashes: the text of a forgotten key is not kept. Immutable.

::

    length of the places u8 | places (`ForgottenPlaces`) | names, rows of 16: hash u8, place u4, kind u4

Depends on errors and logfile.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from tierdex.errors import CorruptFileError
from tierdex.logfile.forgotten import NOWHERE, ForgottenPlaces
from tierdex.logfile.layout import TIMER_TOPIC

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

_NAME: Final = np.dtype([("hash", "<u8"), ("place", "<u4"), ("kind", "<u4")])
_LENGTH: Final = np.dtype("<u8")

Name = tuple[int, int]  # kind, hash: that of a key is of its topic, too
Place = tuple[bytes, int, int]  # topic, queue_id, offset


class NamesOfTopic(NamedTuple):
    """What the index is to forget of a topic: names, at the places (queue_id, offset)."""

    names: tuple[Name, ...]
    only: tuple[tuple[int, int], ...]


class NamedPlaces:
    """Places with their names."""

    def __init__(self, places: ForgottenPlaces = NOWHERE, names: np.ndarray | None = None) -> None:
        self.places = places
        self._names = np.empty(0, _NAME) if names is None else names

    @classmethod
    def of(cls, named: Mapping[Place, Collection[Name]]) -> NamedPlaces:
        """Return these places, each with its names."""
        places = ForgottenPlaces.of(named)
        rows = [
            (name_hash, number, kind)
            for number, place in enumerate(places)
            for kind, name_hash in sorted(named[place])
        ]
        return cls(places, np.array(rows, _NAME))

    @property
    def topics(self) -> tuple[str, ...]:
        """Return the topics of which the index has entries: none of what waits for its hour."""
        topics = dict.fromkeys(topic for topic, _, _ in self.places)
        return tuple(topic.decode() for topic in topics if topic != TIMER_TOPIC)

    def of_topic(self, topic: str) -> NamesOfTopic:
        """Return what the index is to forget of a topic."""
        named = {at: names for at, names in self.named().items() if at[0] == topic.encode()}
        names = set().union(*named.values())
        return NamesOfTopic(tuple(sorted(names)), tuple((queue, at) for _, queue, at in named))

    def named(self) -> dict[Place, set[Name]]:
        """Return the names of every place."""
        listed = list(self.places)
        found: dict[Place, set[Name]] = {place: set() for place in listed}
        for name_hash, number, kind in self._names.tolist():
            found[listed[number]].add((kind, name_hash))
        return found

    def under(self, name: Name) -> dict[Place, set[Name]]:
        """Return the places that have a name, with all of theirs."""
        if not (self._names["hash"] == np.uint64(name[1])).any():
            return {}
        return {at: names for at, names in self.named().items() if name in names}

    def below(self, end_of: Callable[[bytes, int], int]) -> NamedPlaces:
        """Return the places whose offset is below the end of their queue."""
        named = self.named().items()
        return NamedPlaces.of({at: names for at, names in named if at[2] < end_of(*at[:2])})

    def encode(self) -> bytes:
        """Return the bytes that `decode` takes."""
        places = self.places.encode()
        return np.array(len(places), _LENGTH).tobytes() + places + self._names.tobytes()

    @classmethod
    def decode(cls, data: bytes, path: object) -> NamedPlaces:
        """Return what `encode` wrote. Raises CorruptFileError."""
        size = _LENGTH.itemsize
        end = size + int.from_bytes(data[:size], "little")
        if len(data) < end or (len(data) - end) % _NAME.itemsize:
            raise CorruptFileError(path, f"forgotten places have {len(data)} bytes")
        places = ForgottenPlaces.decode(data[size:end], path)
        names = np.frombuffer(data[end:], _NAME)
        if len(names) and int(names["place"].max()) >= len(places):
            raise CorruptFileError(path, "forgotten places have names of one that is not there")
        return cls(places, names)
