from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tierdex.app.rights import Grant, Rights, Scope, parse_grant
from tierdex.errors import InvalidRequestError

READ, WRITE, MESSAGE, ADMIN = Scope.READ, Scope.WRITE, Scope.MESSAGE, Scope.ADMIN
_SMALL = st.text("ab.*é\n", min_size=1, max_size=12)


@given(pattern=_SMALL, topic=st.text("ab.é\n", max_size=12))
def test_pattern_names_what_the_regular_expression_names(pattern, topic):
    regular = ".*".join(map(re.escape, pattern.split("*")))
    named = re.fullmatch(regular, topic, re.DOTALL) is not None
    assert Grant(READ, pattern).names(topic) == named


@pytest.mark.parametrize(
    ("pattern", "topic", "named"),
    [
        ("orders", "orders", True), ("orders", "Orders", False), ("orders", "orders2", False),
        ("orders.*", "orders.eu", True), ("orders.*", "orders", False), ("orders.*", "x.orders.eu", False),
        ("*.eu", "orders.eu", True), ("a*a", "a", False), ("a*b*a", "aba", True), ("*", "", True),
        ("o?ders", "orders", False), ("[o]rders", "orders", False), ("a.c", "abc", False),
        ("ab*bc", "abc", False),
    ],
)  # fmt: skip
def test_only_a_star_stands_for_more_than_itself(pattern, topic, named):
    assert Grant(READ, pattern).names(topic) == named


def test_grants_add_up_and_scopes_include_others_within_their_topics():
    rights = Rights([parse_grant("read"), parse_grant("write:orders.*"), parse_grant("admin:own")])
    assert rights.everywhere(READ)
    assert not any(map(rights.everywhere, (WRITE, MESSAGE, ADMIN)))
    assert all(map(rights.anywhere, Scope))
    assert rights.in_topic(WRITE, "orders.eu")
    assert not rights.in_topic(WRITE, "orders")
    assert not rights.in_topic(MESSAGE, "orders.eu")
    assert rights.in_topic(MESSAGE, "own")
    assert rights.in_topic(ADMIN, "own")
    assert not rights.in_topic(ADMIN, "owner")
    assert str(rights) == "read write:orders.* admin:own"


def test_nothing_is_granted_by_no_grants():
    rights = Rights([])
    for needed in (READ, WRITE, MESSAGE, ADMIN):
        assert not rights.anywhere(needed)
        assert not rights.everywhere(needed)
        assert not rights.in_topic(needed, "*")


@pytest.mark.parametrize(
    "text", ["", "root", "none", "none:a", "read:", ":a", "read :a", "read:" + "x" * 256]
)
def test_wrong_grants_are_refused(text):
    with pytest.raises(InvalidRequestError):
        parse_grant(text)


def test_grant_keeps_all_behind_its_first_colon():
    assert parse_grant("read:a:b") == Grant(READ, "a:b")
    assert parse_grant("READ:**").is_for_every_topic
