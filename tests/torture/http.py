"""Hostile requests by the thousand against a real server: no 5xx, no lost worker, bounded memory."""

from __future__ import annotations

import tempfile
from collections import Counter

from tests.hostile_http.campaign import GROWTH_LIMIT_BYTES, LIMITS, run_cases
from tests.hostile_http.cases import FAMILIES
from tests.servers.tierdex_server import running_tierdex

LAP = 5000  # cases between two looks at the server's memory


def send_hostile_requests(count, seed=0):
    """Return how often each status came back. A failure names seed and case (`cases.make_case`)."""
    statuses = Counter()
    with (
        tempfile.TemporaryDirectory(prefix="hostile-") as folder,
        running_tierdex(folder, **LIMITS) as server,
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
