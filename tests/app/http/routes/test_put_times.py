"""Times of puts over HTTP: decision 0080 holds for each form of a body."""

from __future__ import annotations

from datetime import UTC, datetime

import orjson
import pyarrow as pa
import pytest

from tests.app.conftest import ENTRY, assert_problem
from tests.app.http.test_service import ARROW, NDJSON, arrow_stream


@pytest.mark.parametrize("kind", ["json", "ndjson", "arrow"])
def test_a_number_that_looks_like_seconds_is_refused_and_a_written_time_is_not(caller, kind):
    def send(*times):
        entries = [{**ENTRY, "timestamp": time} for time in times]
        if kind == "json":
            return caller.post("/v1/entries", json={"entries": entries})
        if kind == "ndjson":
            lines = b"\n".join(map(orjson.dumps, entries))
            return caller.post("/v1/entries", content=lines, headers=NDJSON)
        stream = arrow_stream(pa.Table.from_pylist(entries))
        return caller.post("/v1/entries", content=stream, headers=ARROW)

    response = send(1_700_000_000_000, 1_700_000_000)
    assert_problem(response, 400, "invalid-request", "entries[1].timestamp")
    assert "1700000000000" in response.json()["detail"]
    february = datetime(1970, 2, 1, tzinfo=UTC)
    assert send(february if kind == "arrow" else "1970-02-01T00:00:00Z").status_code == 200
    (entry,) = caller.get("/v1/entries?topic=orders&key=ORDER-1").json()["entries"]
    assert entry["timestamp"] == 2_678_400_000
