import sys
import threading
from itertools import islice

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from tierdex.lifecycle.table import skip_list
from tierdex.lifecycle.table.skip_list import Bounds, SkipList

KEYS = st.integers(0, 300)
VALUES = st.tuples(st.integers(-50, 350), st.integers(0, 400), st.integers(0, 60))


def bounds(key, value):
    """A value is (least time, length, how many older keys it stands for)."""
    return Bounds(value[0], value[0] + value[1], key - value[2])


class SkipListAgainstDict(RuleBasedStateMachine):
    def __init__(self):
        super().__init__()
        self.list = SkipList(bounds)
        self.model = {}
        self.kept = []  # earlier lists, with what they held

    @rule(items=st.dictionaries(KEYS, VALUES, max_size=200))
    def build(self, items):
        self.model = items
        self.list = SkipList(bounds, sorted(items.items()))

    @rule(key=KEYS, value=VALUES)
    def insert(self, key, value):
        if key in self.model:
            with pytest.raises(KeyError):
                self.list.insert(key, value)
        else:
            self.list = self.list.insert(key, value)
            self.model = {**self.model, key: value}

    @rule(key=KEYS)
    def remove(self, key):
        if key in self.model:
            self.list = self.list.remove(key)
            self.model = {other: self.model[other] for other in self.model if other != key}
        else:
            with pytest.raises(KeyError):
                self.list.remove(key)

    @rule(key=KEYS, value=VALUES)
    def replace(self, key, value):
        if key in self.model:
            self.list = self.list.replace(key, value)
            self.model = {**self.model, key: value}
        else:
            with pytest.raises(KeyError):
                self.list.replace(key, value)

    @rule()
    def keep(self):
        self.kept.append((self.list, self.model))

    @rule(key=KEYS)
    def get(self, key):
        assert self.list.get(key) == self.model.get(key)

    @rule(low=st.none() | KEYS, high=st.none() | KEYS)
    def iterate(self, low, high):
        wanted = [
            value
            for key, value in sorted(self.model.items())
            if (low is None or key >= low) and (high is None or key <= high)
        ]
        assert list(self.list.iterate(low, high)) == wanted

    @rule(times=st.tuples(KEYS, KEYS), high=st.none() | KEYS)
    def descend(self, times, high):
        begin, end = sorted(times)
        wanted = [
            value
            for key, value in sorted(self.model.items(), reverse=True)
            if (high is None or key <= high) and value[0] <= end and value[0] + value[1] >= begin
        ]
        assert list(self.list.descend(begin, end, high)) == wanted

    @rule(key=KEYS)
    def across(self, key):
        wanted = [
            value
            for other, value in sorted(self.model.items(), reverse=True)
            if other >= key and other - value[2] <= key
        ]
        assert list(self.list.across(key, key)) == wanted

    @invariant()
    def is_sound(self):
        assert self.list.check() == []
        assert len(self.list) == len(self.model)

    @invariant()
    def earlier_lists_are_what_they_were(self):
        for earlier, model in self.kept:
            assert list(earlier) == [model[key] for key in sorted(model)]


TestSkipListAgainstDict = SkipListAgainstDict.TestCase
TestSkipListAgainstDict.settings = settings(max_examples=30, stateful_step_count=40, deadline=None)


def test_a_reader_of_an_earlier_list_is_not_disturbed():
    skips = SkipList(bounds, [(key, (key, 0, 0)) for key in range(100)])
    reading = skips.iterate()
    assert next(reading) == (0, 0, 0)
    changed = skips
    for key in range(50):
        changed = changed.remove(key)
    assert len(list(reading)) == 99
    assert len(list(changed)) == 50


def test_the_shape_is_that_of_the_keys_whatever_came_and_went():
    one = SkipList(bounds, [(key, (key, 0, 0)) for key in range(0, 1000, 2)])
    other = SkipList(bounds)
    for key in range(1000):
        other = other.insert(key, (key, 0, 0))
    for key in range(1, 1000, 2):
        other = other.remove(key)
    assert skip_list._shape(one._root) == skip_list._shape(other._root)


