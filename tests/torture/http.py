"""Hostile requests by the thousand against a real server: no 5xx, no lost worker, bounded memory.

And what schemathesis makes of every route's description, with other seeds than in tests/app/http.
"""

from __future__ import annotations

import tempfile
from collections import Counter

import hypothesis
from hypothesis.errors import Unsatisfiable

from tests.app.http.hostile.campaign import GROWTH_LIMIT_BYTES, LIMITS, run_cases
from tests.app.http.hostile.cases import FAMILIES
from tests.servers.tierdex_server import running_tierdex

LAP = 5000  # cases between two looks at the server's memory


def send_hostile_requests(count, seed=0):
    """Return how often each status came back. A failure names seed and case (`cases.make_case`)."""
    statuses = Counter()
    with (
        tempfile.TemporaryDirectory(prefix="hostile-") as folder,
        running_tierdex(folder, forked=False, **LIMITS) as server,
    ):
        run_cases(server, "warm up", range(4 * len(FAMILIES)))
        before, files_before = server.memory_bytes(), server.open_files()
        for first in range(0, count, LAP):
            statuses += run_cases(server, seed, range(first, min(first + LAP, count)))
            grown = server.memory_bytes() - before
            assert grown < GROWTH_LIMIT_BYTES, (
                f"seed {seed} up to {first + LAP}: {grown} bytes more"
            )
            assert server.open_files() <= files_before + 40, f"seed {seed}: descriptors leak"
        assert server.stop() == 0, f"seed {seed}: the server did not stop in order"
    return statuses


def send_generated_requests(examples, seed):
    """Send what each route's description allows, and what it forbids; return how many those were."""
    from schemathesis.generation import (
        GenerationMode,  # takes a second, which other experiments do not need
    )

    from tests.app.http import test_schemathesis

    sent = 0
    for found in test_schemathesis.schema.get_all_operations():
        for mode in (GenerationMode.POSITIVE, GenerationMode.NEGATIVE):

            def send(case):
                nonlocal sent
                sent += 1
                case.call_and_validate(excluded_checks=[test_schemathesis.positive_data_acceptance])

            given = hypothesis.given(case=found.ok().as_strategy(generation_mode=mode))
            limits = hypothesis.settings(
                max_examples=examples, deadline=None, database=None,
                suppress_health_check=list(hypothesis.HealthCheck),
            )  # fmt: skip
            try:
                hypothesis.seed(seed)(limits(given(send)))()
            except Unsatisfiable:
                assert mode is GenerationMode.NEGATIVE  # a route without input forbids none
            except BaseExceptionGroup as failures:
                raise AssertionError(f"{found.ok().label}: {failures!r:.1000}") from failures
    return sent
