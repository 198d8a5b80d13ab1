"""What a lookup without entries may have meant."""

from __future__ import annotations

import pytest

from tests.index_service.conftest import put


def told(answer):
    return {(hint.kind, hint.topic, hint.key, hint.message_id) for hint in answer.hints}


@pytest.fixture
def filled(index):
    put(index, "Order-1", 1)
    put(index, "ORDER-2", 2, topic="payments", message_id="m-1")
    put(index, "x", 3, topic="Orders.dlq")
    return index


def test_unknown_topic_is_said_with_near_ones(filled):
    assert told(filled.query("ordrs", key="nothing", hints=True)) == {
        ("no_topic", "ordrs", None, None),
        ("near_topic", "orders", None, None),
        ("near_topic", "Orders.dlq", None, None),
    }
    assert ("near_topic", "orders", None, None) in told(
        filled.query(" ORDERS ", key="nothing", hints=True)
    )


def test_key_is_looked_for_in_other_topics_and_spellings(filled):
    assert told(filled.query("orders", key="ORDER-2", hints=True)) == {
        ("other_topic", "payments", "ORDER-2", None)
    }
    assert told(filled.query("payments", key=" order-2\t", hints=True)) == {
        ("other_spelling", "payments", "ORDER-2", None)
    }
    assert told(filled.query("orders", key="m-1", hints=True)) == {
        ("as_message_id", None, None, "m-1")
    }
    assert told(filled.query(message_id="M-1", hints=True)) == {
        ("other_spelling", None, None, "m-1")
    }
    assert told(filled.query(message_id="ORDER-2", hints=True)) == {
        ("as_key", "payments", "ORDER-2", None)
    }


def test_answer_with_entries_and_one_that_is_right_have_none(filled):
    assert not filled.query("orders", key="Order-1", hints=True).hints
    assert not filled.query("orders", key="never sent", hints=True).hints
    assert not filled.query("ordrs", key="x").hints  # not asked for
