import numpy as np
import pytest

from tests.indexfile import compacted_files as files
from tierdex.errors import CorruptFileError
from tierdex.indexfile.compacted.file import CompactedFile
from tierdex.indexfile.row_bounds import RowBounds, RowMeasure
from tierdex.indexfile.schema import MESSAGE_SCHEMA, Schema, SchemaField, join_rows

CODES = ["<i8", "<u8", "<i4", "<u4", "<i2", "<u2", "|i1", "|u1"]
EVERY_CODE = Schema(tuple(SchemaField(f"f{i}", code) for i, code in enumerate(CODES)))


def all_rows(file: CompactedFile):
    return join_rows([np.zeros(0, file.schema.dtype), *file.rows_in_hash_order()])


def any_values(random, code: str, count: int):
    """Values all over the type's range: extremes, a narrow band, multiples, one value, or anything."""
    limits = np.iinfo(code)
    low, high = int(limits.min), int(limits.max)
    kind = random.integers(0, 5)
    if kind == 0:
        return random.choice(np.array([low, high, 0, 1], code), count)
    if kind == 1:
        low, high = max(low, -5), min(high, 100)
    if kind == 2:
        return (random.integers(0, 12, count) * 10).astype(code)
    if kind == 3:
        return np.full(count, random.choice(np.array([low, high, 7], code)))
    return random.integers(low, high, count, dtype=np.dtype(code), endpoint=True)


@pytest.mark.parametrize("seed", range(40))
def test_rows_of_any_values_come_back(seed):
    random = np.random.default_rng(seed)
    count = int(random.choice([1, 2, 3, 50, 700]))
    rows = np.zeros(count, EVERY_CODE.dtype)
    rows["key_hash"] = np.sort(any_values(random, "<u8", count))
    for name, code in [("timestamp", "<i8"), *((f.name, f.code) for f in EVERY_CODE.fields)]:
        rows[name] = any_values(random, code, count)
    rows["f0"] = random.permutation(count) * int(random.choice([1, -1, 1 << 40]))
    tags = np.array([[0, 1], [0, 1 << 31], [1 << 31, (1 << 31) + 1]][seed % 3], np.uint32)
    rows["tag"] = random.choice(tags, count)
    dictionaries = files.make_dictionaries(EVERY_CODE, ("a", "b"))
    file = files.make_file(rows, schema=EVERY_CODE, dictionaries=dictionaries, chunk=97)
    assert np.array_equal(all_rows(file), rows)


@pytest.mark.parametrize("chunk", [1, 7, 241, 100_000])
def test_bytes_do_not_depend_on_how_rows_arrive(chunk):
    rows = files.make_rows(1500, distinct=300)
    assert files.write(rows, chunk=chunk) == files.write(rows, chunk=64)


def test_no_page_exceeds_4096_bytes_whatever_its_values():
    random = np.random.default_rng(1)
    rows = files.make_rows(5000)
    rows["timestamp"] = random.integers(-(1 << 63), (1 << 63) - 1, len(rows))
    rows["offset"] = random.integers(0, 1 << 62, len(rows))
    rows["size"] = random.integers(0, 1 << 32, len(rows))
    file = files.make_file(rows)
    lengths = np.diff(file.directory.entries["position"].astype(np.int64))
    assert 3500 < lengths.max() <= 4096
    assert np.array_equal(all_rows(file), rows)


def test_column_that_never_changes_costs_nothing():
    rows = files.make_rows(20_000, topics=1)
    narrow = rows.copy()
    for name in ("tag", "size", "queue_id", "timestamp"):
        narrow[name] = rows[name][0]
    saved = files.make_file(rows).sidecar_position - files.make_file(narrow).sidecar_position
    assert 8 * saved / len(rows) > 1 + 9 + 3 + 25


def test_times_in_whole_minutes_are_packed_by_their_common_factor():
    rows = files.make_rows(20_000)
    minutes = rows.copy()
    minutes["timestamp"] -= minutes["timestamp"] % 60_000
    saved = files.make_file(rows).sidecar_position - files.make_file(minutes).sidecar_position
    assert saved > 20_000 * 15 / 8


