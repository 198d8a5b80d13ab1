"""The writer, bit for bit, and what it refuses where the original writes damage."""

import hashlib

import numpy as np
import pytest

from tests.rocketmq.rocketmq_files import (
    BEGIN,
    FILES,
    find,
    key_with_hash,
    make_vector,
    make_writer,
    put,
)
from tierdex.errors import InvalidRequestError
from tierdex.rocketmq.file import RocketmqIndexFile
from tierdex.rocketmq.layout import SMALLEST_INT

LOCAL_SHA256 = "01f3ee0a49c3b8cc461ee3cfc145dc5ea982fd0d614eac9e035b8eabc4042175"
COMPACTED_SHA256 = "e879ade12b2679d24c5ca1716702c7031b497d6479ad6db08f423d1f2f57d78d"


def test_local_form_is_the_original_s_bit_for_bit():
    image = make_vector().local_bytes(ended=False)
    assert len(image) == 708
    assert hashlib.sha256(image).hexdigest() == LOCAL_SHA256


def test_compacted_form_is_the_original_s_bit_for_bit():
    image = make_vector().compacted_bytes()
    assert len(image) == 348
    assert hashlib.sha256(image).hexdigest() == COMPACTED_SHA256


def test_ended_file_differs_in_its_magic_alone():
    writer = make_vector()
    assert writer.local_bytes(ended=True)[4:] == writer.local_bytes(ended=False)[4:]
    assert writer.local_bytes(ended=True)[:4].hex() == "bcc50285"


def test_batch_writes_what_single_puts_write():
    one, many = make_writer(items=300), make_writer(items=300)
    numbers = np.arange(200)
    keys = [f"k{n % 17}" for n in numbers]
    for n in numbers.tolist():
        put(one, "t", keys[n], n, n * 700 - 50_000)
    for part in np.array_split(numbers, 3):
        many.put_batch(
            "t",
            topic_id=123,
            keys=[keys[n] for n in part],
            queue_id=2,
            offset=part,
            size=1024,
            timestamp=BEGIN + part * 700 - 50_000,
        )
    assert one.local_bytes(ended=True) == many.local_bytes(ended=True)
    assert one.compacted_bytes() == many.compacted_bytes()


def test_file_holds_one_item_less_than_its_capacity():
    writer = make_writer(items=4)
    for n in range(3):
        put(writer, "t", "k", n)
    with pytest.raises(InvalidRequestError, match="3 of at most 3"):
        put(writer, "t", "k", 3)
    assert writer.item_count == 3


def test_fault_2_key_of_smallest_int_is_refused_not_written_into_the_header():
    key = key_with_hash("t", SMALLEST_INT)
    writer = make_writer()
    with pytest.raises(InvalidRequestError, match=r"keys\[0\].*no slot"):
        put(writer, "t", key, 1)
    assert writer.item_count == 0


def test_key_of_smallest_int_is_stored_where_it_has_a_slot(tmp_path):
    key = key_with_hash("t", SMALLEST_INT)
    writer = make_writer(slots=8)
    put(writer, "t", key, 77)
    writer.save(FILES, tmp_path / "f")
    rows = find(RocketmqIndexFile.open(FILES, tmp_path / "f"), "t", key)
    assert rows["offset"].tolist() == [77]


def test_time_out_of_reach_is_refused():
    with pytest.raises(InvalidRequestError, match="timestamp"):
        put(make_writer(), "t", "k", 1, after_ms=(1 << 31) * 1000)
