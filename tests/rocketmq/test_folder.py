"""A broker's folder: which files are found, which topic numbers, and what is said about the rest."""

import hashlib
import json
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.index_service.conftest import clock, make_index, offsets  # noqa: F401 (fixtures)
from tests.rocketmq.rocketmq_files import BEGIN, FILES, make_writer, put
from tierdex.errors import NotFoundError
from tierdex.rocketmq.folder import RocketmqFolder

HOUR = 3_600_000


def save_local(root, writer, begin=BEGIN, *, ended=True):
    folder = root / "tiered_index_file"
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / str(begin)
    path.unlink(missing_ok=True)
    writer.save(FILES, path, ended=ended)
    return path


def save_uploaded(root, writer, base=0):
    folder = root / f"{hashlib.md5(b'c').hexdigest()[:8]}_c" / "broker-a" / "rmq_sys_INDEX/0/INDEX"
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{hashlib.md5(str(base).encode()).hexdigest()[:8]}{base:020d}"
    writer.save(FILES, path, form="compacted")
    return path


def save_topics(root, topics):
    path = root / "config" / "tieredStoreMetadata.json"
    path.parent.mkdir(exist_ok=True)
    path.write_text(
        json.dumps({"topicMetadataTable": {t: {"topicId": n} for t, n in topics.items()}})
    )
    return path


def one_file(key, offset, *, begin=BEGIN, after_ms=0, topic="t", topic_id=1):
    writer = make_writer(begin=begin)
    put(writer, topic, key, offset, begin - BEGIN + after_ms, topic_id=topic_id)
    return writer


@pytest.fixture
def find(make_index, tmp_path):  # noqa: F811
    """Search the folder as an index does that shows its files; `refresh` looks at the folder again."""
    index = None

    def find(topic, key, begin=None, end=None, **more):
        nonlocal index
        if index is None:
            index = make_index(tmp_path / "index", rocketmq=tmp_path)
        index.refresh()
        return index.query(topic, key=key, begin=begin, end=end, **more)

    return find


def test_local_and_uploaded_files_are_found_newest_first(tmp_path, find):
    save_uploaded(tmp_path, one_file("k", 1))
    save_local(tmp_path, one_file("k", 2, begin=BEGIN + HOUR), BEGIN + HOUR)
    save_local(tmp_path, one_file("k", 3, begin=BEGIN + 2 * HOUR), BEGIN + 2 * HOUR, ended=False)
    answer = find("t", "k")
    assert offsets(answer) == [3, 2, 1]
    assert answer.complete
    files, unreadable = RocketmqFolder(FILES, tmp_path).files()
    assert [file.shape.form for file in files] == ["local", "local", "compacted"]
    assert unreadable == []


def test_entries_say_that_their_key_is_not_verified(tmp_path, find):
    save_local(tmp_path, one_file("k", 1))
    (entry,) = find("t", "k").entries
    assert entry.hash_function == "java-string-32"


def test_uploaded_files_are_found_one_folder_deeper(tmp_path, find):
    save_uploaded(tmp_path / "tieredstore", one_file("k", 1))
    assert offsets(find("t", "k")) == [1]


def test_fault_1_file_that_began_earlier_is_asked(tmp_path, find):
    save_local(tmp_path, one_file("k", 1, after_ms=5 * HOUR))
    assert offsets(find("t", "k", BEGIN + HOUR, BEGIN + 9 * HOUR)) == [1]


def test_fault_1_late_message_in_a_file_that_began_after_the_end_is_found(tmp_path, find):
    save_local(tmp_path, one_file("k", 1, begin=BEGIN + HOUR, after_ms=-HOUR), BEGIN + HOUR)
    assert offsets(find("t", "k", BEGIN, BEGIN)) == [1]


def test_fault_9_no_more_files_are_read_than_max_count_needs(tmp_path, find):
    save_local(tmp_path, one_file("k", 1))
    save_local(tmp_path, one_file("k", 2, begin=BEGIN + HOUR), BEGIN + HOUR)
    assert offsets(find("t", "k", max_count=1)) == [2]


def test_fault_10_order_is_the_same_every_time(tmp_path, find):
    for hour in range(4):
        save_local(tmp_path, one_file("k", hour, begin=BEGIN + hour * HOUR), BEGIN + hour * HOUR)
    assert [offsets(find("t", "k")) for _ in range(3)] == [[3, 2, 1, 0]] * 3


def test_fault_8_duplicate_check_knows_the_topic(tmp_path, find):
    writer = make_writer()
    put(writer, "t", "k", 1, topic_id=1)
    put(writer, "t", "k", 1, topic_id=2)
    put(writer, "t", "k", 1, topic_id=2)
    put(writer, "t", "k", 2, topic_id=2)
    save_local(tmp_path, writer)
    save_topics(tmp_path, {"t": 2, "other": 1})
    assert offsets(find("t", "k")) == [2, 1]


def test_fault_7_topic_that_swallows_the_separator_is_told_apart(tmp_path, find):
    save_local(tmp_path, one_file("a#b", 1, topic="x", topic_id=4))
    save_topics(tmp_path, {"x": 4, "x#a": 5})
    assert offsets(find("x", "a#b")) == [1]
    assert offsets(find("x#a", "b")) == []


