"""Experiments that end badly, for the test of the campaign that watches them."""

from __future__ import annotations

import os
import signal

from tests.torture.experiment import Experiment


def _raise(seed):
    if seed % 10 == 2:
        raise AssertionError("wrong")
    return 1


def _crash(number):
    if number == 1:
        os.kill(os.getpid(), signal.SIGSEGV)
    return 3


def _hang(number):
    if number == 0:
        signal.pause()
    return 1


EXPERIMENTS = (
    Experiment("raising", "", "cases", _raise, dose=5, small_dose=1),
    Experiment("crashing", "", "cases", _crash, dose=None, small_dose=1, cases=lambda: 4),
    Experiment("hanging", "", "cases", _hang, dose=None, small_dose=1, cases=lambda: 2),
)
