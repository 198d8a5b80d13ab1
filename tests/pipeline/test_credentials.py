"""An S3 store from executors: credentials come from options and are in no plan, note or message."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.pipeline.conftest import append, key_rows, read
from tests.servers.s3_server import ACCESS_KEY, SECRET_KEY
from tierdex.pipeline import last_scan, lookup, merge, verify
from tierdex.pipeline.jobs.job_store import StoreLink
from tierdex.pipeline.jobs.scan_report import session_folder

CREDENTIALS = {"awsAccessKeyId": ACCESS_KEY, "awsSecretAccessKey": SECRET_KEY}


def test_every_job_works_on_s3_with_credentials_from_options(spark, moto_server, capfd):
    url = moto_server.make_url("spark")
    rows = key_rows(spark, ["a", "b", "c"])
    append(rows, url, **CREDENTIALS)
    append(key_rows(spark, ["a"], first=10), url, **CREDENTIALS)
    scan = read(spark, url, **CREDENTIALS)
    assert scan.count() == 4
    found = lookup(spark, url, rows.select("topic", "key"), options=CREDENTIALS)
    assert found.count() == 4
    assert all(row.is_sound for row in verify(spark, url, options=CREDENTIALS).collect())
    assert merge(spark, url, options=CREDENTIALS).files_merged == 2
    assert last_scan().store == url

    plans = [frame._jdf.queryExecution().toString() for frame in (scan, found)]
    notes = [path.read_text() for path in Path(session_folder()).iterdir()]
    said = capfd.readouterr()
    for text in (*plans, *notes, said.out, said.err):
        assert SECRET_KEY not in text
        assert ACCESS_KEY not in text


def test_errors_do_not_repeat_credentials(spark, moto_server):
    url = moto_server.make_url("spark")
    append(key_rows(spark, ["a"]), url, **CREDENTIALS)
    with pytest.raises(Exception, match="there is no such option") as refused:
        read(spark, url, colour="red", **CREDENTIALS).count()
    assert SECRET_KEY not in str(refused.value)
    link = StoreLink.of(url, CREDENTIALS)
    assert SECRET_KEY not in repr(link)
    assert ACCESS_KEY not in repr(link)


def test_environment_of_the_executors_is_enough(spark, aws_environment, tmp_path):
    assert os.environ["AWS_ACCESS_KEY_ID"] == ACCESS_KEY
    assert StoreLink.of("s3://bucket/prefix?endpoint_url=http://127.0.0.1:1").credentials is None
