"""Hash groups: one says of its hashes what the whole sidecar says, and damage is never an answer."""

from __future__ import annotations

import numpy as np
import pytest

from tests.indexfile import compacted_files as files
from tierdex.errors import CorruptFileError
from tierdex.fileparts.filter import partitions_of
from tierdex.indexfile.check import check_compacted
from tierdex.indexfile.compacted.file import CompactedFile
from tierdex.indexfile.compacted.hash_group import GROUP_SIZES, GroupPlaces, GroupSizes, HashGroup
from tierdex.indexfile.lookup import Search

HOT = 1 << 63
ABSENT = np.random.default_rng(9).integers(0, 1 << 64, 3000, dtype=np.uint64)


def rows_with_a_hot_key(count=15_000):
    rows = files.make_rows(count)
    rows["key_hash"][::3] = HOT
    return rows[np.argsort(rows["key_hash"], kind="stable")]


@pytest.fixture(scope="module", params=[16, 8])
def data(request):
    sizes = GroupSizes(keys=1000, whole_bytes=0)
    return files.write(rows_with_a_hot_key(), filter_bits=request.param, group_sizes=sizes)


@pytest.fixture(scope="module")
def whole(data):
    return CompactedFile.from_bytes(data)


def group_of(data: bytes, places: GroupPlaces, number: int, whole, **more) -> HashGroup:
    begin = places.position + number * places.stride
    return HashGroup(
        more.pop("group", data[begin : begin + places.stride]),
        uuid=more.pop("uuid", files.UUID),
        number=more.pop("as_number", number),
        count=more.pop("count", places.group_count),
        pages_end=whole.sidecar_position,
        name="group",
        **more,
    )


def entries_of(data: bytes, group: HashGroup, whole) -> bytes | None:
    """The directory entries that a group leaves to the directory."""
    if group.has_entries:
        return None
    begin = next(part.position for part in group.parts.values() if part.kind.name == "DIRECTORY")
    begin += 32 * group.first_page
    return data[begin : begin + 32 * group.entry_count]


def test_each_group_says_of_its_hashes_what_the_sidecar_says(data, whole):
    places = whole.groups
    assert places.group_count == 15
    rows = np.concatenate(list(whole.rows_in_hash_order()))
    asked = np.sort(np.concatenate([rows["key_hash"][::7], ABSENT, np.array([HOT], np.uint64)]))
    numbers = partitions_of(asked, places.group_count)
    without_entries = 0
    for number in range(places.group_count):
        group = group_of(data, places, number, whole)
        entries = entries_of(data, group, whole)
        if entries is not None:
            without_entries += 1
            group = group_of(data, places, number, whole, entries=entries)
        head = CompactedFile.from_head(
            data[whole.sidecar_position : places.head_end],
            group,
            position=whole.sidecar_position,
            file_bytes=len(data),
            item_count=whole.item_count,
            name="head",
        )
        mine = np.ascontiguousarray(asked[numbers == number])
        maybe = group.may_contain_many(mine)
        assert np.array_equal(maybe, whole.may_contain_many(mine))
        wanted = Search.of(mine[maybe], 0, limit=100)
        assert np.array_equal(group.plan_pages(wanted), whole.plan_pages(wanted))
        file = head.through(group)
        for at, (first, last) in list(enumerate(group.plan_pages(wanted).tolist()))[::97]:
            one = wanted.taken(slice(at, at + 1))
            span = whole.span(first, last - first + 1)
            assert group.span(first, last - first + 1) == span
            pages = data[span.position : span.position + span.length]
            expected = whole.search_span(span, pages, one)
            found = file.search_span(span, pages, one)
            assert np.array_equal(found.rows, expected.rows)
            assert np.array_equal(found.following, expected.following)
    assert without_entries == 1  # the hot key's


def test_a_reader_that_takes_the_sidecar_whole_needs_no_group(data, whole):
    assert check_compacted(data) == []
    rows = np.concatenate(list(whole.rows_in_hash_order()))
    assert whole.may_contain_many(np.unique(rows["key_hash"])).all()


def test_a_small_sidecar_has_no_groups_and_a_larger_one_has():
    counts = (20_000, 40_000)
    small, large = (CompactedFile.from_bytes(files.write(files.make_rows(n))) for n in counts)
    assert small.groups is None
    assert len(small.sidecar_bytes()) < GROUP_SIZES.whole_bytes < len(large.sidecar_bytes())
    assert large.groups is not None


@pytest.mark.parametrize("place", [0, 4, 8, 20, 40, 70, 300, 400, -1])
def test_a_damaged_group_is_refused(data, whole, place):
    places = whole.groups
    begin = places.position
    group = bytearray(data[begin : begin + places.stride])
    length = int.from_bytes(group[4:8], "little")
    group[place if place >= 0 else length - 1] ^= 1
    with pytest.raises(CorruptFileError, match="hash group 0 differs"):
        group_of(data, places, 0, whole, group=bytes(group))


def test_a_group_in_another_place_or_of_another_file_is_refused(data, whole):
    places = whole.groups
    for more in ({"as_number": 2}, {"uuid": bytes(16)}, {"count": places.group_count + 1}):
        with pytest.raises(CorruptFileError, match="hash group"):
            group_of(data, places, 1, whole, **more)
    with pytest.raises(CorruptFileError, match="hash group"):
        group_of(data, places, 1, whole, group=data[places.position :][:40])


def test_directory_entries_of_another_group_are_refused(data, whole):
    places = whole.groups
    groups = [group_of(data, places, number, whole) for number in range(places.group_count)]
    hot = next(group for group in groups if not group.has_entries)
    entries = bytearray(entries_of(data, hot, whole))
    entries[5] ^= 1
    with pytest.raises(CorruptFileError, match="hash group"):
        group_of(data, places, hot.number, whole, entries=bytes(entries))


def test_a_damaged_head_is_refused(data, whole):
    places = whole.groups
    group = group_of(data, places, 0, whole)
    head = bytearray(data[whole.sidecar_position : places.head_end])
    head[200] ^= 1
    with pytest.raises(CorruptFileError):
        CompactedFile.from_head(
            head, group, position=whole.sidecar_position, file_bytes=len(data),
            item_count=whole.item_count, name="head",
        )  # fmt: skip


@pytest.mark.parametrize("where", ["header", "entries", "fingerprints", "behind"])
def test_verify_names_a_group_that_is_not_sound(data, whole, where):
    places = whole.groups
    begin = places.position + places.stride
    length = int.from_bytes(data[begin + 4 : begin + 8], "little")
    offset = {"header": 9, "entries": length - 9, "fingerprints": 900, "behind": places.stride - 1}
    damaged = bytearray(data)
    damaged[begin + offset[where]] ^= 1
    faults = check_compacted(bytes(damaged))
    assert faults
    assert any("filter" in fault or "hash group 1" in fault for fault in faults)
