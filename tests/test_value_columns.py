"""An index and a message log make the same values of the same columns, and refuse the same rows."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tierdex.errors import InvalidRequestError
from tierdex.index_service.requests.put_columns import make_entry_columns
from tierdex.indexfile.schema import MESSAGE_SCHEMA
from tierdex.log_service.append.given_messages import GivenMessages
from tierdex.log_service.append.message_columns import check_deliver_at, check_messages
from tierdex.settings import load_settings

SETTINGS = load_settings()
ROWS = 3
NUMBERS = (
    st.integers(-(1 << 64), 1 << 64) | st.integers(-3, 3) | st.booleans() | st.floats() | st.none()
)
TEXTS = st.sampled_from(["a", "b", "", "x" * 256, "a\nb", None, 5, "\ud800", b"t"])


def columns_of(values):
    """Return a list of values in each form that holds them."""
    forms = [values]
    try:
        array = pa.array(values)
    except (pa.ArrowException, OverflowError, UnicodeEncodeError, TypeError, ValueError):
        return forms
    forms += [array, pa.chunked_array([array.slice(0, 1), array.slice(1)])]
    if not array.null_count and not pa.types.is_string(array.type):
        forms.append(np.array(array.to_pylist()))
    if pa.types.is_string(array.type):
        forms.append(array.dictionary_encode())
    return forms


def as_entries(topic, queue_id, timestamp):
    found = make_entry_columns(
        SETTINGS, MESSAGE_SCHEMA, topic=topic, keys=["k"] * ROWS, message_id=None, timestamp=timestamp,
        fields={"queue_id": queue_id, "offset": [1] * ROWS, "size": 1},
    )  # fmt: skip
    index = np.zeros(ROWS, np.int32) if found.topic_index is None else found.topic_index
    topics = [found.topics[number] for number in index]
    return topics, found.fields["queue_id"].tolist(), found.timestamp.tolist()


def as_messages(topic, queue_id, timestamp):
    given = GivenMessages(topic, queue_id, [b"x"] * ROWS, None, None, None, timestamp)
    found = check_messages(SETTINGS, given, 7)
    names, index = found.queues.topics, np.broadcast_to(found.queues.topic_index, ROWS)
    topics = [names.value(int(number)).decode() for number in index]
    ids = np.broadcast_to(found.queues.queue_ids, ROWS)
    return topics, ids.tolist(), np.broadcast_to(found.times, ROWS).tolist()


def outcome(check, *columns):
    """Return what a check makes of columns, or what it says of them."""
    try:
        return check(*columns)
    except InvalidRequestError as error:
        return error.detail, (error.field or "").replace("entries[", "messages[")


@settings(max_examples=25, deadline=None)
@given(
    st.lists(TEXTS, min_size=ROWS, max_size=ROWS) | st.just("one"),
    st.lists(NUMBERS, min_size=ROWS, max_size=ROWS) | st.integers(-1, 1),
    st.lists(NUMBERS, min_size=ROWS, max_size=ROWS) | st.integers(-1, 1),
)
def test_same_columns_give_the_same_values_and_refusals(topics, ids, times):
    asked = [(each, 0, 1) for each in columns_of(topics)]
    asked += [("t", each, 1) for each in columns_of(ids)]
    asked += [("t", 0, each) for each in columns_of(times)]
    for columns in asked:
        assert outcome(as_entries, *columns) == outcome(as_messages, *columns)


@pytest.mark.parametrize(
    ("times", "expected"),
    [
        (pa.array([-1, 0, 1], pa.timestamp("us")), [-1, 0, 0]),  # rounded down, as a clock counts
        (pa.array([-1, 0, 1_999_999], pa.timestamp("ns")), [-1, 0, 1]),
        (pa.array([1, 2, 3], pa.timestamp("s")), [1000, 2000, 3000]),
        (np.array([1, 2, 3], "datetime64[s]"), [1000, 2000, 3000]),
    ],
    ids=str,
)
def test_times_of_any_unit_are_milliseconds_of_messages_and_entries(times, expected):
    assert as_messages("t", 0, times)[2] == expected == as_entries("t", 0, times)[2]
    given = GivenMessages("t", 0, [b"x"] * ROWS, None, None, None, None, times)
    assert check_deliver_at(given, ROWS).tolist() == expected


@pytest.mark.parametrize(
    ("times", "row"),
    [
        (np.array([1, "NaT", 3], "datetime64[ms]"), 1),
        (pa.array([1, 2, 1 << 62], pa.timestamp("s")), 2),  # beyond int64 milliseconds
    ],
    ids=str,
)
def test_what_is_no_time_is_refused_by_its_row(times, row):
    for name, check in (("messages", as_messages), ("entries", as_entries)):
        with pytest.raises(InvalidRequestError) as told:
            check("t", 0, times)
        assert told.value.field == f"{name}[{row}].timestamp"


def test_dictionary_may_hold_what_no_row_names():
    topics = pa.DictionaryArray.from_arrays(
        pa.array([2, 1, 2], pa.int8()), pa.array(["", "a", "b", None])
    )
    assert as_messages(topics, 0, 1)[0] == ["b", "a", "b"] == as_entries(topics, 0, 1)[0]
