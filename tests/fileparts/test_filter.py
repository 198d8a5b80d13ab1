import numpy as np
import pytest

from tierdex.errors import CorruptFileError
from tierdex.fileparts.filter import FilterBuilder, FilterGroup, FuseFilter, partition_shape

UUID = bytes(range(16))


def make_filter(hashes, bits=16, expected=None, chunk=50_000):
    builder = FilterBuilder(UUID, bits, len(hashes) if expected is None else expected)
    for first in range(0, len(hashes), chunk):
        builder.add(hashes[first : first + chunk])
    table, pieces = builder.finish()
    data = b"".join(piece.tobytes() for piece in pieces)
    return FuseFilter(table, data, bits=bits, uuid=UUID, path="filter"), table, data


def random_hashes(count, seed=1):
    return np.unique(np.random.default_rng(seed).integers(0, 1 << 64, count, dtype=np.uint64))


@pytest.fixture(scope="module")
def many():
    return random_hashes(250_000)


@pytest.mark.parametrize(("bits", "rate", "size"), [(16, 2e-5, 18.5), (8, 4.2e-3, 9.3)])
def test_filter_of_many_keys_knows_all_and_few_others(many, bits, rate, size):
    built, _, data = make_filter(many, bits)
    assert built.may_contain_many(many).all()
    strangers = random_hashes(2_000_000, seed=2)
    strangers = strangers[~np.isin(strangers, many)]
    maybe = int(np.count_nonzero(built.may_contain_many(strangers)))
    expected = len(strangers) / 2**bits
    assert expected - 6 * expected**0.5 < maybe < len(strangers) * rate + 6 * expected**0.5
    assert 8 * len(data) / len(many) <= size
    assert built.key_count == len(many)


@pytest.mark.parametrize("count", [0, 1, 2, 3, 5, 10, 33, 100, 1000])
@pytest.mark.parametrize("bits", [8, 16])
def test_small_filters_know_their_keys(count, bits):
    hashes = random_hashes(count)
    built, _, _ = make_filter(hashes, bits)
    assert built.may_contain_many(hashes).all()
    assert all(built.may_contain(value) for value in hashes.tolist())
    strangers = random_hashes(2000, seed=9)
    assert np.count_nonzero(built.may_contain_many(strangers)) < 200
    assert built.may_contain_many(np.zeros(0, np.uint64)).shape == (0,)


def test_neighbouring_and_extreme_hashes_are_known():
    hashes = np.r_[np.arange(5000), (1 << 64) - 1 - np.arange(5000)[::-1].astype(object)]
    hashes = hashes.astype(np.uint64)
    built, _, _ = make_filter(hashes, expected=5_000_000)
    assert len(built.partitions) > 20
    assert built.may_contain_many(hashes).all()
    assert not built.may_contain(1 << 63)


def test_single_and_batch_answers_are_the_same():
    hashes = random_hashes(3000)
    built, _, _ = make_filter(hashes, 8)
    asked = np.r_[hashes[::7], random_hashes(3000, seed=5)]
    assert built.may_contain_many(asked).tolist() == [built.may_contain(v) for v in asked.tolist()]


def test_a_group_answers_as_its_filters_do():
    hashes = random_hashes(3000)
    filters = [make_filter(part, bits)[0] for part in np.split(hashes, 3) for bits in (16, 8)]
    filters += [make_filter(hashes[:0])[0]] * 70
    group = FilterGroup(filters)
    for value in hashes[::100].tolist():
        assert list(group.may_contain(value)) == [one.may_contain(value) for one in filters]


def test_a_damaged_filter_of_a_group_says_maybe():
    hashes = random_hashes(1000)
    _, partitions, data = make_filter(hashes)
    broken = FuseFilter(partitions, bytes(len(data)), bits=16, uuid=bytes(16), path="x")
    assert FilterGroup([broken]).may_contain(5) == b"\x01"


def test_no_filter_always_says_maybe():
    built, _, data = make_filter(random_hashes(100), 0)
    assert data == b""
    assert built.may_contain(5)
    assert built.may_contain_many(random_hashes(10, seed=2)).all()


def test_building_twice_gives_the_same_bytes():
    hashes = random_hashes(20_000)
    assert make_filter(hashes, chunk=777)[1:] == make_filter(hashes)[1:]


def test_failed_attempts_get_more_room():
    assert partition_shape(1000, 0) == partition_shape(1000, 7)
    length, count = partition_shape(1000, 0)
    longer, more = partition_shape(1000, 64)
    assert longer * more > length * count


def test_partition_is_verified_when_first_asked():
    hashes = random_hashes(300_000)
    _, table, data = make_filter(hashes)
    damaged = bytearray(data)
    damaged[-1] ^= 1
    built = FuseFilter(table, bytes(damaged), bits=16, uuid=UUID, path="filter")
    assert built.may_contain(int(hashes[0]))
    with pytest.raises(CorruptFileError, match="filter partition 1 differs"):
        built.may_contain(int(hashes[-1]))
    with pytest.raises(CorruptFileError, match="filter partition 1 differs"):
        built.may_contain_many(hashes)
    assert built.damaged_partitions() == [1]


def test_filter_of_another_file_is_refused():
    hashes = random_hashes(100)
    _, table, data = make_filter(hashes)
    foreign = FuseFilter(table, data, bits=16, uuid=bytes(16), path="filter")
    with pytest.raises(CorruptFileError):
        foreign.may_contain(int(hashes[0]))


def test_table_that_leads_outside_the_fingerprints_is_refused():
    _, table, data = make_filter(random_hashes(100))
    with pytest.raises(CorruptFileError, match="implausible"):
        FuseFilter(table, data[:-1], bits=16, uuid=UUID, path="filter")
    with pytest.raises(CorruptFileError, match="bytes"):
        FuseFilter(table[:-1], data, bits=16, uuid=UUID, path="filter")
