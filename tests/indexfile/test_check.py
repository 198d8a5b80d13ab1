"""`check` finds every broken rule that a wrong writer could leave behind valid checksums."""

import ctypes

import pytest

from tests.indexfile import chained_files, compacted_files
from tierdex.fileparts.filter import FilterBuilder
from tierdex.filesystem import LocalFileSystem
from tierdex.indexfile.check import check_compacted, check_file
from tierdex.indexfile.compacted import writer as writer_module
from tierdex.indexfile.compacted.statistics import FileStatistics

ROWS = compacted_files.make_rows(2000, distinct=900)


def write(rows=ROWS, **options) -> bytes:
    return compacted_files.write(rows, **options)


@pytest.mark.parametrize("filter_bits", [0, 8, 16])
def test_sound_files_have_no_faults(filter_bits):
    assert check_compacted(write(filter_bits=filter_bits)) == []


def test_either_form_is_checked(tmp_path):
    path = tmp_path / "compacted"
    path.write_bytes(write())
    assert check_file(LocalFileSystem(), path) == []
    chained = chained_files.make_file(tmp_path / "chained")
    chained.append([chained_files.make_part(["a", "b", "a"])])
    assert check_file(LocalFileSystem(), tmp_path / "chained") == []
    chained.seal()
    chained.close()
    assert check_file(LocalFileSystem(), tmp_path / "chained") == []


def test_hash_that_the_filter_excludes_is_found(monkeypatch):
    def add_all_but_one(self, hashes, add=FilterBuilder.add):
        add(self, hashes[hashes != ROWS["key_hash"][700]])

    monkeypatch.setattr(FilterBuilder, "add", add_all_but_one)
    assert any("filter" in fault for fault in check_compacted(write()))


def test_dictionary_string_that_no_item_uses_is_no_fault():
    dictionaries = compacted_files.make_dictionaries(topics=(*compacted_files.TOPICS, "unused"))
    assert check_compacted(write(dictionaries=dictionaries)) == []


@pytest.mark.parametrize("name", ["distinct_count", "longest_run"])
def test_wrong_counts_are_found(monkeypatch, name):
    def encode(self, encode=FileStatistics.encode):
        return encode(type(self)(**{**vars(self), name: getattr(self, name) + 1}))

    monkeypatch.setattr(FileStatistics, "encode", encode)
    assert any("longest run" in fault for fault in check_compacted(write()))


@pytest.mark.parametrize(
    ("column", "value", "words"),
    [("first_hash", 5, "directory"), ("min_time", 5, "times"), ("max_time", 1 << 60, "times")],
)
def test_wrong_directory_is_found(monkeypatch, column, value, words):
    encode_pages = writer_module.encode_pages

    def encode(*arguments):
        written = encode_pages(*arguments)
        offset = {"first_hash": 0, "min_time": 16, "max_time": 24}[column]
        ctypes.c_int64.from_address(arguments[-1] + offset).value = value
        return written

    monkeypatch.setattr(writer_module, "encode_pages", encode)
    assert any(words in fault for fault in check_compacted(write(chunk=5000)))


def test_repeated_entry_is_found_even_across_pages(monkeypatch):
    rows = compacted_files.make_rows(1000)
    page = compacted_files.make_file(rows).statistics.items_per_page
    rows[page] = rows[page - 1]  # the last item of a page, and the first of the next one
    assert check_compacted(write(rows)) == []  # since the writer drops it
    mark_runs = writer_module.mark_runs

    def keep_all(*arguments):
        found = mark_runs(*arguments)
        arguments[4][:] = True
        return found

    monkeypatch.setattr(writer_module, "mark_runs", keep_all)
    assert any("entry twice" in fault for fault in check_compacted(write(rows)))


@pytest.mark.parametrize("topics", [1, 3])
def test_wrong_count_of_a_topic_is_found(monkeypatch, topics):
    rows = compacted_files.make_rows(1000, topics=topics)
    names = compacted_files.TOPICS[:topics]
    dictionaries = compacted_files.make_dictionaries(topics=names)
    assert check_compacted(write(rows, dictionaries=dictionaries)) == []
    count_topics = writer_module.count_topics

    def count_one_more(*arguments):
        arguments[-1][0, 0] += 1
        return count_topics(*arguments)

    monkeypatch.setattr(writer_module, "count_topics", count_one_more)
    faults = check_compacted(write(rows, dictionaries=dictionaries))
    assert faults == ["the items and times of a topic differ from the statistics"]
