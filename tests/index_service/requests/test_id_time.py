"""Message IDs with their time inside narrow the times of their lookup, when that was asked for."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.index_service.conftest import offsets, put
from tierdex.errors import InvalidRequestError
from tierdex.index_service.batch.id_times import times_of_ids
from tierdex.index_service.requests.id_time import narrow, time_of_id
from tierdex.settings import load_settings

DAY = 86_400_000
NOW = 1_700_000_000_000
EPOCH = 1_288_834_974_657  # Twitter's
SNOWFLAKE = f"snowflake:{EPOCH}"
BASE32 = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"


def uuidv7(time, rest=0x7123_8123_4567_89AB_CDEF):
    digits = f"{time:012x}{rest:020x}"
    return "-".join((digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:]))


def ulid(time, rest="0123456789ABCDEF"):
    return "".join(BASE32[time >> shift & 31] for shift in range(45, -5, -5)) + rest


def snowflake(time, rest=12345):
    return str((time - EPOCH) << 22 | rest)


FORMS = {"uuidv7": uuidv7, "ulid": ulid, SNOWFLAKE: snowflake}


@pytest.mark.parametrize("form", FORMS)
@given(time=st.integers(EPOCH + 1, EPOCH + (1 << 41) - 1))
def test_time_that_an_id_was_made_of_is_read_back(form, time):
    assert time_of_id(form, FORMS[form](time)) == time


@pytest.mark.parametrize(
    ("form", "message_id", "time"),
    [
        ("uuidv7", "017F22E2-79B0-7CC3-98C4-DC0C0C07398F", 1645557742000),  # RFC 9562, A.6
        ("uuidv7", "017f22e279b07cc398c4dc0c0c07398f", 1645557742000),
        ("ulid", "01ARZ3NDEKTSV4RRFFQ69G5FAV", 1469922850259),
        ("ulid", "01arz3ndektsv4rrffq69g5fav", 1469922850259),
        (SNOWFLAKE, "1541815603606036480", 1656432460105),
        ("snowflake:0", str(5 << 22), 5),
    ],
)
def test_published_examples_have_the_times_that_are_told_of_them(form, message_id, time):
    assert time_of_id(form, message_id) == time


@pytest.mark.parametrize(
    ("form", "message_id"),
    [
        ("uuidv7", "017f22e2-79b0-4cc3-98c4-dc0c0c07398f"),  # version 4
        ("uuidv7", "017f22e2-79b0-7cc3-c8c4-dc0c0c07398f"),  # another variant
        ("uuidv7", "017f22e279b0-7cc3-98c4-dc0c0c07398f"), ("uuidv7", "017f22e2"), ("uuidv7", ""),
        ("ulid", "81ARZ3NDEKTSV4RRFFQ69G5FAV"), ("ulid", "01ARZ3NDEKTSV4RRFFQ69G5FA"),
        ("ulid", "01ARZ3NDEKTSV4RRFFQ69G5FAU"), ("ulid", "order-8841"),
        (SNOWFLAKE, "-5"), (SNOWFLAKE, "05"), (SNOWFLAKE, "1e9"), (SNOWFLAKE, "9" * 19 + "0"),
        (SNOWFLAKE, "9223372036854775808"), (SNOWFLAKE, "\u0661"),
    ],
)  # fmt: skip
def test_id_of_another_form_has_no_time(form, message_id):
    assert time_of_id(form, message_id) is None
    assert narrow(load_settings(id_time=form), None, message_id, (None, None)) is None


@pytest.mark.parametrize("form", ["uuid", "snowflake", "snowflake:", "snowflake:-1", "", "ULID"])
def test_form_that_is_unknown_is_refused_by_name(form, index):
    with pytest.raises(InvalidRequestError, match="id_time"):
        load_settings(id_time=form)
    with pytest.raises(InvalidRequestError, match="topic_id_time"):
        load_settings(topic_id_time={"t": form})
    with pytest.raises(InvalidRequestError, match="uuidv7, ulid or snowflake:EPOCH_MS"):
        index.query(message_id="M", id_time=form)


def test_range_is_widened_by_the_slack_and_stays_within_the_callers():
    asked = load_settings(id_time_slack=2.0), "t", ulid(NOW)
    assert narrow(*asked, (None, None)) is None  # off, as long as no query asks
    assert narrow(*asked, (None, None), "ulid") == ("ulid", NOW - 2000, NOW + 2000)
    assert narrow(*asked, (NOW, NOW + 10**6), "ulid") == ("ulid", NOW, NOW + 2000)
    assert narrow(*asked, (NOW + 2001, None), "ulid") is None  # nothing of it: asked as it is
    own = load_settings(id_time="uuidv7", topic_id_time={"t": "ulid", "u": "off"})
    assert narrow(own, "t", ulid(NOW), (None, None)).form == "ulid"
    assert narrow(own, None, uuidv7(NOW), (None, None)).form == "uuidv7"
    assert narrow(own, "u", uuidv7(NOW), (None, None)) is None
    assert narrow(own, None, uuidv7(NOW), (None, None), "off") is None


@pytest.mark.parametrize("form", FORMS)
def test_lookup_by_id_passes_over_files_of_other_times(form, make_index):
    index = make_index(id_time=form)
    for day in range(5):
        name = FORMS[form](NOW + day * DAY)
        put(index, "K", day, message_id=name, timestamp=NOW + day * DAY + 1000)
        index.roll()
        index.run_compaction()
    put(index, "K", 9, message_id="no-time-inside", timestamp=NOW)
    asked = FORMS[form](NOW + 2 * DAY)
    answer = index.query(message_id=asked, explain=True)
    assert offsets(answer) == offsets(index.query(message_id=asked)) == [2]
    assert offsets(index.query("orders", message_id=asked)) == [2]
    told = {"form": form, "begin": NOW + 2 * DAY - 300_000, "end": NOW + 2 * DAY + 300_000}
    assert answer.explain.id_time == told
    assert answer.explain.files_pruned_by_time == 5
    whole = index.query(message_id=asked, explain=True, id_time="off")
    assert (offsets(whole), whole.explain.id_time) == ([2], None)
    assert whole.explain.files_pruned_by_time == 0
    plain = index.query(message_id="no-time-inside", explain=True)
    assert (offsets(plain), plain.explain.id_time) == ([9], None)


def test_pages_of_a_narrowed_lookup_follow_its_cursor(make_index):
    index = make_index()
    name = ulid(NOW)
    for offset in range(5):
        put(index, "K", offset, message_id=name, timestamp=NOW + offset)
    put(index, "K", 9, message_id=name, timestamp=NOW + DAY)  # not its time: hidden by who narrows
    found, cursor = [], None
    while True:
        page = index.query(message_id=name, max_count=2, cursor=cursor, id_time="ulid")
        found += offsets(page)
        cursor = page.next_cursor
        if cursor is None:
            break
    assert found == [4, 3, 2, 1, 0]
    assert offsets(index.query(message_id=name)) == [9, 4, 3, 2, 1, 0]


ODD = (
    "no-time-inside", "9223372036854775808", "99999999999999999999", "05", "-5", "\u0661", "1", "",
    "017f22e2-79b0-4cc3-98c4-dc0c0c07398f", "017f22e279b0-7cc3-98c4-dc0c0c07398f",
    "81ARZ3NDEKTSV4RRFFQ69G5FAV", "01ARZ3NDEKTSV4RRFFQ69G5FAU",
)  # fmt: skip
IDS = st.one_of(
    st.sampled_from(ODD),
    *(st.builds(make, st.integers(EPOCH + 1, EPOCH + (1 << 41) - 1)) for make in FORMS.values()),
    st.integers(EPOCH, 2**47).map(ulid).map(str.lower),
    st.integers(EPOCH, 2**47).map(uuidv7).map(lambda text: text.replace("-", "").upper()),
)


@settings(deadline=None, max_examples=50)
@given(ids=st.lists(IDS, min_size=1, max_size=12), form=st.sampled_from(list(FORMS)))
def test_columns_of_ids_have_the_times_of_single_ones(ids, form):
    times, has_time = times_of_ids(form, pa.array(ids, pa.string()))
    found = [time if has else None for time, has in zip(times.tolist(), has_time, strict=True)]
    assert found == [time_of_id(form, each) for each in ids]


def test_batch_narrows_each_lookup_as_a_single_query_does(make_index):
    index = make_index(id_time="ulid", topic_id_time={"other": SNOWFLAKE, "plain": "off"})
    asked = []
    for topic, make in (("orders", ulid), ("other", snowflake), ("plain", ulid)):
        for day in range(3):
            name = make(NOW + day * DAY)
            for late in (0, DAY):  # within its slack, and beyond it
                put(
                    index, f"K{day}", 10 * day + late // DAY, topic=topic, message_id=name,
                    timestamp=NOW + day * DAY + late,
                )  # fmt: skip
            asked += [
                {"message_id": name}, {"topic": topic, "message_id": name},
                {"topic": topic, "message_id": name, "begin": NOW + 1},
                {"topic": topic, "message_id": name, "end": NOW - DAY},
                {"topic": topic, "key": f"K{day}"},
            ]  # fmt: skip
        index.roll()
        index.run_compaction()
    single = [offsets(index.query(**each)) for each in asked]
    assert [offsets(answer) for answer in index.query_batch(asked)] == single
    assert [] in single
    assert [0] in single
    assert [1, 0] in single
    by_id = [
        (each["topic"], each["message_id"])
        for each in asked
        if len(each) == 2 and "key" not in each
    ]
    table = index.query_batch_arrow(
        pa.table({"topic": [t for t, _ in by_id], "message_id": [i for _, i in by_id]}), max_count=9
    )
    found = [[] for _ in by_id]
    for number, offset in zip(
        table["lookup"].to_pylist(), table["offset"].to_pylist(), strict=True
    ):
        found[number].append(offset)
    assert found == [offsets(index.query(topic, message_id=name)) for topic, name in by_id]
    assert sorted(map(len, found)) == [1] * 6 + [2] * 3  # both of the topic that narrows nothing
