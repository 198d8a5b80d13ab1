"""The faults of a simulated disk: failing calls, short writes, the moment of a crash.

A fault counts the calls of its kind from when it was armed and strikes the nth (from 1), once or
from then on. The kinds are the names of the calls on the seam; `ANY` counts them all::

    open read write reserve truncate sync forget map mapping_sync make_folder list_folder stat
    rename link unlink sync_folder free_bytes lock

Depends on nothing.
"""

from __future__ import annotations

import itertools
import os
import random
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator

ANY: Final = "*"


class SimulatedCrash(BaseException):
    """The machine lost its power. Not an Exception, so that nothing below a test handles it."""


class Call(NamedTuple):
    """One call on the seam, as the trace keeps it."""

    kind: str
    path: str


@dataclass
class Fault:
    """An error that strikes the nth call of a kind."""

    kind: str
    nth: int
    number: int
    for_ever: bool = False
    written_bytes: int = 0
    seen: int = 0

    def strikes(self, kind: str) -> bool:
        """Count a call; say whether it fails."""
        if self.kind not in (kind, ANY):
            return False
        self.seen += 1
        return self.seen == self.nth or (self.for_ever and self.seen > self.nth)

    def error(self, path: str) -> OSError:
        return OSError(self.number, os.strerror(self.number), path)


@dataclass
class CrashPoint:
    """The nth call of a kind, before or after which the machine stops."""

    kind: str
    nth: int
    after: bool
    seen: int = 0

    def counts(self, kind: str) -> bool:
        """Count a call; say whether this is the one."""
        if self.kind not in (kind, ANY):
            return False
        self.seen += 1
        return self.seen == self.nth


def sampled_choices(count: int, seed: int) -> Iterator[tuple[bool, ...]]:
    """Yield different choices of `count` effects: the telling ones first, then samples for ever."""
    seen: set[tuple[bool, ...]] = set()
    for choice in itertools.chain(_telling_choices(count), _random_choices(count, seed)):
        if choice not in seen:
            seen.add(choice)
            yield choice


def _telling_choices(count: int) -> Iterator[tuple[bool, ...]]:
    yield (False,) * count
    yield (True,) * count
    for index in range(count):
        yield tuple(other == index for other in range(count))
        yield tuple(other != index for other in range(count))
        yield tuple(other <= index for other in range(count))


def _random_choices(count: int, seed: int) -> Iterator[tuple[bool, ...]]:
    source = random.Random(seed)
    while True:
        density = source.random()
        yield tuple(source.random() < density for _ in range(count))
