import numpy as np
import pyarrow as pa
import pytest
import xxhash
from hypothesis import given, settings
from hypothesis import strategies as st

from tierdex.indexfile.columns import StringColumn
from tierdex.indexfile.hashing import (
    MESSAGE_ID_TOPIC,
    key_hash,
    key_hashes,
    message_id_hash,
    message_id_hashes,
    topic_seed,
)

SPARK = {  # xxhash64(topic, key) of Spark SQL, signed
    ("TopicTest", "MessageKey"): -5050011634863583537,
    ("orders", "ORDER-0000000123"): -176321139368131892,
    ("订单", "😀-1"): 3963029640947049635,
    ("a", "x" * 100): -2365780082562392389,
}


@pytest.mark.parametrize(("pair", "signed"), SPARK.items(), ids=["ascii", "digits", "cjk", "long"])
def test_hash_equals_sparks(pair, signed):
    topic, key = pair
    assert key_hash(topic, key) == signed % 2**64
    column = key_hashes(StringColumn.from_values([key]), [topic])
    assert column.view(np.int64).tolist() == [signed]


def test_message_ids_are_hashed_under_a_topic_that_no_topic_can_have():
    assert "\0" in MESSAGE_ID_TOPIC
    assert message_id_hash("A1") == key_hash(MESSAGE_ID_TOPIC, "A1")
    assert message_id_hashes(StringColumn.from_values(["A1"])).tolist() == [message_id_hash("A1")]


def test_kernel_equals_the_package_for_every_length_up_to_200():
    data = bytes(range(256))
    values = [data[:length] for length in range(200)]
    seed = topic_seed("t")
    found = key_hashes(StringColumn.from_values(pa.array(values, pa.binary())), ["t"])
    assert found.tolist() == [xxhash.xxh64_intdigest(value, seed) for value in values]


@settings(max_examples=200, deadline=None)
@given(
    st.lists(st.tuples(st.sampled_from(["a", "bb", "订单"]), st.binary(max_size=100)), max_size=40)
)
def test_kernel_equals_the_package_for_any_bytes_and_topics(rows):
    topics = ["a", "bb", "订单"]
    index = np.array([topics.index(topic) for topic, _ in rows], np.int32)
    keys = StringColumn.from_values(pa.array([value for _, value in rows], pa.large_binary()))
    expected = [xxhash.xxh64_intdigest(value, topic_seed(topic)) for topic, value in rows]
    assert key_hashes(keys, topics, index).tolist() == expected


def test_topic_index_out_of_bounds_is_refused():
    with pytest.raises(ValueError, match="out of bounds"):
        key_hashes(StringColumn.from_values(["k"]), ["t"], np.array([1], np.int32))