def test_offsets_are_packed_relative_to_their_queue():
    rows = files.make_rows(20_000)
    rows["offset"] = np.arange(20_000) + (rows["queue_id"].astype(np.int64) << 40)
    file = files.make_file(rows)
    assert np.array_equal(all_rows(file), rows)
    assert 8 * (file.sidecar_position - 4096) / len(rows) < 64 + 27 + 10 + 3 + 3 + 15


def test_offsets_of_too_many_queues_still_come_back():
    rows = files.make_rows(3000)
    rows["queue_id"] = np.random.default_rng(1).integers(0, (1 << 31) - 1, len(rows))
    assert np.array_equal(all_rows(files.make_file(rows)), rows)


def test_repeats_are_dropped():
    rows = np.repeat(files.make_rows(700), 3)
    file = files.make_file(rows)
    assert np.array_equal(all_rows(file), rows[::3])
    assert (file.item_count, file.statistics.longest_run) == (700, 1)


@pytest.mark.parametrize("times", [3, 40])  # short runs are compared pair by pair
def test_location_at_another_time_stays(times):
    rows = np.repeat(files.make_rows(50), times)
    rows["timestamp"] += np.tile(np.arange(times), 50)
    file = files.make_file(rows)
    assert np.array_equal(all_rows(file), rows)
    assert (file.statistics.longest_run, file.check()) == (times, [])


@pytest.mark.parametrize("chunk", [50, 10_000])
def test_repeats_in_a_long_run_are_dropped(chunk):
    rows = files.make_rows(2000)
    rows["key_hash"] = 42
    repeated = np.concatenate([rows, rows[:1500]])
    file = files.make_file(repeated, chunk=chunk)
    assert np.array_equal(all_rows(file), rows)
    assert file.statistics.longest_run == 2000
    assert file.check() == []


def test_same_location_of_other_kind_or_topic_stays():
    rows = np.repeat(files.make_rows(1), 4)
    rows["tag"] = [0, 1, 1 << 31, (1 << 31) + 1]
    dictionaries = files.make_dictionaries(topics=("a", "b"))
    assert np.array_equal(all_rows(files.make_file(rows, dictionaries=dictionaries)), rows)


@pytest.mark.parametrize("chunk", [1, 10, 10_000])
def test_unsorted_rows_are_refused(chunk):
    rows = files.make_rows(500)
    rows[[200, 300]] = rows[[300, 200]]
    with pytest.raises(CorruptFileError, match="not sorted"):
        files.write(rows, chunk=chunk)


@pytest.mark.parametrize("name", ["queue_id", "offset"])
def test_value_outside_the_bounds_is_refused(name):
    rows = files.make_rows(500)
    bounds = RowBounds.measure(MESSAGE_SCHEMA, [rows])
    rows[name][250] = -5
    with pytest.raises(CorruptFileError, match="outside the bounds"):
        files.write(rows, bounds=bounds)


def test_topic_outside_the_dictionary_is_refused():
    rows = files.make_rows(500)
    with pytest.raises(CorruptFileError, match="topic"):
        files.write(rows, dictionaries=files.make_dictionaries(topics=("orders",)))


def test_measure_of_many_queues_grows_its_table():
    rows = files.make_rows(9000)
    rows["queue_id"] = np.arange(9000)
    measure = RowMeasure(MESSAGE_SCHEMA)
    measure.add(rows[:4000])
    measure.add(rows[4000:])
    bounds = measure.bounds()
    pairs = np.unique(np.c_[rows["tag"] & 0x7FFFFFFF, rows["queue_id"]], axis=0)
    assert bounds.queues[["topic", "queue_id"]].tolist() == [tuple(pair) for pair in pairs.tolist()]
    assert bounds.kinds == 3
    assert RowMeasure(MESSAGE_SCHEMA).bounds().is_empty


@pytest.mark.parametrize("factor", [2, 3, 700, 60_000, 1 << 20, (1 << 32) - 1, 1 << 33])
@pytest.mark.parametrize("stranger", [None, 5, -1])
def test_times_with_a_common_factor_come_back(factor, stranger):
    rows = files.make_rows(1000)
    steps = np.random.default_rng(3).integers(0, 1 << 20, len(rows))
    rows["timestamp"] = -(1 << 50) + factor * steps
    if stranger is not None:  # one value of a page that the factor of all others does not divide
        rows["timestamp"][stranger] += max(1, factor // 2)
    assert np.array_equal(all_rows(files.make_file(rows)), rows)
