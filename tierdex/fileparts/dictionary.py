"""The dictionaries of one file: named lists of distinct strings, index <-> string.

Dictionary 0 is `topic`; each schema field that asks for one has its own. Strings are only ever
appended, so an index once written to an item stays right. New strings are *staged* while a batch is
made, written with it, and kept only when the batch is: `staged()`, then `keep()` or `forget()`.

One writer at a time; readers may look up at any time. Depends on layout.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from tierdex.errors import InvalidRequestError
from tierdex.fileparts.layout import DICTIONARY_ENTRY, DICTIONARY_STRING_BYTES_MAX, STRING_COUNT_MAX

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

_ENTRY_BYTES = DICTIONARY_ENTRY.itemsize


class Dictionaries:
    """Named lists of strings.

    Invariants: 1. a string stands at most once in a list; 2. the index of a string never changes.
    """

    def __init__(self, names: Sequence[str]) -> None:
        """Start with empty lists called `names`; the first is the topics'."""
        self.names = tuple(names)
        self._strings: dict[str, list[str]] = {name: [] for name in names}
        self._indexes: dict[str, dict[str, int]] = {name: {} for name in names}
        self._kept = dict.fromkeys(names, 0)  # strings behind so many are staged
        self.topics: Mapping[str, int] = self._indexes[names[0]]  # their indexes; for reading only

    def strings(self, name: str) -> list[str]:
        """Return the strings of a dictionary, by index. The caller must not change the list."""
        return self._strings[name]

    def index(self, name: str, string: str) -> int:
        """Return the index of `string`, or -1 when it is not there."""
        return self._indexes[name].get(string, -1)

    def indexes(self, name: str, strings: Iterable[str]) -> list[int]:
        """Return the index of each string, -1 where it is not there."""
        known = self._indexes[name]
        return [known.get(string, -1) for string in strings]

    # -- growing: one batch at a time ---------------------------------------------------------------

    def stage(self, name: str, strings: Iterable[str]) -> np.ndarray:
        """Return the index (i8) of each string, appending those that are new.

        Raises InvalidRequestError when a string cannot stand in a dictionary.
        """
        known = self._indexes[name]
        listed = self._strings[name]
        found = []
        for string in strings:
            place = known.get(string)
            if place is None:
                place = self._append(name, string, known, listed)
            found.append(place)
        return np.array(found, np.int64)

    def _append(self, name: str, string: str, known: dict[str, int], listed: list[str]) -> int:
        try:
            size = len(string.encode())
        except UnicodeEncodeError as error:
            raise InvalidRequestError("is not valid text (lone surrogate)", field=name) from error
        if size > DICTIONARY_STRING_BYTES_MAX:
            raise InvalidRequestError(f"has {size} bytes, too long", field=name)
        if len(listed) >= STRING_COUNT_MAX:
            raise InvalidRequestError("too many distinct strings", field=name)
        listed.append(string)  # the list first: a reader that finds the index finds the string
        known[string] = len(listed) - 1  # an interrupt before it leaves what `forget` takes out
        return len(listed) - 1

    @property
    def has_staged(self) -> bool:
        return any(len(self._strings[name]) > kept for name, kept in self._kept.items())

    def staged(self) -> bytes:
        """Return the staged entries as a batch stores them."""
        return b"".join(
            self._encode_entry(name, string)
            for name, kept in self._kept.items()
            for string in self._strings[name][kept:]
        )

    def keep(self) -> None:
        """The batch is made: staged strings stay."""
        for name, strings in self._strings.items():
            self._kept[name] = len(strings)

    def forget(self) -> None:
        """The batch was not made: take the staged strings out again, wherever staging was left."""
        for name, kept in self._kept.items():
            listed = self._strings[name]
            for string in listed[kept:]:
                self._indexes[name].pop(string, None)
            del listed[kept:]

    # -- bytes ------------------------------------------------------------------------------------

    def encode(self) -> bytes:
        """Return all entries, dictionary after dictionary."""
        return b"".join(
            self._encode_entry(name, string)
            for name in self.names
            for string in self._strings[name]
        )

    def _encode_entry(self, name: str, string: str) -> bytes:
        data = string.encode()
        return bytes((self.names.index(name), 0)) + len(data).to_bytes(2, "little") + data

    def load(self, data: bytes) -> None:
        """Append the entries in `data`. Raises ValueError, with nothing appended, on a broken rule."""
        position = 0
        try:
            while position < len(data):
                if position + _ENTRY_BYTES > len(data):
                    raise ValueError("dictionary entry is cut")
                number, reserved = data[position], data[position + 1]
                size = int.from_bytes(data[position + 2 : position + _ENTRY_BYTES], "little")
                begin, position = position + _ENTRY_BYTES, position + _ENTRY_BYTES + size
                if reserved or number >= len(self.names) or position > len(data):
                    raise ValueError(f"implausible dictionary entry at byte {begin}")
                name, string = self.names[number], data[begin:position].decode()
                if string in self._indexes[name]:
                    raise ValueError(f"dictionary {name} holds a string twice")
                self._append(name, string, self._indexes[name], self._strings[name])
        except ValueError:
            self.forget()
            raise
        self.keep()
