"""A Delta table in a bucket: followed and shown by ranges, with the requests that it takes counted."""

from __future__ import annotations

import pyarrow as pa
import pytest

import tierdex
from tests.following.tables.answers import SMALL, faults, index_once, keys_of
from tierdex.resolving.message_fetcher import MessageFetcher
from tierdex.resolving.show_settings import ShowSettings

deltalake = pytest.importorskip("deltalake")


class Lake:
    """A table in a folder, and its copy in a bucket."""

    def __init__(self, server, folder):
        self.folder, self._server = folder, server
        self.bucket = server.make_bucket()
        self.source = f"delta:s3://{self.bucket}/lake/orders"
        self.options = {"endpoint_url": server.endpoint_url, "region": "us-east-1"}

    def upload(self):
        for path in sorted(self.folder.rglob("*"), key=lambda each: "_delta_log" in each.parts):
            if path.is_file():
                key = f"lake/orders/{path.relative_to(self.folder)}"
                self._server.client.put_object(Bucket=self.bucket, Key=key, Body=path.read_bytes())

    def remove(self):
        listed = self._server.client.list_objects_v2(Bucket=self.bucket, Prefix="lake/orders/day")
        for each in listed["Contents"]:
            self._server.client.delete_object(Bucket=self.bucket, Key=each["Key"])


def rows(begin, end):
    numbers = range(begin, end)
    return pa.table(
        {
            "id": list(numbers),
            "note": [f"note {n}" * 50 for n in numbers],
            "day": ["x"] * len(numbers),
        }
    )


def test_table_in_a_bucket_is_followed_and_its_rows_are_shown(s3_server, tmp_path):
    lake = Lake(s3_server, tmp_path / "orders")
    deltalake.write_deltalake(lake.folder, rows(0, 3000), partition_by=["day"])
    lake.upload()
    with tierdex.Index.open(tmp_path / "data", **SMALL) as index:
        index_once(index, lake.source, "t", "id", options=lake.options)
        deltalake.DeltaTable(lake.folder).delete("id = 7")
        deltalake.write_deltalake(
            lake.folder, rows(3000, 3010), mode="append", partition_by=["day"]
        )
        lake.upload()
        index_once(index, lake.source, "t", "id", options=lake.options)
        some = {str(n): 1 for n in (0, 8, 2999, 3009)}
        assert (
            faults(index, "t", keys_of(pa.table({"id": list(map(int, some))}), "id"), ["7"]) == {}
        )
        with MessageFetcher(tmp_path / "data", ShowSettings()) as messages:
            for number, most in ((2999, 6), (8, 2), (5, 2)):  # then the footer is known
                answer = index.query("t", key=str(number), explain=True)
                told = messages.with_messages(answer, key=str(number), message_id=None)
                (shown,) = [entry.message for entry in told.entries]
                assert shown.outcome == "shown", shown
                assert f"note {number}note" in shown.text
                assert told.explain.message_requests <= most
            lake.remove()
            gone = messages.with_messages(index.query("t", key="9"), key="9", message_id=None)
            assert [entry.message.outcome for entry in gone.entries] == ["gone"]
