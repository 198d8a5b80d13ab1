"""Arrow bodies of a few kilobytes that stand for terabytes: refused before anything unfolds."""

from __future__ import annotations

import io

import pyarrow as pa
import pytest

from tests.app.conftest import Caller, assert_problem, open_small_files
from tests.app.http.hostile.cases import ARROW
from tests.app.small_index import SmallIndex
from tierdex.log_service.message_log import MessageLog

ROWS = 50_000
LONG = "x" * 1_000_000


def stream(table):
    sink = io.BytesIO()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return sink.getvalue()


def views():
    """Return a column whose rows all look at one long string."""
    one = pa.array([LONG], pa.string_view())
    _, view, data = one.buffers()
    return pa.Array.from_buffers(
        pa.string_view(), ROWS, [None, pa.py_buffer(view.to_pybytes()[:16] * ROWS), data]
    )


def list_views():
    offsets = pa.array([0] * ROWS, pa.int32())
    sizes = pa.array([1] * ROWS, pa.int32())
    return pa.ListViewArray.from_arrays(offsets, sizes, pa.array([LONG]))


BOMBS = {
    "dictionary": lambda: pa.DictionaryArray.from_arrays(
        pa.array([0] * ROWS, pa.int32()), pa.array([LONG])
    ),
    "views": views,
    "list_views": list_views,
    "runs": lambda: pa.RunEndEncodedArray.from_arrays(
        pa.array([ROWS], pa.int32()), pa.array([LONG])
    ),
    "struct": lambda: pa.StructArray.from_arrays([views()], ["a"]),
    "list_of_views": lambda: pa.ListArray.from_arrays(
        pa.array(range(ROWS + 1), pa.int32()), views()
    ),
}


@pytest.fixture(scope="module")
def caller(tmp_path_factory):
    with open_small_files(tmp_path_factory.mktemp("bombs")) as index:
        yield Caller(index)


@pytest.fixture(scope="module")
def log_caller(tmp_path_factory):
    folder = tmp_path_factory.mktemp("bombed_log")
    with MessageLog.open(folder, node="n", journal_bytes=16 << 20) as log:
        yield Caller(SmallIndex(), log=log)


def nulls_by_list():
    """Return lists of two billion nulls each, in a few bytes."""
    ends = pa.array([0, *[(1 << 31) - 1] * ROWS], pa.int32())
    return pa.ListArray.from_arrays(ends, pa.nulls((1 << 31) - 1))


MESSAGE_BOMBS = {
    **BOMBS,
    "nulls": nulls_by_list,
    "empty_structs": lambda: pa.array([[{}] * 9] * ROWS, pa.list_(pa.struct([]))),
}


@pytest.mark.parametrize("name", ["keys", "message_id", "headers"])
@pytest.mark.parametrize("bomb", MESSAGE_BOMBS.values(), ids=MESSAGE_BOMBS)
def test_column_of_messages_that_would_unfold_is_refused(log_caller, bomb, name):
    columns = {"topic": ["a"] * ROWS, "queue_id": [0] * ROWS, "body": ["x"] * ROWS, name: bomb()}
    response = log_caller.post(
        "/v1/messages", content=stream(pa.table(columns)), headers={"content-type": ARROW}
    )
    assert_problem(response, 400, "invalid-request", f"messages.{name}")


@pytest.mark.parametrize("name", ["key", "message_id"])
@pytest.mark.parametrize("bomb", BOMBS.values(), ids=BOMBS)
def test_column_that_would_unfold_is_refused(caller, bomb, name):
    columns = {"topic": pa.array(["orders"] * ROWS), name: bomb()}
    for path, field in (("/v1/entries", "entries"), ("/v1/entries:batchGet", "lookups")):
        response = caller.post(
            path, content=stream(pa.table(columns)), headers={"content-type": ARROW}
        )
        assert_problem(response, 400, "invalid-request", f"{field}.{name}")


@pytest.mark.parametrize("bomb", BOMBS.values(), ids=BOMBS)
def test_topic_column_that_would_unfold_is_refused(caller, bomb):
    table = pa.table({"topic": bomb(), "key": pa.array(["k"] * ROWS)})
    response = caller.post(
        "/v1/entries:batchGet", content=stream(table), headers={"content-type": ARROW}
    )
    assert response.status_code == 400


def test_as_many_topics_as_rows_cost_no_more_than_the_rows(caller):
    """Once each, not once a row each: a million rows must not become a billion steps."""
    count = 50_000
    columns = {
        "topic": pa.array([f"t{n % 4000}" for n in range(count)]),
        "key": pa.array([f"k{n}" for n in range(count)]),
    }
    response = caller.post(
        "/v1/entries:batchGet", content=stream(pa.table(columns)), headers={"content-type": ARROW}
    )
    assert response.status_code == 200
    columns["topic"] = pa.array([f"t{n}" for n in range(count - 1)] + ["\x00"])
    response = caller.post(
        "/v1/entries:batchGet", content=stream(pa.table(columns)), headers={"content-type": ARROW}
    )
    assert_problem(response, 400, "invalid-request", f"lookups[{count - 1}].topic")
