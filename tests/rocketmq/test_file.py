"""Lookups and checks in one RocketMQ file, and the faults of the original that we do not inherit."""

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
from tierdex.errors import CorruptFileError, UnsupportedFormatError
from tierdex.rocketmq.file import RocketmqIndexFile
from tierdex.rocketmq.layout import HEADER, LOCAL_ITEM, SLOTS_AT, SMALLEST_INT


def saved(writer, path, form="local", *, ended=True, damage=None):
    image = bytearray(
        writer.compacted_bytes() if form == "compacted" else writer.local_bytes(ended=ended)
    )
    if damage:
        image = damage(image) or image
    path.write_bytes(image)
    return path


def opened(path, **given):
    return RocketmqIndexFile.open(FILES, path, **given)


@pytest.fixture(params=["unsealed", "sealed", "compacted"])
def vector(request, tmp_path):
    form = "compacted" if request.param == "compacted" else "local"
    path = saved(make_vector(), tmp_path / str(BEGIN), form, ended=request.param != "unsealed")
    with_file = opened(path)
    yield with_file
    with_file.close()


def make_filled(count, *, slots, items, keys=None):
    writer = make_writer(slots=slots, items=items)
    numbers = np.arange(count)
    writer.put_batch(
        "t",
        topic_id=7,
        keys=[f"k{n % keys if keys else n}" for n in range(count)],
        queue_id=0,
        offset=numbers,
        size=1,
        timestamp=BEGIN + numbers * 1000,
    )
    return writer


def test_lookup_returns_rows_newest_first(vector):
    rows = find(vector, "TopicTest3", "MessageKey")
    assert rows["offset"].tolist() == [697, 696]
    assert rows["timestamp"].tolist() == [BEGIN + 7000, BEGIN + 6000]
    assert rows["queue_id"].tolist() == [2, 2]
    assert rows["size"].tolist() == [1024, 1024]


def test_lookup_of_absent_key_returns_empty(vector):
    assert len(find(vector, "TopicTest3", "other")) == 0


def test_lookup_keeps_the_inclusive_times(vector):
    assert find(vector, "TopicTest3", "MessageKey", BEGIN + 7000)["offset"].tolist() == [697]
    assert find(vector, "TopicTest3", "MessageKey", None, BEGIN + 6000)["offset"].tolist() == [696]
    assert len(find(vector, "TopicTest3", "MessageKey", BEGIN + 6001, BEGIN + 6999)) == 0


def test_sound_file_passes_its_check(vector):
    assert vector.check() == []


def test_description_says_which_hash_and_which_shape(vector):
    told = vector.describe()
    assert told["slot_count"] == 5
    assert told["item_count"] == 10
    assert told["hash_function"] == "java-string-32"
    assert told["key_is_verified"] is False
    assert (told["min_time"], told["max_time"]) == (BEGIN, BEGIN + 9000)


@pytest.mark.parametrize("slots", [1, 2, 5, 64, 1000])
@pytest.mark.parametrize("count", [1, 2, 7, 400, 4000])
@pytest.mark.parametrize("room", [1, 9, 5000])
@pytest.mark.parametrize("form", ["local", "compacted"])
def test_shape_is_found_from_length_and_content(tmp_path, slots, count, room, form):
    writer = make_filled(count, slots=slots, items=count + room)
    file = opened(saved(writer, tmp_path / "f", form))
    assert file.shape.slot_capacity == slots
    assert file.shape.form == form
    assert find(file, "t", f"k{count - 1}")["offset"].tolist() == [count - 1]
    assert file.check() == []


def test_empty_file_answers_nothing_and_follows_its_writer(tmp_path):
    writer = make_writer()
    path = saved(writer, tmp_path / "f", ended=False)
    file = opened(path)
    assert len(find(file, "t", "k")) == 0
    assert file.check() == []
    put(writer, "t", "k", 5)
    saved(writer, path, ended=False)
    assert find(file, "t", "k")["offset"].tolist() == [5]


def test_items_that_the_header_does_not_count_yet_do_not_confuse(tmp_path):
    def forget_two(image):
        image[24:28] = (8).to_bytes(4, "big")

    file = opened(saved(make_vector(), tmp_path / "f", ended=False, damage=forget_two))
    assert file.shape.slot_capacity == 5
    assert find(file, "TopicTest4", "MessageKey")["offset"].tolist() == [707, 706]


def test_fault_5_chain_longer_than_512_is_answered_whole(tmp_path):
    writer = make_filled(3000, slots=3, items=4000, keys=1)
    file = opened(saved(writer, tmp_path / "f"))
    assert find(file, "t", "k0")["offset"].tolist() == list(range(2999, -1, -1))


def test_fault_5_run_longer_than_1024_answers_as_its_chain_did(tmp_path):
    writer = make_filled(3000, slots=3, items=4000, keys=1)
    chain = find(opened(saved(writer, tmp_path / "local")), "t", "k0")
    run = find(opened(saved(writer, tmp_path / "compacted", "compacted")), "t", "k0")
    assert len(run) == 3000
    assert (run == chain).all()


