"""Which puts retention may have hidden or dropped by now, whatever the clock has done since.

An entry's age counts from the sealing of its file, which the model does not see. But no file is sealed
before what it holds was put: until the topic's retention has passed since the put, counted from the
lowest time that the clock has shown meanwhile, the entry must be found. From then on it may be found
or not; but once it was not, it is not found again. That does not hold for what was put before the
clock was set back: a seal that failed before that and was repeated after has two times.

Depends on nothing of Tierdex.
"""

from __future__ import annotations


class Fading:
    """The puts of one node that retention may take, by identity (topic, ...)."""

    def __init__(self, default_s=None, topics_s=None):
        self._default_s, self._topics_s = default_s, topics_s or {}
        self._lowest_ms = {}  # identity -> lowest time shown since the put
        self._looked_ms = None
        self.faded = set()  # identities that need not be found any more
        self.hidden = set()  # those that were asked for, and not found
        self._excused = set()  # identities put before the clock was set back

    @property
    def is_on(self):
        return self._default_s is not None or bool(self._topics_s)

    def note(self, identities, now_ms):
        """These were put now."""
        for identity in identities:
            if self._limit_ms(identity[0]) is not None:
                self._lowest_ms[identity] = now_ms

    def look(self, now_ms):
        """Look at the clock: before anything is compared, before the clock is set, and after."""
        if now_ms == self._looked_ms:
            return
        if self._looked_ms is not None and now_ms < self._looked_ms:
            self.hidden.clear()
            self._excused = self.faded | self._lowest_ms.keys()
        self._looked_ms = now_ms
        for identity, lowest_ms in list(self._lowest_ms.items()):
            if now_ms - lowest_ms >= self._limit_ms(identity[0]):
                self.faded.add(identity)
                del self._lowest_ms[identity]
            elif now_ms < lowest_ms:
                self._lowest_ms[identity] = now_ms

    def take_answer(self, expected, found):
        """All identities that match a question, and those that answered it; return what came back."""
        self.hidden |= self.faded & (expected - found) - self._excused
        return self.hidden & found

    def is_over(self, topics, sealed_ms, now_ms):
        """Say whether the retention of all these topics has passed in a file sealed then."""
        limits = [self._limit_ms(topic) for topic in topics]
        return sealed_ms is not None and all(
            limit is not None and now_ms - sealed_ms >= limit for limit in limits
        )

    def _limit_ms(self, topic):
        limit_s = self._topics_s.get(topic, self._default_s)
        return None if limit_s is None else round(limit_s * 1000)
