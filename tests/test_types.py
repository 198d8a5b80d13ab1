"""The types that a user's program is checked with: what they refuse, and that they are all exported."""

from __future__ import annotations

import collections.abc
import re
import subprocess
import sys
import typing
from pathlib import Path

import tierdex
from tests.test_package import public_verbs

ROOT = Path(__file__).parents[1]
PROGRAM = ROOT / "tests" / "user_program.py"
_CLASS = re.compile(r"\b[A-Z]\w+")
_BESIDE = {*typing.__all__, *collections.abc.__all__, "None"}


def test_checker_refuses_a_users_mistakes_and_nothing_else():
    """mypy with the project's own options: strict, with the cache that `make lint` has just filled."""
    command = [sys.executable, "-m", "mypy", "--no-error-summary", str(PROGRAM)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT)
    found = {int(line) for line in re.findall(r"user_program\.py:(\d+): error", done.stdout)}
    lines = PROGRAM.read_text().splitlines()
    refused = {number for number, line in enumerate(lines, 1) if line.endswith("# refused")}
    assert found == refused, done.stdout + done.stderr
    assert len(refused) == 28


def test_every_class_that_a_public_verb_returns_is_exported():
    for owner in (tierdex.Index, tierdex.MessageLog, tierdex.Client, tierdex.AsyncClient):
        for verb in public_verbs(owner):
            annotations = getattr(getattr(owner, verb), "__annotations__", {})
            returned = set(_CLASS.findall(str(annotations.get("return", ""))))
            assert returned - _BESIDE <= set(tierdex.__all__), f"{owner.__name__}.{verb}"


# What stands in for the machine in tests and simulations: tierdex.testing has them.
SEAMS = {
    "Clock",
    "Executor",
    "FileSystem",
    "IdSource",
    "Path",
    "Store",
    "Schema",
    "SettingKeywords",
}
GENERIC = {"P", "T", "TracebackType"}


def test_every_type_that_a_public_verb_takes_or_a_property_has_is_exported():
    for owner in (tierdex.Index, tierdex.MessageLog, tierdex.Client, tierdex.AsyncClient):
        verbs = [getattr(owner, verb) for verb in public_verbs(owner)]
        properties = [p.fget for name, p in vars(owner).items() if isinstance(p, property)]
        for function in (*verbs, *properties):
            named = set(_CLASS.findall(str(getattr(function, "__annotations__", {}))))
            unknown = named - _BESIDE - SEAMS - GENERIC - set(tierdex.__all__)
            assert not unknown, f"{owner.__name__}.{function.__name__}"


def test_dir_lists_every_public_name():
    assert dir(tierdex) == sorted(tierdex.__all__)
    assert (Path(tierdex.__file__).parent / "py.typed").exists()
