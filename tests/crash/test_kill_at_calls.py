"""kill -9 around calls of every scenario; torture tries all of them."""

from __future__ import annotations

import pytest

from tests.crash import experiments
from tests.crash.scenarios import SCENARIOS
from tierdex.testing.crash import every_call


@pytest.mark.parametrize("name", list(SCENARIOS))
def test_process_killed_around_a_call_loses_nothing_acknowledged(name):
    disk, store, _ = experiments.count_calls(name)
    step = 2 if disk < 20 else disk // 5
    for point in list(every_call(disk))[::step]:
        assert experiments.kill(name, point)
    for point in list(every_call(store))[:: max(1, store // 5)]:
        assert experiments.kill(name, point, in_store=True)


def test_file_is_published_once_however_often_publishing_is_killed():
    disk, store, _ = experiments.count_calls("publish")
    for point in every_call(store):
        experiments.kill("publish", point, in_store=True)
    assert disk > 50
