"""The seed loads of the message log (benchmarks/log_loads.py), in small: they compare what they read."""

from __future__ import annotations

import pytest

from benchmarks.log_loads import Load, run_load
from tierdex.errors import InvalidRequestError

SMALL = {"journal_bytes": 16 << 20}


def test_a_million_queues_are_compared_and_stand_beside_what_was_asked(tmp_path):
    rows = run_load("million-queues", Load(tmp_path, 0.00005, settings=SMALL))
    assert [row["count"] for row in rows[:3]] == [100_000, 1000, 20_000]
    assert rows[0]["asked_per_second"] == 1_111_111
    assert rows[0]["disk_mib_s"] > 0


def test_strict_offsets_are_compared_and_stand_beside_what_was_asked(tmp_path):
    rows = run_load("strict-offsets", Load(tmp_path, 0.00005, settings=SMALL))
    assert all(row["seconds"] > 0 and row["count"] > 0 for row in rows if "seconds" in row)
    assert rows[0]["asked_mib_s"] == 275.0


@pytest.mark.parametrize("scale", [0, 2])
def test_a_scale_is_a_share(tmp_path, scale):
    with pytest.raises(InvalidRequestError, match="at most 1"):
        run_load("strict-offsets", Load(tmp_path, scale))
