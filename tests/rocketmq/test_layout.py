"""Hash and layout of RocketMQ index files, held against numbers from the original's own classes."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tierdex.rocketmq.layout import (
    SMALLEST_INT,
    Shape,
    index_hash,
    index_hashes,
    java_hash,
    java_hashes,
)

KNOWN = {"MessageKey": 638347386, "订单-1": 573861415, "😀": 4515557, "Aa": 2744770, "BB": 2744770}


@pytest.mark.parametrize("key", KNOWN)
def test_index_hash_is_the_original_s(key):
    assert index_hash("TopicTest", key) == KNOWN[key]


def test_hashes_of_a_batch_are_the_original_s():
    assert index_hashes("TopicTest", list(KNOWN)).tolist() == list(KNOWN.values())


def test_hash_of_smallest_int_stays_negative():
    assert java_hash("polygenelubricants") == SMALLEST_INT
    assert java_hashes(["polygenelubricants"]).tolist() == [SMALLEST_INT]


def test_hash_of_a_lone_surrogate_is_its_code_unit():
    assert java_hash("\ud800") == 0xD800


def test_negative_hash_is_negated():
    assert java_hash("topic#a") < 0
    assert index_hash("topic", "a") == -java_hash("topic#a")


@given(st.lists(st.text(max_size=20)), st.text(max_size=8))
def test_batch_hash_agrees_with_one_by_one(texts, topic):
    assert java_hashes(texts).tolist() == [java_hash(text) for text in texts]
    assert index_hashes(topic, texts).tolist() == [index_hash(topic, text) for text in texts]


def test_shape_knows_the_length_of_both_forms():
    assert Shape("local", 5, 20).length == 708
    assert Shape("compacted", 5, 10).length == 348
    assert Shape("local", 5_000_000, 20_000_000).length == 680_000_028


def test_hashes_are_int32():
    assert index_hashes("t", ["a"]).dtype == np.int32
