"""The budget that all request bodies share, and the memory that ended bodies leave behind."""

from __future__ import annotations

from tierdex.app.http.body_limits import BodyBudget


def test_memory_is_returned_each_time_that_a_quarter_of_the_budget_has_ended():
    returned = []
    budget = BodyBudget(4000, lambda: returned.append(budget.held_bytes))
    budget.held_bytes = 2500
    for _ in range(4):
        budget.give_back(500)
    assert returned == [1000]  # after 1,500 bytes: once in four bodies, and not before they ended
    budget.give_back(500)
    assert budget.held_bytes == 0
    assert len(returned) == 1


def test_small_bodies_return_no_memory_each():
    returned = []
    budget = BodyBudget(1 << 20, lambda: returned.append(None))
    for _ in range(1000):
        budget.held_bytes += 1000
        budget.give_back(1000)
    assert len(returned) == 1_000_000 // ((1 << 18) + 1000 - (1 << 18) % 1000)
