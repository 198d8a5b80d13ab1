"""What an index promises, as a list of puts: the model that the real thing is compared with.

A put is a number in put order. What was acknowledged at a level is a prefix of that order; what an
index may answer after a failure is `puts[:n]` for one n that is not below what was acknowledged.

Depends on fading, and on nothing of Tierdex.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from tests.stateful.fading import Fading

LEVELS = ("os", "disk", "remote")


class Put(NamedTuple):
    """One message as it was put."""

    topic: str
    keys: tuple[str, ...]
    message_id: str | None
    queue_id: int
    offset: int
    size: int
    timestamp: int

    @property
    def identity(self):
        """What a repeat repeats: the location and the time."""
        return self.topic, self.queue_id, self.offset, self.size, self.timestamp


class Lookup(NamedTuple):
    """One question: by topic and key, or by message ID (topic None: any)."""

    topic: str | None
    key: str | None = None
    message_id: str | None = None
    begin: int | None = None
    end: int | None = None

    def fields(self):
        return {name: value for name, value in self._asdict().items() if value is not None}

    def matches(self, put):
        if self.topic is not None and self.topic != put.topic:
            return False
        if self.begin is not None and put.timestamp < self.begin:
            return False
        if self.end is not None and put.timestamp > self.end:
            return False
        return self.key in put.keys if self.key is not None else self.message_id == put.message_id


@dataclass
class NodeModel:
    """The puts of one node, what was acknowledged of them, and what was expired since."""

    name: str
    puts: list[Put] = field(default_factory=list)
    acknowledged: dict[str, int] = field(default_factory=lambda: dict.fromkeys(LEVELS, 0))
    gone: set[int] = field(default_factory=set)  # numbers of expired puts
    uncertain: set[int] = field(default_factory=set)  # puts that raised: applied or not
    leaving: list[set] = field(default_factory=list)  # files whose expiry was not confirmed
    dropped: list[Put] = field(default_factory=list)  # received by what a failed `close` ended
    next_offset: int = 0
    fading: Fading = field(default_factory=Fading)

    def acknowledge(self, level, count=None):
        """Everything put so far (or the first `count`) has `level`, and every weaker level."""
        count = len(self.puts) if count is None else count
        for known in LEVELS[: LEVELS.index(level) + 1]:
            self.acknowledged[known] = max(self.acknowledged[known], count)

    def expected(self, lookup, *, ever=False):
        """Return the identities that answer, newest put first, each once; `ever`: expired ones too."""
        return _newest_first(self._matching(lookup, ever=ever))

    def may_be_answer(self, lookup, found):
        """Return whether `found` is what is expected, with or without what retention may take."""
        expected, faded = self.expected(lookup), self.fading.faded
        if not faded:
            return found == expected
        came_back = self.fading.take_answer(set(expected), set(found))
        kept = [entry for entry in expected if entry not in faded or entry in found]
        return found == kept and not came_back

    def was_expected(self, lookup, found):
        """Return whether `found` is the answer of the first puts, however many."""
        matching = self._matching(lookup)
        return any(
            found == _newest_first(matching[:count]) for count in range(len(matching), -1, -1)
        )

    def _matching(self, lookup, *, ever=False, first=None):
        return [
            put for number, put in enumerate(self.puts[:first])
            if lookup.matches(put) and (ever or number not in self.gone)
        ]  # fmt: skip

    def certain(self, lookup):
        """Return the identities that a complete answer must have."""
        leaving = set().union(*self.leaving)
        return {
            put.identity for number, put in enumerate(self.puts)
            if lookup.matches(put) and number not in self.gone and number not in self.uncertain
        } - leaving - self.fading.faded  # fmt: skip

    def drop_received(self):
        """`close` raised: the index is gone, and its caller knows that `received` did not become more.

        DESIGN section 8 lets go of what was only received, which is in process memory, when that
        ends; not of what was `os`; and what is left of it is a prefix (`resolve` holds it to that).
        """
        received = range(self.acknowledged["os"], len(self.puts))
        self.dropped += [self.puts[number] for number in received if number not in self.uncertain]
        self.uncertain |= set(received)

    def resolve(self, survivors):
        """Learn which of the puts that raised were applied after all; forget the others.

        Raises AssertionError when what is left of puts that a failed close dropped is no prefix.
        """
        kept = [put.identity in survivors for put in self.dropped]
        assert kept == sorted(kept, reverse=True), f"{self.name}: dropped, and no prefix: {kept}"
        self.dropped = []
        for number in sorted(self.uncertain, reverse=True):
            identity = self.puts[number].identity
            if identity not in survivors and identity not in self.fading.faded:
                del self.puts[number]
                self.gone = {n - (n > number) for n in self.gone}
                for level in LEVELS:
                    self.acknowledged[level] -= self.acknowledged[level] > number
        self.uncertain = set()
        for identities in self.leaving:
            if not identities & survivors and not identities <= self.fading.faded:
                self.expire(identities)
        self.leaving = []

    def identities(self, count):
        return {p.identity for n, p in enumerate(self.puts[:count]) if n not in self.gone}

    def cut_to_survivors(self, survivors, level, answers=()):
        """Learn what a failure left: `survivors` are the identities that are found now.

        Where an entry was put twice, only the order in `answers`, pairs of a lookup and its
        identities, tells whether the last time is left. Raises AssertionError when something
        acknowledged at `level` is lost, or when what survived is not a prefix of the put order.
        """
        self.resolve(survivors)
        floor = self.acknowledged[level]
        faded = self.fading.faded
        lost = self.identities(floor) - survivors - faded
        assert not lost, f"{self.name}: acknowledged at {level!r} and lost: {sorted(lost)[:5]}"
        known = {put.identity for put in self.puts}
        phantoms = survivors - known
        assert not phantoms, f"{self.name}: never put: {sorted(phantoms)[:5]}"
        counts = [
            count for count in range(len(self.puts), floor - 1, -1)
            if self.identities(count) - faded == survivors - faded
        ]  # fmt: skip
        if counts:
            explaining = [count for count in counts if self._explains(count, answers)]
            self._cut((explaining or counts)[0])
            return
        missing = sorted(
            number
            for number, put in enumerate(self.puts)
            if put.identity not in survivors | faded and number not in self.gone
        )
        raise AssertionError(
            f"{self.name}: survivors are no prefix of {len(self.puts)} puts: first missing "
            f"{missing[:3]}, acknowledged {self.acknowledged}"
        )

    def _explains(self, count, answers):
        """Return whether the first `count` puts give the answers' order."""
        orders = [_newest_first(self._matching(lookup, first=count)) for lookup, _ in answers]
        return all(
            [entry for entry in order if entry in found] == found
            for order, (_, found) in zip(orders, answers, strict=True)
        )

    def _cut(self, count):
        del self.puts[count:]
        self.gone = {number for number in self.gone if number < count}
        for level in LEVELS:
            self.acknowledged[level] = min(self.acknowledged[level], count)

    def expire(self, identities):
        """Forget what the expired files held."""
        for number, put in enumerate(self.puts):
            if put.identity in identities:
                self.gone.add(number)

    @property
    def lookups(self):
        """Return one lookup for every key and message ID that was ever put."""
        keys = {Lookup(put.topic, key) for put in self.puts for key in put.keys}
        ids = {Lookup(None, message_id=put.message_id) for put in self.puts if put.message_id}
        return sorted(keys, key=repr) + sorted(ids, key=repr)


def _newest_first(puts):
    return list(dict.fromkeys(put.identity for put in reversed(puts)))
