"""Runs generated cases against a server and says what it did wrong. Shared by tests and torture."""

from __future__ import annotations

from collections import Counter

from tests.app.http.hostile.cases import make_case
from tests.app.http.hostile.raw_http import KeptConnection, send_raw

GROWTH_LIMIT_BYTES = 96 << 20  # what a server may hold more after all cases than before
LIMITS = {"max_body_bytes": 65_536, "max_bodies_bytes": 1 << 20}


def run_cases(server, seed, numbers):
    """Send the cases; return how many of each status came back. Raises AssertionError."""
    statuses = Counter()
    good = KeptConnection(server.address)
    try:
        for number in numbers:
            case = make_case(seed, number)
            where = f"seed {seed} case {number} ({case.family})"
            try:
                answer = send_raw(server.address, case.pieces, ends=case.ends)
            except TimeoutError as error:
                raise AssertionError(f"{where}: no end of the answer") from error
            bad = [status for status in answer.statuses if status >= 500]
            assert not bad, f"{where}: {answer.data[:400]!r}"
            statuses.update(answer.statuses or ["reset" if answer.reset else "none"])
            status, body = good.get("/v1/topics")
            assert status == 200, f"{where}: a good request behind it got {status} {body!r}"
    finally:
        good.close()
    assert server.process.poll() is None, "the server ended"
    failed = [line for line in server.log() if line.get("level") in ("error", "critical")]
    assert not failed, failed[:3]
    return statuses
