"""kill -9 of real processes around calls of every scenario; torture tries all of them."""

from __future__ import annotations

import pytest

from tests.crash.real_process import count_real_calls, every_real_point, kill_at_call
from tests.crash.scenarios import ON_ONE_DISK, SCENARIOS
from tests.simulation.crash import every_call


@pytest.mark.parametrize("name", [name for name in SCENARIOS if name not in ON_ONE_DISK])
def test_process_killed_around_a_call_loses_nothing_acknowledged(name):
    points = [(point, in_store) for each, point, in_store in every_real_point() if each == name]
    step = len(points) // 3  # three points a scenario, on both sides of calls
    for point, in_store in points[step // 2 :: step | 1][:3]:
        kill_at_call(name, point, in_store=in_store)


def test_file_is_published_once_however_often_publishing_is_killed():
    disk, store = count_real_calls("publish")
    for point in list(every_call(store))[::3]:  # both sides of calls; torture has every one
        kill_at_call("publish", point, in_store=True)
    assert disk > 50