@pytest.mark.parametrize("kind", ["truncated", "foreign", "empty"])
def test_fault_11_unreadable_file_is_named_never_not_found(tmp_path, find, kind):
    path = save_uploaded(tmp_path, one_file("k", 1))
    image = {"truncated": path.read_bytes()[:-9], "foreign": b"hello world" * 9, "empty": b""}[kind]
    path.write_bytes(image)
    answer = find("t", "k")
    assert answer.entries == []
    assert not answer.complete
    assert [row.file for row in answer.missing] == [str(path)]


def test_fault_16_file_both_local_and_uploaded_is_answered_once(tmp_path, find):
    writer = one_file("k", 1)
    save_local(tmp_path, writer)
    save_uploaded(tmp_path, writer)
    assert offsets(find("t", "k")) == [1]


def test_compacted_file_that_awaits_its_upload_is_found(tmp_path, find):
    folder = tmp_path / "tiered_index_file" / "compacting"
    folder.mkdir(parents=True)
    one_file("k", 1).save(FILES, folder / str(BEGIN), form="compacted")
    assert offsets(find("t", "k")) == [1]


def test_half_written_compacted_file_beside_its_source_is_ignored(tmp_path, find):
    save_local(tmp_path, one_file("k", 1))
    folder = tmp_path / "tiered_index_file" / "compacting"
    folder.mkdir()
    (folder / str(BEGIN)).write_bytes(one_file("k", 1).compacted_bytes()[:40])
    answer = find("t", "k")
    assert offsets(answer) == [1]
    assert answer.complete


def test_metadata_with_bare_number_keys_is_understood(tmp_path):
    save_local(tmp_path, one_file("k", 1))
    path = save_topics(tmp_path, {})
    path.write_text(
        '{"topicMetadataTable":{"t{1:2":{"topicId":3}},"queueMetadataTable":{"t":{0:{"queue":1},12:{}}}}'
    )
    assert RocketmqFolder(FILES, tmp_path).topics() == {"t{1:2": 3}


def test_broken_metadata_makes_the_answer_incomplete(tmp_path, find):
    save_local(tmp_path, one_file("k", 1))
    save_topics(tmp_path, {}).write_text("{")
    answer = find("t", "k")
    assert not answer.complete


def test_file_being_written_is_followed(tmp_path, find):
    writer = one_file("k", 1)
    path = save_local(tmp_path, writer, ended=False)
    assert offsets(find("t", "k")) == [1]
    put(writer, "t", "k", 2, topic_id=1)
    with path.open("r+b") as file:
        file.write(writer.local_bytes(ended=True))
    assert offsets(find("t", "k")) == [2, 1]
    path.unlink()
    assert offsets(find("t", "k")) == []


def test_fault_19_concurrent_readers_get_their_own_bytes(tmp_path, find):
    writer = make_writer(slots=50, items=1000)
    for n in range(900):
        put(writer, "t", f"k{n % 90}", n, topic_id=1)
    save_local(tmp_path, writer)
    assert len(offsets(find("t", "k0"))) == 10
    with ThreadPoolExecutor(4) as pool:
        answers = pool.map(lambda n: offsets(find("t", f"k{n}")), list(range(90)) * 2)
        for n, answer in zip(list(range(90)) * 2, answers, strict=True):
            assert answer == list(range(n + 810, -1, -90))


def test_absent_folder_is_refused(tmp_path):
    with pytest.raises(NotFoundError):
        RocketmqFolder(FILES, tmp_path / "nowhere")


def test_a_folder_without_an_index_is_refused_with_what_to_give(tmp_path, make_index):  # noqa: F811
    store = tmp_path / "deep" / "store"
    local = save_local(store, one_file("k", 1)).parent
    uploaded = save_uploaded(store, one_file("k", 2)).parent
    (tmp_path / "empty").mkdir()
    flat = tmp_path / "flat"
    flat.mkdir()
    one_file("k", 1).save(FILES, flat / str(BEGIN), ended=True)
    for given, advice in (
        (tmp_path / "empty", "storePathRootDir"),
        (flat, "belong in a folder tiered_index_file"),
        (local, f"give the folder above: {store}"),
        (uploaded, f"give the folder above: {store}"),
        (uploaded.parents[2], f"give the folder above: {store}"),
        (tmp_path / "deep", f"give the folder in it: {store}"),
    ):
        with pytest.raises(NotFoundError, match="holds no index of RocketMQ") as caught:
            make_index(None, rocketmq=given)
        assert advice in str(caught.value)
    assert sorted(offsets(make_index(None, rocketmq=store).query("t", key="k"))) == [1, 2]


def test_a_flat_folder_works_once_it_is_nested_as_the_refusal_says(tmp_path, make_index):  # noqa: F811
    (tmp_path / "tiered_index_file" / "compacting").mkdir(parents=True)
    one_file("k", 1).save(FILES, tmp_path / "tiered_index_file" / str(BEGIN), ended=True)
    later = tmp_path / "tiered_index_file" / "compacting" / str(BEGIN + HOUR)
    one_file("k", 2, begin=BEGIN + HOUR).save(FILES, later, form="compacted")
    assert offsets(make_index(None, rocketmq=tmp_path).query("t", key="k")) == [2, 1]


def test_a_folder_whose_index_goes_is_missing_and_not_empty(tmp_path, find):
    save_local(tmp_path, one_file("k", 1))
    assert offsets(find("t", "k")) == [1]
    (tmp_path / "tiered_index_file").rename(tmp_path / "away")
    answer = find("t", "k")
    assert not answer.complete
    assert "holds no index" in answer.missing[0].reason
