"""Target 7: lookups in published files on radosgw, beside a bare boto3 GET of the same size."""

from __future__ import annotations

import os
import statistics
import time
from typing import TYPE_CHECKING, Any
from unittest import mock
from urllib.parse import quote

from benchmarks.bench import newest_file
from benchmarks.data import TOPIC, Block
from benchmarks.measure import Row, take_turns
from tools.radosgw import running_radosgw

if TYPE_CHECKING:
    from pathlib import Path

    from benchmarks.bench import Bench

BUCKET = "bench"
ACCESS_KEY, SECRET_KEY = "benchaccess", "benchsecret123"
ENVIRONMENT = {
    "AWS_ACCESS_KEY_ID": ACCESS_KEY, "AWS_SECRET_ACCESS_KEY": SECRET_KEY, "AWS_CONFIG_FILE": os.devnull,
    "AWS_SHARED_CREDENTIALS_FILE": os.devnull, "AWS_EC2_METADATA_DISABLED": "true",
    "AWS_REGION": "us-east-1",
}  # fmt: skip
LOOKUPS = 60  # a round, each with a key of its own


def run(bench: Bench) -> None:
    with (
        running_radosgw(ACCESS_KEY, SECRET_KEY) as port,
        mock.patch.dict(os.environ, ENVIRONMENT),
        bench.folder() as folder,
    ):
        if port is None:
            bench.skip(
                "the uploaded tier", "radosgw cannot be installed here: this needs Debian and root"
            )
        else:
            measure(bench, folder, f"http://127.0.0.1:{port}")


def measure(bench: Bench, folder: Path, endpoint: str) -> None:
    import boto3
    from botocore.config import Config

    client = boto3.client(
        "s3", endpoint_url=endpoint, region_name="us-east-1",
        config=Config(s3={"addressing_style": "path"}),
    )  # fmt: skip
    client.create_bucket(Bucket=BUCKET)
    url = f"s3://{BUCKET}/index?endpoint_url={quote(endpoint, safe='')}"
    index = bench.open_index(folder / "data", store=url, page_cache_bytes=0, merge_below_items=0)
    for number in range(2):  # two files: a key is in one of them
        index.put_batch(**Block(number, bench.size(1_000_000)).entries)
        index.roll()
    index.run_compaction()
    texts = Block(0, bench.size(1_000_000)).texts
    reader: Any = newest_file(index).reader
    plans = [index.query(TOPIC, key=key, explain=True).explain for key in texts[:200]]
    most = max(plan.requests for plan in plans if plan is not None)
    most_bytes = max(plan.bytes for plan in plans if plan is not None and not plan.sidecar_requests)
    absent = Block(0, 200, letter="Z").texts
    none = [index.query(TOPIC, key=key, explain=True).explain for key in absent]
    requests = statistics.mean(plan.requests for plan in none if plan is not None)
    bench.add(
        Row(
            7,
            "range GETs of a lookup, key in one of two files (most)",
            "",
            most,
            ratio=most,
            limit=1.0,
        )
    )
    bench.add(
        Row(
            7,
            "range GETs of a lookup, key in no file (mean)",
            "",
            requests,
            ratio=requests,
            limit=0.0,
        )
    )
    bench.add(
        Row(7, "bytes of such a GET (most)", "byte", most_bytes, ratio=most_bytes, limit=8192.0)
    )
    row = reader.row

    def ours(number: int) -> float:
        times = []
        for key in texts[1000 + number * LOOKUPS :][:LOOKUPS]:
            begin = time.perf_counter()
            assert index.query(TOPIC, key=key).entries
            times.append(time.perf_counter() - begin)
        return statistics.median(times) * 1e3

    def bare(number: int) -> float:
        times = []
        object_key = "index/" + row.object_key.removeprefix("index/")
        for place in range(LOOKUPS):
            position = 4096 + (number * LOOKUPS + place) * 4096 % (row.bytes - 8192)
            begin = time.perf_counter()
            answer = client.get_object(
                Bucket=BUCKET, Key=object_key, Range=f"bytes={position}-{position + 4095}"
            )
            assert len(answer["Body"].read()) == 4096
            times.append(time.perf_counter() - begin)
        return statistics.median(times) * 1e3

    def lean(number: int) -> float:
        times = []
        for place in range(LOOKUPS):
            position = 4096 + (number * LOOKUPS + place) * 4096 % (row.bytes - 8192)
            begin = time.perf_counter()
            reader._store.get(row.object_key, position, 4096)
            times.append(time.perf_counter() - begin)
        return statistics.median(times) * 1e3

    timings = take_turns({"ours": ours, "boto3": bare, "the store's own GET": lean})
    mine, theirs = timings.median("ours"), timings.median("boto3")
    name = "lookup of a published key on radosgw, p50"
    bench.add(Row(7, name, "ms", mine, "bare boto3 GET", theirs, mine / theirs, 1.5))
    own = timings.median("the store's own GET")
    bench.add(
        Row(
            7, "one GET of 4 KiB through the store's seam, p50", "ms", own, "bare boto3 GET", theirs
        )
    )
    bench.plots["uploaded"] = {name: timings.median(name) for name in timings.rounds}
    index.close()
