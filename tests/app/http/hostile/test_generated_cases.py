"""600 hostile requests over a socket: never a 5xx, never a lost worker, bounded memory."""

from __future__ import annotations

import pytest

from tests.app.http.hostile.campaign import GROWTH_LIMIT_BYTES, LIMITS, run_cases
from tests.app.http.hostile.cases import FAMILIES, MESSAGE_FAMILIES, make_case
from tests.servers.tierdex_server import running_tierdex

SEED = 20260
CASES = 600  # of 50,000 that torture has


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    with running_tierdex(tmp_path_factory.mktemp("hostile"), **LIMITS) as server:
        yield server
        assert server.stop() == 0


def test_hostile_requests_get_no_5xx_and_leave_the_server_well(server):
    run_cases(server, "warm up", range(len(FAMILIES)))
    before, files_before = server.memory_bytes(), server.open_files()
    statuses = run_cases(server, SEED, range(CASES))
    assert statuses[400] > CASES // 4
    assert {200, 404, 405, 413, 415, 421, 431} <= set(statuses)
    assert server.memory_bytes() - before < GROWTH_LIMIT_BYTES
    assert server.open_files() <= files_before + 40


def test_hostile_requests_to_a_message_log_get_no_5xx(tmp_path):
    of_messages = [n for n, family in enumerate(FAMILIES) if family in MESSAGE_FAMILIES]
    numbers = [n + len(FAMILIES) * turn for turn in range(25) for n in of_messages]
    with running_tierdex(tmp_path, **LIMITS, log=True, journal_bytes=16 << 20) as server:
        statuses = run_cases(server, SEED, numbers)
        assert {200, 400} <= set(statuses)
        assert server.stop() == 0


def test_case_is_the_same_for_the_same_seed():
    assert [make_case(1, n) for n in range(100)] == [make_case(1, n) for n in range(100)]
    assert make_case(1, 0) != make_case(2, 0)
