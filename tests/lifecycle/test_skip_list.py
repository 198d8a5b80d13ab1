import threading
from itertools import pairwise

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from tierdex.lifecycle.skip_list import SkipList

keys = st.integers(0, 40)


class SkipListAgainstSortedDict(RuleBasedStateMachine):
    def __init__(self):
        super().__init__()
        self.list: SkipList[int, str] = SkipList()
        self.model: dict[int, str] = {}

    @rule(key=keys, value=st.text(max_size=3))
    def insert(self, key, value):
        if key in self.model:
            with pytest.raises(KeyError):
                self.list.insert(key, value)
        else:
            self.list.insert(key, value)
            self.model[key] = value

    @rule(key=keys)
    def remove(self, key):
        if key in self.model:
            assert self.list.remove(key) == self.model.pop(key)
        else:
            with pytest.raises(KeyError):
                self.list.remove(key)

    @rule(key=keys, value=st.text(max_size=3))
    def replace(self, key, value):
        if key in self.model:
            assert self.list.replace(key, value) == self.model[key]
            self.model[key] = value
        else:
            with pytest.raises(KeyError):
                self.list.replace(key, value)

    @rule(key=keys)
    def get(self, key):
        assert self.list.get(key) == self.model.get(key)

    @rule(low=st.none() | keys, high=st.none() | keys)
    def iterate(self, low, high):
        wanted = [
            value
            for key, value in sorted(self.model.items())
            if (low is None or key >= low) and (high is None or key <= high)
        ]
        assert list(self.list.iterate(low, high)) == wanted

    @invariant()
    def is_sound(self):
        assert self.list.check() == []
        assert len(self.list) == len(self.model)


TestSkipListAgainstSortedDict = SkipListAgainstSortedDict.TestCase
TestSkipListAgainstSortedDict.settings = settings(
    max_examples=40, stateful_step_count=40, deadline=None
)


def test_reader_on_a_removed_node_finds_its_way_on():
    skips: SkipList[int, int] = SkipList()
    for key in range(5):
        skips.insert(key, key)
    reading = skips.iterate()
    assert [next(reading), next(reading)] == [0, 1]
    skips.remove(1)
    skips.remove(2)
    assert list(reading)[-2:] == [3, 4]


def test_reader_beside_a_writer_sees_an_ascending_list():
    skips: SkipList[int, int] = SkipList()
    for key in range(0, 400, 2):
        skips.insert(key, key)
    broken: list[list[int]] = []
    done = threading.Event()

    def read() -> None:
        while not done.is_set():
            seen = list(skips.iterate())
            if seen != sorted(set(seen)) or not set(range(0, 400, 4)).issubset(seen):
                broken.append(seen)

    reader = threading.Thread(target=read)
    reader.start()
    for key in range(1, 400, 2):
        skips.insert(key, key)
        skips.remove(key)
        if key % 4 == 1:
            skips.remove(key + 1)
            skips.insert(key + 1, key + 1)
    done.set()
    reader.join()
    assert broken == []


def test_height_is_spread_like_a_fair_coin():
    skips: SkipList[int, int] = SkipList()
    for key in range(4_096):
        skips.insert(key, key)
    level, counts = 0, []
    while level < 6:
        node, count = skips._head.links[level], 0
        while node is not None:
            node, count = node.links[level], count + 1
        counts.append(count)
        level += 1
    assert all(0.35 < high / low < 0.65 for low, high in pairwise(counts))
