"""The README tells what each installation takes; here it is measured."""

from __future__ import annotations

import re

import pytest

from tests.distributions import PROJECTS, ROOT, brought_by, installed_bytes

ROWS = re.findall(
    r"^\| `pip install '?([^'`]+)'?` \| ([\d.]+) MB \| (\d+) \|",
    (ROOT / "README.md").read_text(),
    re.M,
)
MB = 1_000_000
_OF_PURE_WHEEL = ("numba", "llvmlite")  # a wheel with compiled kernels wants neither


@pytest.mark.parametrize(("wanted", "megabytes", "count"), ROWS, ids=[row[0] for row in ROWS])
def test_readme_tells_what_an_installation_takes(wanted, megabytes, count):
    own = wanted.partition("[")[0]
    source = ROOT / "tierdex" if own == "tierdex" else PROJECTS[own]
    brought = [name for name in brought_by(wanted) if name not in _OF_PURE_WHEEL]
    taken = sum(map(installed_bytes, brought))
    taken += sum(
        file.stat().st_size for file in source.rglob("*") if "__pycache__" not in str(file)
    )
    # Other versions of others' packages have other sizes; a dependency that slipped in is seen.
    assert float(megabytes) == pytest.approx(taken / MB, rel=0.25), f"{taken / MB:.1f} MB"
    assert int(count) == pytest.approx(len(brought), abs=3), sorted(brought)


def test_readme_tells_of_each_way_to_install():
    assert len(ROWS) == 6
