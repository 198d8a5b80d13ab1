"""The minutes and recipes of the docs that need a broker, run against the one of these tests."""

from __future__ import annotations

import re
import shlex
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from tests.docs.code_blocks import Block, lines_not_in, run_block
from tools.maven import fetch_jars

DOCS = Path(__file__).parents[2] / "docs"
_NEEDS = re.compile(
    r"<!-- not executed: needs a broker of (?P<kind>[\w ]+), [^\n]*-->\n"
    r"```(?P<language>\w+)\n(?P<code>.*?)^```$(\n```text\n(?P<shown>.*?)^```$)?",
    re.MULTILINE | re.DOTALL,
)
WRITTEN = {
    "kafka": [("127.0.0.1:9092", "{host}:{port}")],
    "nats": [("127.0.0.1:4222", "{host}:{port}")],
    "rabbitmq": [
        ("127.0.0.1:5552", "{host}:{port}"),
        ('"127.0.0.1", 5552', '"{host}", {port}'),
    ],
    "rocketmq": [("127.0.0.1:9876", "{host}:{port}"), ("mqadmin ", "{admin} ")],
    "redis": [("127.0.0.1:6379", "{host}:{port}"), ('"127.0.0.1", 6379', '"{host}", {port}')],
}


def minutes(page, kind):
    return [
        Block(f"{kind}-{n}", found["language"], found["code"], found["shown"] or "")
        for n, found in enumerate(_NEEDS.finditer((DOCS / page).read_text()))
        if found["kind"] == kind
    ]


PAGES = {"rocketmq": "rocketmq.md"}
MINUTES = {kind: minutes(PAGES.get(kind, "follow.md"), kind) for kind in WRITTEN}
RECIPE = minutes("spark.md", "kafka on Spark")


def run_minute(blocks, server, written, folder):
    (folder / ".venv").symlink_to(Path(sys.executable).parents[1])
    host, _, port = server.address.partition(":")
    admin = shlex.join(server.admin) if hasattr(server, "admin") else ""
    here = {each: form.format(host=host, port=port, admin=admin) for each, form in written}
    assert blocks
    for block in blocks:
        output = run_block(block, folder, here)
        assert lines_not_in(block.shown, output) == [], output


@pytest.mark.heavy
@pytest.mark.parametrize("kind", MINUTES)
def test_minute_finds_the_message(kind, request, tmp_path):
    run_minute(MINUTES[kind], request.getfixturevalue(kind), WRITTEN[kind], tmp_path)


@pytest.mark.heavy
def test_spark_indexes_what_its_own_source_reads_from_kafka(kafka, tmp_path):
    kafka.need_real()
    jars = fetch_jars(
        Path(__file__).parents[2] / "tools" / "kafka" / "spark-pom.xml", "spark-kafka"
    )
    package = '"spark.jars.packages": "org.apache.spark:spark-sql-kafka-0-10_2.13:4.2.0"'
    local = f'"spark.jars": "{",".join(map(str, sorted(jars.glob("*.jar"))))}"'
    assert package in RECIPE[0].code
    blocks = [MINUTES["kafka"][0], *RECIPE]
    blocks = [replace(each, code=each.code.replace('"payments"', '"paid"')) for each in blocks]
    blocks[-1] = replace(blocks[-1], shown=blocks[-1].shown.replace("payments", "paid"))
    here = [*WRITTEN["kafka"], (package, local), ('"/tmp/tierdex/', f'"{tmp_path}/')]
    run_minute(blocks, kafka, here, tmp_path)
