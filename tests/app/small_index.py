"""A small index in memory with the verbs of `Index`, checked by the index service's own rules.

Knobs: `missing` is what every answer lacks, `error` is raised by the next call,
`not_ready` is what `health` returns.
"""

from __future__ import annotations

import threading
from dataclasses import replace
from functools import partial

import numpy as np

from tierdex.errors import IncompleteAnswerError, NotFoundError
from tierdex.index_service.answer import Answer, Entry, Explain, KnownTopics, Missing
from tierdex.index_service.file_info import NodeInfo, TopicInfo
from tierdex.index_service.forget.receipt import Receipt
from tierdex.index_service.query.time_counts import in_buckets
from tierdex.index_service.readers.page_cache import CacheUse
from tierdex.index_service.requests.entry_rules import check_location, check_topic
from tierdex.index_service.requests.put import PutChecker
from tierdex.index_service.requests.put_columns import make_entry_columns
from tierdex.index_service.requests.query import QueryValues, make_request, make_requests
from tierdex.index_service.tables.live_entries import check_snapshot
from tierdex.indexfile.schema import MESSAGE_SCHEMA
from tierdex.settings import Settings
from tierdex.storage_layer.metered import NOTHING_ASKED
from tierdex.value_rules import one_or_many

FILE = {
    "file_id": "00000001700000000000-local",
    "state": "unsealed",
    "begin": 1_700_000_000_000,
    "min_time": 0,
    "max_time": 0,
    "item_count": 0,
    "slot_count": 8,
    "bytes": 0,
    "node": "local",
}


