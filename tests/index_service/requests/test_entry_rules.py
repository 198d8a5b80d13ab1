"""Every path accepts the same entries: single puts, batches, direct puts, HTTP; and stores the same bytes."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from pydantic import TypeAdapter, ValidationError

from tests.index_service.ingest.put_model import rows_of
from tests.index_service.ingest.test_direct_puts import Puts
from tests.indexfile.chained_files import FILESYSTEM
from tests.torture.quick_folder import quick_folder
from tierdex.app.http.schemas.models import EntryToPut
from tierdex.errors import InvalidRequestError
from tierdex.index_service.ingest.direct_puts import DirectPuts
from tierdex.index_service.requests.put import PutChecker
from tierdex.index_service.requests.put_columns import make_entry_columns
from tierdex.indexfile.chained.file import ChainedFile
from tierdex.indexfile.schema import MESSAGE_RANGES, MESSAGE_SCHEMA
from tierdex.settings import Settings

MOST_BYTES = 8
SETTINGS = Settings(max_key_bytes=MOST_BYTES)
CHECKER = PutChecker(MOST_BYTES, max_items=1000)
HTTP_ENTRY = TypeAdapter(EntryToPut)
INT64_MAX = (1 << 63) - 1
GOOD = {
    "keys": ["k"], "message_id": None, "timestamp": 4, "offset": 2, "size": 3, "queue_id": 1,
}  # fmt: skip

EDGES = sorted(
    {bound + step for ends in MESSAGE_RANGES.values() for bound in ends for step in (-1, 0, 1)}
    | {-INT64_MAX - 2, -INT64_MAX - 1, INT64_MAX, INT64_MAX + 1}
)
NO_INTEGERS = [True, False, 1.0, "1", b"1", [1]]
numbers = st.sampled_from([*EDGES, *NO_INTEGERS]) | st.integers(-INT64_MAX - 1, INT64_MAX)
LONGEST = ["k" * MOST_BYTES, "ä" * (MOST_BYTES // 2), "😀😀"]
# No bytes: in a list column Arrow takes UTF-8 for text, in a single put they are refused.
texts = st.sampled_from(
    [*LONGEST, *(text + "k" for text in LONGEST), "", "k", "\0", "\ud800", 5]
) | st.text(max_size=4)
entries = st.fixed_dictionaries(
    {
        "keys": st.none() | st.just([]) | st.lists(texts, min_size=1, max_size=1),
        "message_id": st.none() | texts,
        "timestamp": numbers,
        "offset": numbers,
        "size": numbers,
        "queue_id": numbers,
    }
)


def single(entry):
    """Return the entry as `put` takes it, or None."""
    try:
        return CHECKER.check("t", **entry)
    except InvalidRequestError:
        return None


def batch(entry):
    """Return the one row of a batch of one as `single` returns it, or None."""
    keys = entry["keys"] or [None]
    location = {name: [entry[name]] for name in ("offset", "size", "queue_id")}
    try:
        columns = make_entry_columns(
            SETTINGS,
            MESSAGE_SCHEMA,
            topic="t",
            keys=keys,
            message_id=[entry["message_id"]],
            timestamp=[entry["timestamp"]],
            fields=location,
        )
    except InvalidRequestError:
        return None
    key, message_id = (
        None if column is None else column.to_pylist()[0]
        for column in (columns.keys, columns.message_ids)
    )
    values = [columns.timestamp[0], *(columns.fields[name][0] for name in location)]
    return ("t", () if key is None else (key,), message_id, *map(int, values))


def over_http(entry):
    """Say whether the model of HTTP takes the entry's numbers."""
    try:
        HTTP_ENTRY.validate_python({"topic": "t", **entry, "keys": ["k"], "message_id": None})
    except ValidationError:
        return False
    return True


@pytest.fixture(scope="module")
def gathering():
    direct = DirectPuts(16, 1000, MOST_BYTES)
    assert direct.learn("t")
    return direct


