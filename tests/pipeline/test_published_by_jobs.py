"""What a Spark job published is seen through every API after a refresh."""

from __future__ import annotations

from tests.client.test_remote import AppTransport
from tests.pipeline.in_process import batch_of, make_writer
from tierdex import Client, Index
from tierdex.app.http.application import create_app
from tierdex.app.http.server_settings import ServerSettings
from tierdex.pipeline import index_table


def test_index_and_client_see_new_files_and_the_place_of_indexed_rows(spark, store_url, tmp_path):
    log = tmp_path / "log.jsonl"
    log.write_text('{"id": "o-1", "at": 5}\n{"id": "o-2", "at": 6}\n')
    Index.open(tmp_path / "data", store=store_url, background=False).close()  # makes the store
    with Index.open(None, store=store_url) as index:
        app = create_app(index, ServerSettings(log_requests=False))
        with Client("http://localhost", transport=AppTransport(app)) as client:
            assert client.query("orders", key="k").entries == []
            writer = make_writer(store_url)
            writer.commit([writer.write(iter([batch_of(["k"], 7)]))])
            index_table(
                spark, str(log), store_url, key="id", topic="log", timestamp="at",
                schema="id string, at bigint",
            )  # fmt: skip
            index.refresh()
            for door in (index, client):
                assert [entry.offset for entry in door.query("orders", key="k").entries] == [70]
                (entry,) = door.query("log", key="o-2").entries
                assert entry.source == str(log)
                assert entry.location == {"source": str(log), "offset": 23, "size": 22}