class SmallIndex:
    def __init__(self, settings: Settings | None = None) -> None:
        self.settings = settings or Settings()
        self.items: list[tuple[int, str, Entry]] = []
        self.missing: list[Missing] = []
        self.error: Exception | None = None
        self.not_ready: list = []
        self.flushed: list[str] = []
        self.is_closed = False
        self._lock = threading.Lock()

    def _maybe_fail(self) -> None:
        if self.error is not None:
            error, self.error = self.error, None
            raise error

    def put(self, *, key=None, keys=None, message_id=None, durability="os", **location):
        self._maybe_fail()
        checker = PutChecker(self.settings.max_key_bytes, self.settings.item_capacity)
        put = checker.check(keys=one_or_many(key, keys), message_id=message_id, **location)
        place = put.topic, put.queue_id, put.offset, put.size, put.timestamp
        entry = Entry(*place, FILE["file_id"], "unsealed", "local")
        with self._lock:
            self.items += [(0, each, entry) for each in put.keys]
            self.items += [] if message_id is None else [(1, message_id, entry)]
        return durability

    def begin_put(self, **entry):
        return partial(self.put, **entry)

    def put_batch(
        self, *, topic, keys=None, message_id=None, timestamp, durability="os", **location
    ):
        self._maybe_fail()
        columns = make_entry_columns(
            self.settings,
            MESSAGE_SCHEMA,
            topic=topic,
            keys=keys,
            message_id=message_id,
            timestamp=timestamp,
            fields=location,
        )
        rows = []
        for row in range(columns.count):
            number = 0 if columns.topic_index is None else columns.topic_index[row]
            entry = Entry(
                columns.topics[number],
                *(int(columns.fields[name][row]) for name in ("queue_id", "offset", "size")),
                int(columns.timestamp[row]),
                FILE["file_id"],
                "unsealed",
                "local",
            )
            for kind, column in ((0, columns.keys), (1, columns.message_ids)):
                if column is not None and column[row].is_valid:
                    rows.append((kind, column[row].as_py(), entry))
        with self._lock:
            self.items += rows
        return durability

    def flush(self, durability="os"):
        self._maybe_fail()
        self.flushed.append(durability)
        return durability

    def query(
        self,
        topic=None,
        *,
        key=None,
        message_id=None,
        begin=None,
        end=None,
        max_count=64,
        cursor=None,
        explain=False,
        on_error="partial",
        fresh_within=None,
        id_time=None,
        proof=False,
        snapshot=None,
    ):
        self._maybe_fail()
        values = QueryValues(topic, key, message_id, begin, end, max_count, cursor)
        request = make_request(self.settings, values)
        if check_snapshot(snapshot) is not None:
            raise NotFoundError(f"topic {topic!r} follows no table: it has no snapshots")
        return self._answer(request, explain, on_error)

    def _answer(self, request, explain=False, on_error="partial"):
        if self.missing and on_error == "fail":
            raise IncompleteAnswerError("one file could not be asked", missing=self.missing)
        found = [
            entry
            for kind, text, entry in reversed(self.items)
            if kind == request.kind
            and text == request.text
            and request.topic in (None, entry.topic)
            and request.begin <= entry.timestamp <= request.end
        ]
        return Answer(
            list(dict.fromkeys(found))[: request.max_count],
            complete=not self.missing,
            missing=self.missing,
            as_of=1_700_000_000_000,
            explain=Explain(files_considered=1) if explain else None,
        )

    def query_batch(self, lookups, *, on_error="partial", fresh_within=None):
        self._maybe_fail()
        requests = make_requests(self.settings, lookups)
        return [self._answer(request, on_error=on_error) for request in requests]

    def histogram(
        self,
        topic=None,
        *,
        buckets=60,
        max_count=None,
        on_error="partial",
        fresh_within=None,
        **asked,
    ):
        answer = self.query(topic, max_count=10_000, on_error=on_error, **asked)
        times = np.array([entry.timestamp for entry in answer.entries], np.int64)
        return replace(
            in_buckets(times, buckets),
            complete=answer.complete,
            missing=answer.missing,
            as_of=answer.as_of,
        )

    def begin_query(self, topic=None, **values):
        return partial(self.query, topic, **values)  # nothing is told at once

    def unpublished(self, question):
        assert question.column_names == ["hash"]
        return b""

    def query_batch_local(self, lookups, *, max_count=1, fresh_within=None):
        return None

    def query_batch_arrow(self, lookups, *, max_count=1, on_error="fail", fresh_within=None):
        import pyarrow as pa

        rows = [{**row, "max_count": max_count} for row in lookups.to_pylist()]
        answers = self.query_batch(rows, on_error=on_error)
        return pa.Table.from_pylist(
            [
                {"lookup": number, **entry.to_dict()}
                for number, answer in enumerate(answers)
                for entry in answer.entries
            ],
            schema=pa.schema([
                ("lookup", pa.int64()), ("topic", pa.string()), ("queue_id", pa.int32()),
                ("offset", pa.int64()), ("size", pa.uint32()), ("timestamp", pa.int64()),
                ("file_id", pa.string()), ("state", pa.string()), ("node", pa.string()),
            ]),
        )  # fmt: skip

    def topics(self):
        self._maybe_fail()
        return sorted({entry.topic for _, _, entry in self.items})

    def known_topics(self, *, fresh_within=None):
        return KnownTopics(self.topics(), 1_700_000_000_000, ())

    def topic_infos(self):
        found = {}
        for _, _, entry in self.items:
            info = found.get(entry.topic, TopicInfo(entry.topic, files=1))
            times = [t for t in (info.min_time, info.max_time, entry.timestamp) if t is not None]
            found[entry.topic] = info._replace(
                item_count=info.item_count + 1, min_time=min(times), max_time=max(times)
            )
        return [found[topic] for topic in sorted(found)]

    def watermark(self, topic, queue_id, *, node=None):
        check_topic(topic, "topic")
        check_location("queue_id", queue_id)
        ends = [e.offset + e.size for _, _, e in self.items if e[:2] == (topic, queue_id)]
        if node is not None:
            return {"published": None}
        return {"os": max(ends, default=None), "disk": None, "remote": None}

    def files(self):
        self._maybe_fail()
        return [{**FILE, "item_count": len(self.items)}] if self.items else []

    def nodes(self):
        return [NodeInfo("a", 3, len(self.files()))]

    def clock_skew(self):
        return None

    def store_requests(self):
        return {"lookups": {"get": 1}}

    def resources(self):
        use = {
            "pages": CacheUse(0, 0, 0, 1),
            "sidecar_fetches": 0,
            "lookup_stages": {},
            "peers": {},
        }
        return {"store": NOTHING_ASKED, "disk": None, "manifest_age_s": 0.0, **use}

    def file(self, file_id):
        for file in self.files():
            if file["file_id"] == file_id:
                return file
        raise NotFoundError(f"there is no file {file_id}")

    def verify_file(self, file_id):
        self.file(file_id)
        return []

    def compaction_status(self):
        return {"backlog": {"files": 0, "bytes": 0}, "running": None, "totals": {"compacted": 0}}

    def run_compaction(self):
        self._maybe_fail()
        return 0

    def roll(self):
        return bool(self.items)

    def tables(self):
        return []

    def refresh(self):
        self._maybe_fail()

    def expire(self, *, before, dry_run=False):
        files = self.files()
        if not dry_run:
            self.items.clear()
        return files

    def forgettings(self):
        return []

    def forget(self, lookups, *, now=False, only=None, wait=0.0, dry_run=False):
        for lookup in lookups:
            values = QueryValues(
                *map(lookup.get, ("topic", "key", "message_id")), None, None, 1, None
            )
            make_request(self.settings, values)
        return Receipt(forgetting="f1", time_ms=0, is_complete=not dry_run)

    def resume_forgetting(self, forgetting, *, wait=0.0):
        if forgetting != "f1":
            raise NotFoundError(f"there is no request to forget {forgetting}")
        return Receipt(forgetting="f1", time_ms=0, is_complete=True)

    def health(self):
        return self.not_ready

    def close(self):
        self.is_closed = True
