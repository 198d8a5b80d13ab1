"""The baton goes to whom the seed says; who waits for ever is found."""

from __future__ import annotations

import sys
import threading
from importlib import import_module

import pytest

from tests.torture.interleaving import Deadlock, Interleaving
from tierdex.lifecycle.manifests.manifest import ManifestState


def _letters(seed, every=1):
    threads, seen = Interleaving(seed, every), []

    def body(letter):
        for _ in range(20):
            seen.append(letter)
            threads.point()

    threads.run({letter: lambda letter=letter: body(letter) for letter in "ab"})
    return "".join(seen)


def test_same_seed_changes_places_at_the_same_points():
    assert _letters(1) == _letters(1)
    assert _letters(1) != _letters(2)
    assert "ab" in _letters(1)
    assert "ba" in _letters(1)


@pytest.mark.parametrize("seed", range(5))
def test_lock_keeps_others_out_wherever_places_change(seed):
    threads = Interleaving(seed, every=1)
    with threads.locks():
        lock = threading.Lock()
    inside = []

    def body():
        for _ in range(10):
            with lock:
                inside.append(1)
                threads.point()
                assert len(inside) == 1
                inside.pop()

    threads.run({"a": body, "b": body, "c": body})


def test_deadlock_is_found():
    threads = Interleaving(3, every=1)
    with threads.locks():
        first, second = threading.Lock(), threading.Lock()

    def take(one, other):
        for _ in range(50):
            with one, other:
                pass

    with pytest.raises(Deadlock):
        threads.run({"a": lambda: take(first, second), "b": lambda: take(second, first)})


def test_failure_of_one_ends_all():
    threads = Interleaving(4, every=1)

    def fail():
        threads.point()
        raise ValueError("wrong")

    def go_on():
        while True:
            threads.point()

    with pytest.raises(ValueError, match="wrong"):
        threads.run({"a": fail, "b": go_on})


def test_event_wakes_who_waits_for_it():
    threads, order = Interleaving(5, every=3), []
    with threads.locks():
        event = threading.Event()

    def wait():
        assert event.wait()
        order.append("woken")

    def wake():
        for _ in range(10):
            threads.point()
        order.append("set")
        event.set()

    threads.run({"a": wait, "b": wake})
    assert order == ["set", "woken"]


def test_who_rests_lets_the_others_go_first():
    threads, order = Interleaving(6, every=1), []

    def rest():
        for _ in range(3):
            threads.rest(5)
            order.append("rested")

    def work():
        for _ in range(60):
            order.append("worked")
            threads.point()

    threads.run({"a": rest, "b": rest, "c": work})
    assert order.count("rested") == 6
    assert order.count("worked") == 60
    assert order[0] == "worked"


def test_all_who_rest_go_on_when_nobody_else_can():
    threads = Interleaving(7, every=1)
    threads.run({name: lambda: threads.rest(1000) for name in "abc"})


def test_deadlock_beside_somebody_who_rests_is_found():
    threads = Interleaving(3, every=1)
    with threads.locks():
        event = threading.Event()
    with pytest.raises(Deadlock):
        threads.run({"a": event.wait, "b": lambda: threads.rest(1000)})


def test_nobody_stops_within_a_cached_property_whose_lock_all_objects_share():
    def body():
        for number in range(30):
            assert not ManifestState(node="n", number=number).index_files

    threads = Interleaving(4, every=1)
    threads.run({"a": body, "b": body})
    assert threads.changes


def test_nobody_stops_within_an_import_for_whose_lock_others_wait(monkeypatch):
    name = "tierdex.compactor.rounds"
    monkeypatch.setattr("tierdex.compactor.rounds", import_module(name))
    monkeypatch.delitem(sys.modules, name)
    threads = Interleaving(4, every=1)
    threads.run(dict.fromkeys("ab", lambda: import_module(name)))
    assert name in sys.modules
