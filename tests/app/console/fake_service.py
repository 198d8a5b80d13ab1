"""A service with made-up answers behind the real console: the states that small real data never shows.

Thousands of files, an incomplete answer, a hostile key, int64 at its limits, a running compaction; an
answer that comes when the test says so (`Gate`), and a key that is asked for from now on (`state.api_key`).
"""

from __future__ import annotations

import contextlib
import random
import threading
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
from fastapi import FastAPI, Header
from fastapi.responses import HTMLResponse, JSONResponse, Response

from tierdex.app.console import console_router
from tierdex.index_service.query.time_counts import in_buckets

if TYPE_CHECKING:
    from collections.abc import Iterator

DAY = 86_400_000
YEAR_2013 = 1_356_998_400_000
HOSTILE = '<img src=x onerror="window.hacked=1">'
INT64_MAX = 9_223_372_036_854_775_807


class Gate:
    """Where the answers of entries and files wait while it is shut."""

    def __init__(self) -> None:
        self._is_open = threading.Event()
        self._is_open.set()

    @contextlib.contextmanager
    def shut(self) -> Iterator[None]:
        self._is_open.clear()
        try:
            yield
        finally:
            self._is_open.set()

    def go_through(self) -> None:
        self._is_open.wait()


def make_files(count: int, seed: int = 7) -> list[dict[str, Any]]:
    """Return `count` files over a year, mostly uploaded, with a few late entries."""
    chance = random.Random(seed)
    files = []
    width = 365 * DAY // count
    for number in range(count):
        begin = YEAR_2013 + number * width
        age = count - number
        state = (
            "unsealed"
            if age == 1
            else "sealed"
            if age <= 3
            else "compacted"
            if age <= 7
            else "uploaded"
        )
        late = chance.randrange(40 * DAY) if chance.random() < 0.06 else chance.randrange(DAY // 2)
        node = "local" if chance.random() < 0.8 else "spark"
        items = chance.randrange(800_000, 1_000_000) if age > 1 else 211_004
        files.append(
            {
                "file_id": f"{begin:020d}-{node}",
                "state": state,
                "begin": begin,
                "min_time": begin - late,
                "max_time": begin + width + chance.randrange(DAY // 4),
                "item_count": items,
                "slot_count": 5_000_000,
                "bytes": items * (40 if state in ("unsealed", "sealed") else 11),
                "node": node,
            }
        )
    return files


def make_explain(files: list[dict[str, Any]], *, missing: bool) -> dict[str, Any]:
    """Return a plan over `files`: a few read, some excluded by filter, the rest by time."""
    lines = []
    start = 0.4
    for index, file in enumerate(reversed(files)):
        read = index in (2, 9, 17)
        by_filter = not read and index < 40
        outcome = "read" if read else "pruned_by_filter" if by_filter else "pruned_by_time"
        if missing and index == 17:
            outcome = "missing"
        requests = 1 if outcome == "read" and file["state"] == "uploaded" else 0
        ms = 12.5 + index if requests else 0.3 if read else 0.02 if by_filter else 0.0
        lines.append(
            {
                "file_id": file["file_id"], "state": file["state"], "node": file["node"],
                "outcome": outcome, "start_ms": round(start, 3), "ms": ms, "requests": requests,
                "bytes": 8192 * requests, "items": 512 * requests, "entries": 21 if read else 0,
                "false_positive": index == 9,
            }
        )  # fmt: skip
        start += ms * (0.4 if read else 1)
    counts = {name: sum(line["outcome"] == name for line in lines) for name in
              ("read", "pruned_by_time", "pruned_by_filter")}  # fmt: skip
    return {
        "files_considered": len(lines),
        "files_pruned_by_time": counts["pruned_by_time"],
        "files_pruned_by_filter": counts["pruned_by_filter"],
        "files_read": counts["read"],
        "requests": 2, "bytes": 16384, "false_positives": 1, "cost_usd": 0.0000008,
        "manifest_requests": 1, "sidecar_requests": 0, "milliseconds": round(start + 0.8, 2),
        "stages": [{"name": "validate", "ms": 0.05}, {"name": "plan", "ms": 0.4},
                   {"name": "local_files", "ms": 0.9}, {"name": "published_files", "ms": round(start, 2)},
                   {"name": "answer", "ms": 0.2}],
        "files": lines,
    }  # fmt: skip


def make_entry(index: int, files: list[dict[str, Any]], **fields: Any) -> dict[str, Any]:
    file = files[-(1 + index // 12)]
    return {
        "topic": "UA", "queue_id": index % 3, "offset": 31_866_001 + 97 * index, "size": 97,
        "timestamp": YEAR_2013 + (11 - index // 8) * DAY + index * 7_411_000, "file_id": file["file_id"],
        "state": file["state"], "node": file["node"], **fields,
    }  # fmt: skip


def fake_app(
    file_count: int = 365, api_key: str | None = None, gate: Gate | None = None
) -> FastAPI:
    """Return an application that answers every lookup; `api_key` makes it ask for that key."""
    gate = gate or Gate()
    app = FastAPI()
    app.include_router(console_router())
    files = make_files(file_count)
    app.state.done = 0
    app.state.api_key = api_key
    app.state.scope = "admin"

    def refused(authorization: str | None) -> Response | None:
        if app.state.api_key in (None, (authorization or "").removeprefix("Bearer ")):
            return None
        problem = {"title": "Unauthorized", "status": 401, "detail": "send a valid API key"}
        return JSONResponse(problem, 401, media_type="application/problem+json")

    @app.get("/version")
    def version() -> Any:
        return {"version": "0.1.0"}

    @app.get("/v1/access")
    def access(authorization: str | None = Header(None)) -> Any:
        told = {
            "kind": "key", "name": "5eed", "rights": [app.state.scope], "log": False, "messages": False,
            "admin": app.state.scope == "admin",
        }  # fmt: skip
        return refused(authorization) or told

    @app.get("/v1/topics")
    def topics(details: bool = False, authorization: str | None = Header(None)) -> Any:
        names = ["AA", "DL", "UA", HOSTILE]
        infos = [
            {"topic": name, "item_count": 1000 * n, "uncounted": n % 2, "files": 3,
             "min_time": YEAR_2013, "max_time": YEAR_2013 + n * DAY}
            for n, name in enumerate(names)
        ]  # fmt: skip
        return refused(authorization) or {"topics": names, "details": infos if details else None}

    @app.get("/v1/admin/nodes")
    def nodes(authorization: str | None = Header(None)) -> Any:
        rows = [
            {"node": name, "number": 4, "files": 12, "problem": problem, "standing": standing,
             "published_through": YEAR_2013, "lag_s": lag, "skew_s": 0.25, "url": None,
             "holds_unpublished": standing == "silent"}
            for name, problem, standing, lag in (
                ("one", None, "live", 3.0), ("two", f"the manifest is damaged {HOSTILE}", "silent", 7300.0)
            )
        ]  # fmt: skip
        return refused(authorization) or {"nodes": rows, "clock_skew_s": -1.5}

    @app.get("/readyz")
    def readyz() -> Any:
        problem = {"title": "Unavailable", "status": 503, "detail": "fenced: another owner"}
        return JSONResponse(problem, 503, media_type="application/problem+json")

    @app.get("/v1/entries")
    def entries(
        topic: str = "", key: str = "", message_id: str = "", begin: str = "",
        end: str = "", max_count: int = 64, cursor: str = "", explain: bool = False,
        authorization: str | None = Header(None),
    ) -> Any:  # fmt: skip
        if refusal := refused(authorization):
            return refusal
        if key == "too-long":
            problem = {
                "title": "Bad request",
                "status": 400,
                "detail": "key: longer than 4096 bytes",
                "field": "key",
            }
            return JSONResponse(problem, 400, media_type="application/problem+json")
        if key == "behind-a-proxy":
            return HTMLResponse("<h1>Please log in</h1>")
        gate.go_through()
        is_missing = key == "partial" or (key == "partial-first" and not cursor)
        missing = [
            {"file": f"{YEAR_2013:020d}-local", "reason": f"checksum of page 3 differs {HOSTILE}"}
        ]
        first = int(cursor or 0)
        found = [
            make_entry(n, files, topic=topic or "UA")
            for n in range(first, min(first + max_count, 90))
        ]
        if key == "limits":
            found = [make_entry(0, files, offset=INT64_MAX, timestamp=INT64_MAX, topic=HOSTILE)]
        if key == "absent":
            found = []
        answer = {
            "entries": found,
            "complete": not is_missing,
            "missing": missing if is_missing else [],
            "next_cursor": str(first + max_count) if len(found) == max_count else None,
            "as_of": YEAR_2013 + 364 * DAY,
        }
        if key == "absent" and topic.strip() not in ("AA", "DL", "UA"):
            answer["hints"] = [
                {"kind": "no_topic", "text": "no such topic", "topic": topic},
                {"kind": "near_topic", "text": "there is UA", "topic": "UA"},
            ]
        if explain:
            answer["explain"] = make_explain(files, missing=is_missing)
        return answer

    @app.get("/v1/histogram")
    def histogram(
        key: str = "", buckets: int = 60, authorization: str | None = Header(None)
    ) -> Any:
        if key == "uncounted":
            problem = {"title": "Unavailable", "status": 503, "detail": "the store does not answer"}
            return JSONResponse(problem, 503, media_type="application/problem+json")
        times = [make_entry(number, files)["timestamp"] for number in range(90)]
        if key == "hot":
            times = [YEAR_2013 - 20 * DAY + number * DAY for number in range(40)] * 25
        found = in_buckets(np.array(times, np.int64), buckets)
        told = replace(found, more=key == "hot").to_dict()
        return refused(authorization) or told

    @app.get("/v1/admin/files")
    def admin_files(authorization: str | None = Header(None)) -> Any:
        gate.go_through()
        return refused(authorization) or {"files": files}

    @app.get("/v1/admin/files/{file_id}")
    def admin_file(file_id: str) -> Any:
        file = next(each for each in files if each["file_id"] == file_id)
        return {**file, "published_at": file["begin"] + 2 * DAY}

    @app.get("/v1/admin/compaction")
    def compaction(authorization: str | None = Header(None)) -> Any:
        if refusal := refused(authorization):
            return refusal
        app.state.done += 1_250_000
        return {
            "backlog_files": 3, "backlog_bytes": 2_411_724_800,
            "log": {"jobs": [{"job": "merge", "file_id": "7-log", "done_items": 1, "total_items": 4}],
                    "last_done_ms": YEAR_2013 + 366 * DAY, "totals": {"merged": 12},
                    "last_error": {"at_ms": YEAR_2013, "message": "of the log"}},
            "running": {"job": "compact", "file_id": files[-2]["file_id"], "stage": "writing pages",
                        "done_items": app.state.done % 20_000_000, "total_items": 20_000_000,
                        "done_bytes": app.state.done * 11, "rate_items_s": 6_204_113.2},
            "last_done_ms": YEAR_2013 + 364 * DAY,
            "last_error": {"at_ms": YEAR_2013 + 365 * DAY, "file": files[-3]["file_id"],
                           "message": f"the store does not answer {HOSTILE}", "attempts": 4},
            "totals": {"compacted_files": 361, "compacted_items": 325_001_442,
                       "uploaded_bytes": 3_902_445_021,
                       "merged_files": 24, "expired_files": 0},
            "oldest_unpublished_age_s": 5421.3,
        }  # fmt: skip

    return app
