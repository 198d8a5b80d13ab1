"""Ways in which bytes change against all wishes, each numbered, so that all can be tried.

`Damages(sound, other, older)` numbers every one-bit flip, every truncation, every zeroed, swapped,
foreign and stale sector and page, growth, and then mixtures without end::

    damages.count             how many there are before the mixtures
    damages.make(number)      (name, damaged bytes)

*Foreign* bytes come from another file of the same form, *stale* ones from an older generation of the
same file, each in the same place (one write went astray, or was lost) and in another.
"""

from __future__ import annotations

import random
from bisect import bisect_right
from itertools import accumulate

import numpy as np

SECTOR, PAGE = 512, 4096
FLIPPED_BYTES = 65_536
_SMALL = 1024  # files up to here have every pair of bits flipped too


class Damages:
    """The damages of one file. Each call of `make` returns an array (u1) of its own."""

    def __init__(self, sound, other, older, *, whole=True):
        """`whole` false: another sound file in this one's place is no damage, but another file."""
        self.sound, self.other, self.older = (
            np.frombuffer(data, np.uint8) for data in (sound, other, older)
        )
        size, self._from = len(self.sound), 0 if whole else 1
        self.bits = 8 * min(size, FLIPPED_BYTES)
        sectors, pages = _places(size, SECTOR), _places(size, PAGE)
        self._kinds = {
            "flip": (self.bits, self._flip),
            "two flips": (self.bits * (self.bits - 1) // 2 if size <= _SMALL else 0, self._two),
            "cut": (size, lambda n: self.sound[:n]),
            "zeroed sector": (sectors, lambda n: self._filled(n, SECTOR, 0)),
            "zeroed page": (pages, lambda n: self._filled(n, PAGE, 0)),
            "set sector": (sectors, lambda n: self._filled(n, SECTOR, 255)),
            "zeroed end": (sectors, self._zeroed_end),
            "swapped sectors": (sectors * (sectors - 1) // 2, lambda n: self._swapped(n, SECTOR)),
            "swapped pages": (pages * (pages - 1) // 2, lambda n: self._swapped(n, PAGE)),
            "foreign sector": (sectors, lambda n: self._taken(self.other, n, n, SECTOR)),
            "foreign page": (pages, lambda n: self._taken(self.other, n, n, PAGE)),
            "foreign page elsewhere": (
                pages * pages,
                lambda n: self._taken(self.other, *divmod(n, pages), PAGE),
            ),
            "stale sector": (sectors, lambda n: self._taken(self.older, n, n, SECTOR)),
            "stale page": (pages, lambda n: self._taken(self.older, n, n, PAGE)),
            "stale page elsewhere": (
                pages * pages,
                lambda n: self._taken(self.older, *divmod(n, pages), PAGE),
            ),
            "doubled page": (pages * pages, lambda n: self._taken(self.sound, *divmod(n, pages), PAGE)),
            "foreign": (int(whole), lambda _: self.other),
            "stale": (1, lambda _: self.older),
            "foreign end": (sectors - self._from, self._foreign_end),
            "grown": (PAGE, lambda n: np.append(self.sound, np.zeros(n + 1, np.uint8))),
        }  # fmt: skip
        self._names = list(self._kinds)
        self._ends = list(accumulate(count for count, _ in self._kinds.values()))
        self.count = self._ends[-1]

    def make(self, number, seed=0):
        """Return (name, bytes) of damage `number`; from `count` on they are mixtures, by `seed`."""
        if number >= self.count:
            return self._mixture(random.Random(f"{seed}:{number}"))
        kind = bisect_right(self._ends, number)
        name = self._names[kind]
        count, make = self._kinds[name]
        place = number - (self._ends[kind] - count)
        return f"{name} {place}", np.array(make(place))

    def sample(self, most):
        """Return about `most` numbers, as many of each kind as it has, half of them flips."""
        chosen = []
        of_kind = {name: most // (2 * (len(self._kinds) - 1)) for name in self._names}
        of_kind["flip"] = most // 2
        for (name, (count, _)), end in zip(self._kinds.items(), self._ends, strict=True):
            wanted = min(count, of_kind[name])
            chosen += [end - count + count * n // wanted for n in range(wanted)]
        return chosen

    # -- kinds -----------------------------------------------------------------------------------

    def _flip(self, bit):
        data = self.sound.copy()
        data[bit // 8] ^= 1 << bit % 8
        return data

    def _two(self, number):
        data = self.sound.copy()
        for bit in _pair(number):
            data[bit // 8] ^= 1 << bit % 8
        return data

    def _filled(self, place, length, value):
        data = self.sound.copy()
        data[place * length : (place + 1) * length] = value
        return data

    def _zeroed_end(self, place):
        data = self.sound.copy()
        data[place * SECTOR :] = 0
        return data

    def _swapped(self, number, length):
        low, high = _pair(number)
        data = self.sound.copy()
        first, second = self.sound[low * length :][:length], self.sound[high * length :][:length]
        data[low * length :][: len(second)] = second
        data[high * length :][: len(second)] = first[: len(second)]
        return data

    def _taken(self, source, place, target, length):
        data = self.sound.copy()
        piece = source[place * length :][:length]
        piece = piece[: max(0, len(data) - target * length)]
        data[target * length :][: len(piece)] = piece
        return data

    def _foreign_end(self, place):
        place += self._from
        data = self.sound.copy()
        piece = self.other[place * SECTOR : len(data)]
        data[place * SECTOR :][: len(piece)] = piece
        return data

    def _mixture(self, rng):
        names, data = [], self.sound.copy()
        for _ in range(rng.randint(2, 4)):
            action, place = rng.randrange(5), rng.randrange(max(1, len(data)))
            length = rng.choice((1, 2, 4, 8, 64, SECTOR, PAGE))
            piece = data[place : place + length]
            if action == 0:
                piece[:] = rng.randrange(256)
            elif action == 1:
                piece[:] = np.frombuffer(rng.randbytes(len(piece)), np.uint8)
            elif action == 2:
                data[place : place + 1] ^= 1 << rng.randrange(8)
            elif action == 3:
                source = rng.choice((self.other, self.older, self.sound))
                begin = rng.randrange(max(1, len(source)))
                taken = source[begin : begin + len(piece)]
                data[place : place + len(taken)] = taken
            else:
                data = data[: max(1, place)] if rng.random() < 0.2 else data
            names.append(f"{action} at {place}")
        return "mixture: " + ", ".join(names), data


def _places(size, length):
    return -(-size // length)


def _pair(number):
    """Return the two numbers low < high of pair `number`, counted (0, 1), (0, 2), (1, 2), (0, 3) ..."""
    high = int((1 + (1 + 8 * number) ** 0.5) / 2)
    while high * (high - 1) // 2 > number:
        high -= 1
    while (high + 1) * high // 2 <= number:
        high += 1
    return number - high * (high - 1) // 2, high
