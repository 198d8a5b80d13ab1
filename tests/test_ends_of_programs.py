"""A program that ends without closing what it opened says nothing, and what is gone is forgotten."""

from __future__ import annotations

import gc
import subprocess
import sys

from tierdex import fork

PROGRAM = """
import builtins, sys, tempfile, tierdex
tiny = {"slot_count": 64, "item_capacity": 1000, "background": %s}
builtins.kept = tierdex.Index.open(tempfile.mkdtemp(), **tiny)
kept.put(topic="t", key="k", queue_id=0, offset=0, size=1, timestamp=1_700_000_000_000)
sys.log = tierdex.MessageLog.open(tempfile.mkdtemp(), background=%s)
sys.log.append(topic="t", queue_id=0, body=b"x")
"""


def test_a_program_that_ends_without_close_prints_nothing():
    for background in (True, False):
        program = PROGRAM % (background, background)
        ended = subprocess.run(
            [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True
        )
        assert (ended.stdout, ended.stderr) == ("", "")


class Told:
    def tell(self):
        self.was_told = True


def test_registrations_have_no_callback_and_those_of_the_gone_go():
    """A callback of a weakref may run at the end of a program, when what it needs is gone."""
    kept = Told()
    fork.tell_child(kept.tell)
    for _ in range(10_000):
        fork.tell_child(Told().tell)
    gc.collect()
    assert len(fork._told) < 5000
    assert all(reference.__callback__ is None for reference, _ in fork._told)
    assert any(reference() is kept for reference, _ in fork._told)