def test_fault_2_header_damaged_by_smallest_int_still_answers(tmp_path):
    key = key_with_hash("t", SMALLEST_INT)
    writer = make_writer()
    for n in range(4):
        put(writer, "t", f"k{n}", n)

    def as_the_original(image):
        items = np.frombuffer(image, LOCAL_ITEM, 20, 28 + 40)
        items["hash"][4] = SMALLEST_INT  # -2^31 % 5 = -3: its slot is the begin time
        header = np.frombuffer(image, HEADER, 1)
        header["used_slots"] = 99

    file = opened(saved(writer, tmp_path / "f", damage=as_the_original))
    assert find(file, "t", key)["offset"].tolist() == [3]
    assert any("-2^31" in problem for problem in file.check())


def test_fault_6_times_are_whole_seconds_and_said_to_be(tmp_path):
    writer = make_writer()
    put(writer, "t", "k", 1, after_ms=1999)
    put(writer, "t", "k", 2, after_ms=-1999)
    file = opened(saved(writer, tmp_path / "f"))
    assert find(file, "t", "k")["timestamp"].tolist() == [BEGIN - 1000, BEGIN + 1000]
    assert file.describe()["time_resolution_ms"] == 1000


def test_fault_7_entries_of_a_twin_hash_say_that_the_key_is_not_verified(tmp_path):
    writer = make_writer()
    put(writer, "TopicTest", "Aa", 1)
    file = opened(saved(writer, tmp_path / "f"))
    assert len(find(file, "TopicTest", "BB")) == 1
    assert file.hash_function == "java-string-32"
    assert file.key_is_verified is False


def test_fault_12_end_restored_from_the_begin_is_named_and_hides_nothing(tmp_path):
    def restore_wrongly(image):
        image[12:20] = image[4:12]

    file = opened(saved(make_vector(), tmp_path / "f", damage=restore_wrongly))
    assert any("header ends at" in problem for problem in file.check())
    assert file.time_bounds() == (BEGIN, BEGIN + 9000)
    assert len(find(file, "TopicTest4", "MessageKey", BEGIN + 9000)) == 1


def test_fault_13_capacity_is_checked_against_the_content_not_believed(tmp_path):
    path = saved(make_vector(), tmp_path / "f")
    assert opened(path, slot_capacity=5, item_capacity=20).shape.slot_capacity == 5
    with pytest.raises(CorruptFileError, match="of other capacities"):
        opened(path, slot_capacity=9, item_capacity=19)


@pytest.mark.parametrize("form", ["local", "compacted"])
@pytest.mark.parametrize("cut", [4, 28, 32, 64, 200])
def test_fault_14_truncated_file_is_refused_never_empty(tmp_path, form, cut):
    writer = make_filled(50, slots=7, items=51)
    path = saved(writer, tmp_path / "f", form, damage=lambda image: image[:-cut])
    with pytest.raises(CorruptFileError):
        opened(path)


@pytest.mark.parametrize("image", [b"", b"\0" * 10, b"\0" * 708, b"PAR1" + b"x" * 500])
def test_fault_14_foreign_file_is_refused(tmp_path, image):
    (tmp_path / "f").write_bytes(image)
    with pytest.raises(CorruptFileError):
        opened(tmp_path / "f")


def test_foreign_magic_is_an_unsupported_format(tmp_path):
    path = saved(make_vector(), tmp_path / "f", damage=lambda image: b"TDEX" + image[4:])
    with pytest.raises(UnsupportedFormatError, match="not a RocketMQ index file"):
        opened(path)


def test_file_cut_under_the_reader_is_an_error(tmp_path):
    path = saved(make_vector(), tmp_path / "f", "compacted")
    file = opened(path)
    path.write_bytes(path.read_bytes()[:70])
    with pytest.raises(CorruptFileError, match="ends before"):
        [find(file, f"TopicTest{n}", "MessageKey") for n in range(5)]


def test_chain_that_leads_forward_is_an_error_not_a_loop(tmp_path):
    writer = make_filled(300, slots=1, items=400, keys=1)

    def link_forward(image):
        items = np.frombuffer(image, LOCAL_ITEM, 400, SLOTS_AT + 8)
        items["previous"][20] = 25

    path = saved(writer, tmp_path / "f", damage=link_forward)
    with pytest.raises(CorruptFileError, match="fit no shape"):
        opened(path)


def test_check_names_every_broken_rule(tmp_path):
    path = saved(make_filled(2000, slots=50, items=2100), tmp_path / "f")
    file = opened(path)
    image = bytearray(path.read_bytes())
    slots = np.frombuffer(image, ">i4", 100, SLOTS_AT).reshape(50, 2)
    items = np.frombuffer(image, LOCAL_ITEM, 2100, SLOTS_AT + 400)
    items["previous"][1000] = 1500
    slots[3, 0] = slots[4, 0]
    with path.open("r+b") as target:  # under the reader: opening it now would refuse it
        target.write(image)
    problems = "\n".join(file.check())
    assert "which is not older" in problems
    assert "lead to an item of another slot" in problems
    assert "reached from no slot" in problems
