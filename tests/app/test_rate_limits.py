"""How many requests a caller may make: its bucket, its answer, and what the clients do with it."""

from __future__ import annotations

import itertools

import httpx2
import pytest

from tests.app.conftest import ENTRY, Caller, assert_problem
from tests.app.small_index import SmallIndex
from tierdex.app.rate_limits import RateLimits
from tierdex.app.rights import ANONYMOUS, NO_RIGHTS, Scope
from tierdex.app.rights import Caller as Who
from tierdex.client.remote import Client
from tierdex.clock import ManualClock
from tierdex.errors import RateLimitedError
from tierdex.ids import SeededIds

ANN, BEN = (Who("key", name, NO_RIGHTS) for name in ("ann", "ben"))


def taken(limits, caller, tries=100):
    """Return how many requests go through at once, and the error of the first that does not."""
    for count in range(tries):
        try:
            limits.take(caller)
        except RateLimitedError as error:
            return count, error.retry_after_s
    return tries, None


def test_a_burst_goes_through_and_then_the_rate_each_caller_by_itself():
    clock = ManualClock()
    limits = RateLimits(clock, rate=10, burst=5)
    assert taken(limits, ANN) == (5, pytest.approx(0.1))
    assert taken(limits, BEN)[0] == 5
    clock.advance(0.25)
    assert taken(limits, ANN) == (2, pytest.approx(0.05))
    clock.advance(3600)
    assert taken(limits, ANN)[0] == 5


def test_a_refused_request_takes_nothing_so_that_waiting_as_told_is_enough():
    clock = ManualClock()
    limits = RateLimits(clock, rate=0.5, burst=1)
    assert taken(limits, ANN) == (1, pytest.approx(2.0))
    for _ in range(50):
        assert taken(limits, ANN)[0] == 0
    clock.advance(2.0)
    assert taken(limits, ANN)[0] == 1


def test_a_caller_s_own_rate_counts_before_the_setting_and_without_one():
    clock = ManualClock()
    for rate in (None, 1000.0):
        limits = RateLimits(clock, rate=rate, burst=2)
        assert taken(limits, ANN._replace(rate_limit=1.0))[0] == 2
    assert taken(RateLimits(clock, rate=None, burst=2), ANONYMOUS)[0] == 100


def test_buckets_that_are_full_again_are_let_go(monkeypatch):
    monkeypatch.setattr("tierdex.app.rate_limits._MOST_BUCKETS", 10)
    clock = ManualClock()
    limits = RateLimits(clock, rate=1, burst=1)
    for number in range(100):
        limits.take(ANN._replace(name=str(number)))
        clock.advance(0.5)
    assert len(limits._full_at) <= 10
    assert taken(limits, ANN._replace(name="99"))[0] == 0


def test_service_answers_429_with_retry_after_before_it_looks_at_the_right(keys):
    fast, slow = keys.create(Scope.READ), keys.create(Scope.READ, rate_limit=0.01)
    caller = Caller(SmallIndex(), keys=keys, rate_burst=2)
    for path in ("/v1/topics", "/v1/admin/files"):
        caller.get(path, key=slow)
    response = caller.get("/v1/admin/files", key=slow)
    assert assert_problem(response, 429, "rate-limited")["retry_after_s"] > 90
    assert 90 < int(response.headers["retry-after"]) <= 100
    assert caller.get("/v1/topics", key=fast).status_code == 200
    assert caller.get("/v1/topics").status_code == 401
    assert caller.get("/healthz").status_code == 200


@pytest.mark.parametrize("retry_after_s", [0.25, 40.0])
def test_client_waits_as_long_as_it_is_told_and_repeats_a_put_too(retry_after_s):
    """A 429 is sent before anything is looked at: repeating cannot put twice."""
    clock, answers = ManualClock(), []

    def answer(request):
        answers.append((clock.monotonic(), request.content))
        if len(answers) < 3:
            problem = {"type": "urn:tierdex:problem:rate-limited", "retry_after_s": retry_after_s}
            return httpx2.Response(
                429, json=problem, headers={"content-type": "application/problem+json"}
            )
        return httpx2.Response(200, json={"accepted": 1, "durability": "os"})

    client = Client(
        "http://x", transport=httpx2.MockTransport(answer), clock=clock, ids=SeededIds(1)
    )
    entry = {name: value for name, value in ENTRY.items() if name != "keys"}
    assert client.put(**entry, keys="k") == "os"
    times = [at for at, _ in answers]
    assert len({body for _, body in answers}) == 1
    assert all(after - before >= retry_after_s for before, after in itertools.pairwise(times))
