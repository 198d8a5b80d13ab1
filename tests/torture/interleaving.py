"""Threads that run one at a time, and change places where a seed says: at any line, lock or call.

Every thread of an experiment is an actor. One holds the baton; at a *point* it may be handed on. Points
are each line of the modules that are looked at, and each lock taken or let go; what the experiment's
locks, events and conditions are is decided here, so that a deadlock is found and not waited for::

    threads = Interleaving(seed)
    with threads.locks():                # threading.Lock() and the like make ours from here on
        index = Index.open(...)
        threads.run({"put": put_some, "query": ask_some})

The same seed hands the baton on at the same points, in a process with the same hash seed.
"""

from __future__ import annotations

import faulthandler
import functools
import random
import sys
import threading
from _thread import allocate_lock, start_new_thread
from contextlib import contextmanager
from pathlib import Path

import tierdex

_ROOT = str(Path(tierdex.__file__).parent)
# Whatever threads share. Of `indexfile` that is the file being written, and what is remembered of a
# published one; the rest turns bytes that no thread changes into values of one thread.
_LOOKED_AT = tuple(
    f"{_ROOT}/{part}" for part in (
        "index_service/", "log_service/", "logfile/journal/", "lifecycle/", "compactor/",
        "indexfile/chained", "indexfile/batch",
        "indexfile/compacted/file.py", "indexfile/compacted/sidecar.py", "fileparts/dictionary.py",
        "fileparts/filter.py", "indexfile/predecessor.py", "indexfile/chained/reserved_blocks.py",
    )
)  # fmt: skip
# Locks that were made long before ours are, of a dataclass, of numba's compiler (which calls what
# makes the intrinsics), of cached properties (one for all objects, up to Python 3.11) and of modules
# that are being imported: no point inside.
_FILES_LEFT_ALONE = (f"{_ROOT}/compactor/progress.py",)
_CACHED_PROPERTY = functools.cached_property.__get__.__code__
_LIMIT_S = 300.0


class Deadlock(AssertionError):
    """Every actor waits for another."""


class Stopped(BaseException):
    """Another actor failed: this one ends where it stands."""


class _Actor:
    def __init__(self, name, body):
        self.name, self.body = name, body
        self.baton = allocate_lock()
        self.baton.acquire()
        self.is_over, self.is_free, self.may_give_up = False, None, False

    @property
    def may_run(self):
        return not self.is_over and (self.is_free is None or self.is_free())


