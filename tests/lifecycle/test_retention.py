import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.lifecycle.rows import NOW_MS, make_row
from tierdex.lifecycle.manifests.manifest import Retention
from tierdex.lifecycle.retention import (
    begins_to_hide,
    is_expired,
    is_hidden,
    is_of_an_age,
    longest_retention,
    make_retention,
    plan_expiry,
)
from tierdex.lifecycle.topic_set import topic_set

RULES = make_retention(10, {"short": 1, "long": 100, "ever": None})
TOPICS = ["short", "long", "ever", "other"]


def hashes(topics):
    return None if topics is None else topic_set(topics)


@pytest.mark.parametrize(
    ("topics", "limit"),
    [
        (("other",), 10_000),
        (("short",), 1_000),
        (("short", "other"), 10_000),
        (("short", "long"), 100_000),
        (("short", "ever"), None),
        (None, None),
        ((), None),
    ],
)
def test_longest_kept_topic_decides(topics, limit):
    assert longest_retention(RULES, hashes(topics)) == limit


def test_file_of_any_topic_waits_for_the_longest_of_all_rules():
    assert longest_retention(make_retention(10, {"a": 50}), None) == 50_000
    assert longest_retention(make_retention(None, {"a": 50}), None) is None


def test_default_is_for_ever():
    assert not is_expired(make_retention(None), hashes(("a",)), 0, 1 << 60)


def test_age_counts_from_sealing_whatever_the_entries_times():
    old_entries = make_row(1, min_time=0, max_time=1, sealed_at_ms=NOW_MS)
    future_entries = make_row(2, max_time=1 << 60, sealed_at_ms=NOW_MS - 10_000)
    assert plan_expiry([old_entries, future_entries], RULES, NOW_MS) == [future_entries]


def test_file_expires_at_the_very_millisecond():
    assert not is_expired(RULES, hashes(("short",)), 1_000, 1_999)
    assert is_expired(RULES, hashes(("short",)), 1_000, 2_000)


@pytest.mark.parametrize(
    ("topics", "span", "is_one"),
    [
        (("other",), 1_000, True),
        (("other",), 1_001, False),
        (("ever",), 1 << 50, True),
        (("ever", "short"), 100, True),
        (("ever", "short"), 101, False),  # the shortest decides
        (None, 101, False),
    ],
)
def test_files_of_an_age_differ_by_a_tenth_of_their_retention(topics, span, is_one):
    rows = [
        make_row(1, begin_ms=NOW_MS, sealed_at_ms=NOW_MS + 5, topics=hashes(("ever",))),
        make_row(2, begin_ms=NOW_MS + 1, sealed_at_ms=NOW_MS + span, topics=hashes(topics)),
    ]
    assert is_of_an_age(RULES, rows) is is_one


def test_file_hides_something_when_the_first_of_its_topics_is_over():
    row = make_row(1, sealed_at_ms=NOW_MS, topics=hashes(("short", "ever")))
    assert not begins_to_hide(RULES, row, NOW_MS + 999)
    assert begins_to_hide(RULES, row, NOW_MS + 1000)
    assert not begins_to_hide(make_retention(None), row, 1 << 60)


def test_unsealed_file_has_no_age():
    assert not is_expired(RULES, hashes(("short",)), None, 1 << 60)
    assert not is_hidden(RULES, "short", None, 1 << 60)


def test_expiry_by_hand_takes_what_was_sealed_before():
    rows = [make_row(n, topics=hashes(("ever",)), sealed_at_ms=n) for n in (3, 1, 2)]
    assert [r.sealed_at_ms for r in plan_expiry(rows, RULES, NOW_MS, before_ms=3)] == [1, 2]


def test_entries_of_a_topic_past_its_own_retention_are_hidden():
    hidden = [topic for topic in TOPICS if is_hidden(RULES, topic, 0, 10_000)]
    assert hidden == ["short", "other"]
    assert not is_hidden(make_retention(None), "short", 0, 1 << 60)


@given(
    st.lists(st.sampled_from(TOPICS), min_size=1),
    st.integers(0, 200_000),
)
def test_expired_file_holds_only_hidden_entries(topics, now_ms):
    if is_expired(RULES, hashes(topics), 0, now_ms):
        assert all(is_hidden(RULES, topic, 0, now_ms) for topic in topics)


def test_rules_are_plain_milliseconds():
    assert make_retention(1.5, {"a": None}) == Retention(1_500, {"a": None})
