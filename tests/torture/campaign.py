"""One experiment of a run: its cases one after another in a process of its own, watched from outside.

The process tells through a pipe which case it begins and what came of it, so that a crash of the
interpreter, or a case that never ends, is a finding with its reproduction line like any other; the
experiment then goes on with the case after it::

    {"case": n}                       before
    {"tried": units} or {"found": s}  after
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import selectors
import signal
import subprocess
import sys
import threading
import time
import traceback
from importlib import import_module

from tests.patience import PATIENCE_S

MODULE = "tests.torture.experiments"  # that lists them as EXPERIMENTS
CASES = 10_000_000  # case numbers of one seed
MOST_FINDINGS = 20
SAME_HASHES = {"PYTHONHASHSEED": "0"}  # sets are walked in the same order in every process
_START_LIMIT_S = 600.0


def run_case(experiment, seed, case, seconds=None):
    """Try one case, in so many seconds if it takes time; return how many units that were."""
    number = case if experiment.cases else seed * CASES + case
    return experiment.run(number, seconds) if experiment.takes_time else experiment.run(number)


class Campaign:
    """One experiment, until its dose, its time or the patience with findings is used up."""

    def __init__(
        self,
        experiment,
        seed,
        seconds=None,
        case_limit_s=1800.0,
        module=MODULE,
    ):
        self.experiment, self.seed, self.seconds = experiment, seed, seconds
        self.case_limit_s, self.module = case_limit_s, module
        if experiment.takes_time:
            self.case_limit_s += 60 * experiment.minutes if seconds is None else seconds
        self.tried, self.case, self.next_case, self.findings = 0, None, 0, []
        self.cases, self.spent = None, 0.0
        self.process, self.stopped, self._starting = None, False, threading.Lock()

    @property
    def reached(self):
        """Whether the default dose was tried."""
        if self.experiment.cases:
            return self.cases is not None and self.next_case >= self.cases
        return self.tried >= self.experiment.dose

    @property
    def is_over(self):
        late = self.seconds is not None and self.spent >= self.seconds
        return self.stopped or late or self.reached or len(self.findings) >= MOST_FINDINGS

    def run(self):
        began = time.monotonic()
        while not self.is_over:
            left = None if self.seconds is None else self.seconds - self.spent
            try:
                self._run_process(left)
            finally:
                self.spent = time.monotonic() - began
        return self

    def _run_process(self, left):
        receiving, sending = os.pipe()
        order = {
            "module": self.module, "name": self.experiment.name, "seed": self.seed, "first": self.next_case,
            "units": None if self.experiment.cases else self.experiment.dose - self.tried,
            "seconds": left, "findings": MOST_FINDINGS - len(self.findings), "pipe": sending,
        }  # fmt: skip
        with self._starting:
            if self.stopped:
                os.close(receiving)
                os.close(sending)
                return
            self.process = subprocess.Popen(
                [sys.executable, "-m", "tests.torture.campaign", json.dumps(order)],
                pass_fds=[sending], start_new_session=True, env={**os.environ, **SAME_HASHES},
            )  # fmt: skip
        os.close(sending)
        try:
            in_time = self._listen(receiving)
            if in_time:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    self.process.wait(PATIENCE_S)
        finally:
            os.close(receiving)
            self._kill()
            code = self.process.wait()
        if self.stopped or (self.case is None and code == 0):
            return
        late = f"no end in {self.case_limit_s:.0f} s"
        self._found(f"the process ended with {code}" if in_time else late)

    def stop(self):
        """End it from another thread."""
        with self._starting:
            self.stopped = True
            if self.process is not None:
                self._kill()

    def _kill(self):
        # The group is the process and what it started itself.
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)

    def _listen(self, pipe):
        """Take messages until the process has said goodbye or died; return False if it hangs."""
        rest = b""
        selector = selectors.PollSelector()  # select() knows no descriptor above 1,023
        selector.register(pipe, selectors.EVENT_READ)
        while True:
            limit = _START_LIMIT_S if self.case is None else self.case_limit_s
            if not selector.select(limit):
                return False
            data = os.read(pipe, 1 << 16)
            if not data:
                return True
            *lines, rest = (rest + data).split(b"\n")
            for line in lines:
                self._take(json.loads(line))

    def _take(self, message):
        match message:
            case {"cases": count}:
                self.cases = count
            case {"case": number}:
                self.case, self.next_case = number, number + 1
            case {"tried": units}:
                self.tried += units
                self.case = None
            case {"found": what}:
                self._found(what)

    def _found(self, what):
        module = "" if self.module == MODULE else f"--module {self.module} "
        again = (
            f"python -m tests.torture {module}--only {self.experiment.name} "
            f"--seed {self.seed} --case {self.case}"
        )
        print(f"FOUND {self.experiment.name}: {what:.300}\n  again: {again}", flush=True)
        self.findings.append(again)
        self.case = None


# -- in the process --------------------------------------------------------------------------------


def _work(order):
    logging.disable(logging.CRITICAL)
    experiments = import_module(order["module"]).EXPERIMENTS
    experiment = next(each for each in experiments if each.name == order["name"])
    began, case, units, found = time.monotonic(), order["first"], 0, 0
    count = experiment.cases() if experiment.cases else None
    tell = os.fdopen(order["pipe"], "w", buffering=1)
    if count is not None:
        _say(tell, cases=count)
    while found < order["findings"] and case < (CASES if count is None else count):
        if order["units"] is not None and units >= order["units"]:
            break
        if order["seconds"] is not None and time.monotonic() - began >= order["seconds"]:
            break
        _say(tell, case=case)
        try:
            left = order["seconds"] and order["seconds"] - (time.monotonic() - began)
            tried = run_case(experiment, order["seed"], case, left)
        except Exception as error:  # noqa: BLE001 -- whatever it is, it is a finding
            traceback.print_exc()
            found += 1
            _say(tell, found=repr(error))
        else:
            units += tried
            _say(tell, tried=tried)
        case += 1


def _say(tell, **message):
    tell.write(json.dumps(message) + "\n")


if __name__ == "__main__":
    _work(json.loads(sys.argv[1]))