class Interleaving:
    """Runs actors one at a time; `every` is how many points lie between two changes, on average."""

    def __init__(self, seed, every=200):
        self.source = random.Random(seed)
        self.every = every
        self.left = 1
        self.actors, self.holder = [], None
        self.failure, self.changes = None, 0
        self.done = allocate_lock()
        self._local = threading.local()
        self._traces, self._quiet = {}, False
        self._at_line, self._at_end_of_quiet = self._trace_line, self._trace_quiet  # bound once

    # -- what an experiment calls ------------------------------------------------------------------

    @contextmanager
    def locks(self):
        """Whatever makes a lock, an event or a condition inside makes one of ours."""
        names = {
            "Lock": lambda: Lock(self), "RLock": lambda: Lock(self, reentrant=True),
            "Event": lambda: Event(self),
        }  # fmt: skip
        before = {name: getattr(threading, name) for name in names}
        for name, make in names.items():
            setattr(threading, name, make)
        try:
            yield
        finally:
            for name, make in before.items():
                setattr(threading, name, make)

    def run(self, bodies):
        """Run all to their ends. Raises what the first of them raises, or Deadlock."""
        self.actors = [_Actor(name, body) for name, body in bodies.items()]
        self.failure = None
        self.done.acquire()
        for actor in self.actors:
            start_new_thread(self._live, (actor,))
        self._hand_to(self.source.choice(self.actors))
        if not self.done.acquire(timeout=_LIMIT_S):
            faulthandler.dump_traceback()
            raise AssertionError("an actor waits for a lock that is none of ours")
        self.done.release()
        self.holder = None
        if self.failure is not None:
            raise self.failure

    def point(self):
        """The baton may change hands here."""
        if (
            self._quiet
            or self.holder is None
            or self.holder is not getattr(self._local, "actor", None)
        ):
            return
        self.left -= 1
        if self.left <= 0:
            self._come_to_change()

    def rest(self, changes):
        """Let others go on until the baton has changed hands that often, or no other actor can."""
        until = self.changes + changes
        self.wait(lambda: self.changes >= until, may_give_up=True)

    def wait(self, is_free, may_give_up=False):
        """Wait until it is free. Return False when no actor is left that could free it."""
        actor = getattr(self._local, "actor", None)
        if self.holder is None or actor is None:
            if not is_free():
                raise Deadlock("outside of a run")
            return True
        while not is_free():
            actor.is_free, actor.may_give_up = is_free, may_give_up
            others = [each for each in self.actors if each is not actor]
            try:
                if may_give_up and not any(each.may_run for each in others):
                    return False
                self._hand_over(actor, self.source.choice(self._able(others)))
            finally:
                actor.is_free, actor.may_give_up = None, False
        return True

    # -- the baton -----------------------------------------------------------------------------------

    def _live(self, actor):
        actor.baton.acquire()
        self._local.actor = actor
        try:
            if self.failure is None:
                sys.settrace(self._trace)
                actor.body()
        except Stopped:
            pass
        except BaseException as error:  # noqa: BLE001 -- raised by `run`
            if self.failure is None:
                error.add_note(f"in actor {actor.name!r}")
                self.failure = error
        finally:
            sys.settrace(None)
            actor.is_over = True
            self._leave()

    def _leave(self):
        left = [each for each in self.actors if not each.is_over]
        if not left:
            self.done.release()
            return
        try:
            able = left if self.failure is not None else self._able(left)
        except Deadlock as error:
            self.failure, able = error, left
        self._hand_to(self.source.choice(able))

    def _come_to_change(self):
        self.left = 1 + int(self.source.expovariate(1 / self.every))
        able = [each for each in self.actors if each.may_run]
        chosen = self.source.choice(able)
        if chosen is not self.holder:
            self._hand_over(self.holder, chosen)

    def _able(self, actors):
        """Return those of them who may run or, when none may, give up waiting."""
        able = [each for each in actors if each.may_run]
        able = able or [each for each in actors if not each.is_over and each.may_give_up]
        if not able:
            raise Deadlock(", ".join(each.name for each in self.actors if not each.is_over))
        return able

    def _hand_over(self, actor, chosen):
        self.changes += 1
        quiet, self._quiet = (
            self._quiet,
            False,
        )  # it is this actor's, who may wait inside for a lock of ours
        self._hand_to(chosen)
        actor.baton.acquire()
        self._quiet = quiet
        if self.failure is not None:
            raise Stopped

    def _hand_to(self, actor):
        self.holder = actor
        actor.baton.release()

    # -- lines -----------------------------------------------------------------------------------------

    def _trace(self, frame, event, argument):
        del event, argument
        if self._quiet:
            return None
        code = frame.f_code
        trace = self._traces.get(code, self)
        if trace is self:
            trace = self._traces[code] = self._choose_trace(frame)
        if trace is self._at_end_of_quiet:
            self._quiet = True
        return trace

    def _choose_trace(self, frame):
        code, caller = frame.f_code, frame.f_back
        if code.co_name == "<module>":
            return self._at_end_of_quiet
        if not code.co_filename.startswith(_LOOKED_AT):
            return None
        alone = code.co_filename.startswith(_FILES_LEFT_ALONE)
        alone |= caller is not None and caller.f_code is _CACHED_PROPERTY
        return self._at_end_of_quiet if alone else self._at_line

    def _trace_line(self, frame, event, argument):
        """A point at each line; what `point` does, without a call while the baton stays."""
        del frame, argument
        if event == "line" and not self._quiet:
            self.left -= 1
            if self.left <= 0:
                self._come_to_change()
        return self._at_line

    def _trace_quiet(self, frame, event, argument):
        """No point until this frame returns, nor in what it calls."""
        del frame, argument
        if event == "return":
            self._quiet = False
        return self._at_end_of_quiet


class Lock:
    """A lock, or one that its owner may take again."""

    def __init__(self, threads, *, reentrant=False):
        self._threads, self._reentrant = threads, reentrant
        self._owner, self._depth = None, 0

    def acquire(self, blocking=True, timeout=-1):
        self._threads.point()
        me = threading.get_ident()
        if self._reentrant and self._owner == me:
            self._depth += 1
            return True
        if self._owner is not None:
            if not blocking:
                return False
            if not self._threads.wait(lambda: self._owner is None, may_give_up=timeout >= 0):
                return False
        self._owner, self._depth = me, 1
        return True

    def release(self):
        if self._owner is None:
            raise RuntimeError("release of a lock that no actor holds")
        self._depth -= 1
        if self._depth == 0:
            self._owner = None
            self._threads.point()

    def locked(self):
        return self._owner is not None

    def _is_owned(self):  # what threading.Condition asks, of a future for example
        return self._owner == threading.get_ident()

    def __enter__(self):
        self.acquire()
        return self

    def __exit__(self, *error):
        self.release()


class Event:
    """A flag that others wait for."""

    def __init__(self, threads):
        self._threads, self._is_set = threads, False

    def is_set(self):
        return self._is_set

    def set(self):
        self._is_set = True
        self._threads.point()

    def clear(self):
        self._is_set = False

    def wait(self, timeout=None):
        return self._threads.wait(lambda: self._is_set, may_give_up=timeout is not None)