def gathered(direct, entry):
    """Return the rows that the kernel makes of an entry as bytes, or None when it leaves it to `put`."""
    seed, number = direct.topics["t"]
    keys, message_id, *rest = (entry[name] for name in GOOD)
    if not direct.kernels["received"](direct.arguments, keys, message_id, seed, number, *rest):
        assert direct.gathered() is None
        return None
    rows = direct.gathered()
    direct.drop(rows.row_count)
    return rows.rows.tobytes()


def edge_cases(test):
    """Give every edge of every field to `test`, whatever else is drawn."""
    for name, edges in (
        *((name, [*EDGES, *NO_INTEGERS]) for name in ("timestamp", "offset", "size", "queue_id")),
        ("keys", [None, [], *([text] for text in (*LONGEST, *(t + "k" for t in LONGEST), ""))]),
        ("message_id", [*LONGEST, *(text + "k" for text in LONGEST), ""]),
    ):
        for edge in edges:
            test = example({**GOOD, name: edge})(test)
    return test


@settings(max_examples=300, deadline=None)
@edge_cases
@given(entries)
def test_every_path_accepts_the_same_entries(gathering, entry):
    checked = single(entry)
    assert batch(entry) == checked
    rows = gathered(gathering, entry)
    # A kernel refuses nothing for good: what it takes is what `put` would have made of it, and it takes
    # every valid entry whose values are plain.
    is_left = checked is None or isinstance(entry["timestamp"], str)  # a time that is written
    assert rows == (None if is_left else rows_of(checked))
    if all(type(entry[name]) is int for name in ("timestamp", "offset", "size", "queue_id")):
        names = {**entry, "keys": ["k"], "message_id": None}
        assert over_http(entry) == (single(names) is not None)


@pytest.mark.parametrize("name", sorted(MESSAGE_RANGES))
@pytest.mark.parametrize("kind", [np.int64, np.uint64])
def test_numpy_numbers_are_taken_by_put_batches_and_kernels(gathering, name, kind):
    highest = kind(MESSAGE_RANGES[name][1])
    entry = {**GOOD, name: highest}
    assert single(entry) == single({**GOOD, name: int(highest)})
    assert gathered(gathering, entry) == rows_of(single(entry))


valid = st.fixed_dictionaries(
    {
        "keys": st.none() | st.lists(st.sampled_from([*LONGEST, "a", "b"]), max_size=3),
        "message_id": st.none() | st.sampled_from(["m", *LONGEST]),
        "timestamp": st.sampled_from([-INT64_MAX - 1, -1, 0, 7, INT64_MAX]),
        **{
            name: st.sampled_from(ends) | st.integers(*ends)
            for name, ends in MESSAGE_RANGES.items()
        },
    }
).filter(lambda entry: entry["keys"] or entry["message_id"])


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(st.tuples(st.sampled_from(["t", "u", "v"]), valid), min_size=1, max_size=25))
def test_direct_puts_leave_the_bytes_of_the_general_path(puts):
    """Head insertion, record, statistics and what readers see, whichever way a message went."""
    with quick_folder() as folder:
        slow, quick = Puts(Path(folder) / "slow"), Puts(Path(folder) / "quick")
        for topic, entry in puts:
            slow.write(slow.slowly(topic, **entry))
        went = [quick.put(topic, **entry) for topic, entry in puts]
        known = [topic in [t for t, _ in puts[:n]] for n, (topic, _) in enumerate(puts)]
        assert went == known, "the kernel takes every legal entry of a topic that the file has"
        assert quick.file.snapshot == slow.file.snapshot
        assert quick.file.end_offsets() == slow.file.end_offsets()
        assert quick.file.check() == []
        expected = quick.file.snapshot, quick.file.end_offsets()
        slow.file.close()
        quick.file.close()
        paths = [Path(folder) / name for name in ("quick", "slow")]
        assert paths[0].read_bytes() == paths[1].read_bytes()
        with closing(ChainedFile.recover(FILESYSTEM, paths[0])) as recovered:
            assert (recovered.snapshot, recovered.end_offsets()) == expected