# -- what it costs --------------------------------------------------------------------------------

COUNTS = (100, 10_000, 100_000)
WIDE = -5  # the time at which one late file begins


def lines_of(work):
    """Return how many lines of the skip list's module `work` runs, and what it returns."""
    lines = 0

    def in_module(frame, event, argument):
        nonlocal lines
        lines += event == "line"
        return in_module

    def trace(frame, event, argument):
        return in_module if frame.f_code.co_filename == skip_list.__file__ else None

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        found = work()
    finally:
        sys.settrace(before)
    return lines, found


def spans_of(span):
    yield span
    for child in span.children:
        if isinstance(child, skip_list._Span):
            yield from spans_of(child)


@pytest.fixture(scope="module", params=COUNTS)
def many(request):
    """A list whose key n has the times [10 n, 10 n + 9], but for one late file in the middle."""
    count = request.param
    items = [(key, (10 * key, 9, 0)) for key in range(count)]
    items[count // 2] = (count // 2, (WIDE, 10 * count, 0))
    return SkipList(bounds, items)


def test_a_search_costs_the_logarithm_and_what_it_finds(many):
    count = len(many)
    late = (WIDE, 10 * count, 0)
    for key in (3, count // 3, count - 2):
        lines, found = lines_of(lambda key=key: list(many.descend(10 * key + 5, 10 * key + 12)))
        wanted = {(10 * (key + 1), 9, 0), (10 * key, 9, 0), late}
        assert (len(found), set(found)) == (3, wanted)
        assert lines < 2_500
    lines, found = lines_of(lambda: list(many.descend(20 * count, 30 * count)))
    assert (found, lines < 500) == ([], True)


def test_a_search_that_stops_early_sees_no_more(many):
    lines, found = lines_of(lambda: next(many.descend()))
    assert found == (10 * (len(many) - 1), 9, 0)
    assert lines < 100
    lines, _ = lines_of(lambda: next(many.descend(high=len(many) // 3)))
    assert lines < 300
    lines, newest = lines_of(lambda: list(islice(many.descend(), 65)))
    assert (len(newest), lines < 1_000) == (65, True)


@pytest.mark.parametrize("change", ["insert", "remove", "replace"])
def test_a_change_copies_a_span_a_level(many, change):
    known = {id(span) for span in spans_of(many._root)}
    count = len(many)
    worst = 0
    for key in range(count // 3, count // 3 + 20):
        value = (10 * key, 9, 0)
        changed = (
            many.remove(key) if change == "remove"
            else many.replace(key, value) if change == "replace"
            else many.insert(key + 0.5, value)
        )  # fmt: skip
        fresh = [span for span in spans_of(changed._root) if id(span) not in known]
        assert len(fresh) <= 2 * (skip_list.TOP + 1)
        worst = max(worst, sum(len(span.children) for span in fresh))
    assert worst < 600


def test_keys_are_spread_over_the_levels():
    heights = [skip_list._height_of((number, "node")) for number in range(1 << 15)]
    for level in range(1, 4):
        share = sum(height >= level for height in heights) / len(heights)
        assert 0.7 < share * 8**level < 1.4


def test_readers_beside_a_writer_see_whole_lists():
    lists = [SkipList(bounds, [(key, (key, 0, 0)) for key in range(0, 400, 2)])]
    broken = []
    done = threading.Event()

    def read():
        while not done.is_set():
            now = lists[0]
            seen = [value[0] for value in now.descend()]
            if seen != sorted(set(seen), reverse=True) or len(seen) != len(now):
                broken.append(seen)

    reader = threading.Thread(target=read)
    reader.start()
    for key in range(1, 400, 2):
        lists[0] = lists[0].insert(key, (key, 0, 0))
        lists[0] = lists[0].remove(key - 1)
    done.set()
    reader.join()
    assert broken == []
