"""Assistants' lookups, asked by the protocol's own client: over stdin and stdout, and at a service's /mcp."""

from __future__ import annotations

import json
import sys
from contextlib import asynccontextmanager

import anyio
import httpx2
import pytest
from mcp import ClientSession, StdioServerParameters
from mcp.client.stdio import stdio_client
from mcp.client.streamable_http import streamable_http_client

from tests.app.conftest import Caller
from tierdex import Index, MessageLog
from tierdex.app.keys import KeyFile
from tierdex.app.mcp.tools import told
from tierdex.app.rights import Grant, Scope
from tierdex.clock import SystemClock
from tierdex.filesystem import LocalFileSystem
from tierdex.ids import SystemIds

TOOLS = ["explain", "find_message", "journey", "read_queue", "topics"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A message log with two orders."""
    folder = tmp_path_factory.mktemp("data")
    with MessageLog.open(folder, background=False, journal_bytes=1 << 24) as log:
        for number in range(3):
            log.append(topic="orders", queue_id=0, body=f'{{"n": {number}}}', key=f"A-{number % 2}")
    return folder


@asynccontextmanager
async def by_stdio(*arguments):
    program = [sys.executable, "-c", "from tierdex.app.cli import main; main()"]
    command = StdioServerParameters(command=program[0], args=[*program[1:], "mcp", *arguments])
    async with stdio_client(command) as streams, ClientSession(*streams) as session:
        await session.initialize()
        yield session


def ask(opened, tool, **arguments):
    """Call one tool; return what it gave."""

    async def call():
        async with opened as session:
            assert sorted(each.name for each in (await session.list_tools()).tools) == TOOLS
            return await session.call_tool(tool, arguments)

    return anyio.run(call)


def given(result):
    assert not result.is_error, result.content
    return json.loads(result.content[0].text)


def test_key_is_found_with_its_messages_in_a_data_folder(folder):
    found = given(ask(by_stdio("--data", str(folder)), "find_message", topic="orders", key="A-0"))
    assert found["says"].startswith(
        "COMPLETE. 2 entries were found for the key A-0 in topic orders."
    )
    assert [entry["offset"] for entry in found["entries"]] == [2, 0]
    assert '"n": 2' in json.dumps(found["entries"][0]["message"]).replace('\\"', '"')


def test_absent_key_is_said_to_be_absent_and_a_wrong_time_is_an_error(folder):
    async def call():
        async with by_stdio("--data", str(folder)) as session:
            asked = {"topic": "orders", "key": "A-7"}
            absent = await session.call_tool("find_message", asked)
            year = {"begin": "2001-01-01", "end": "2001-12-31"}
            ranged = await session.call_tool("find_message", {**asked, "key": "A-0", **year})
            wrong = await session.call_tool("find_message", {**asked, "begin": "yesterweek"})
            read = await session.call_tool(
                "read_queue", {"topic": "orders", "queue_id": 0, "offset": 1}
            )
            topics = await session.call_tool("topics", {})
            explained = await session.call_tool("explain", {"topic": "orders", "key": "A-1"})
            journey = await session.call_tool("journey", {"key": "A-1"})
            return absent, ranged, wrong, read, topics, explained, journey

    absent, ranged, wrong, *others = anyio.run(call)
    assert "Nothing was ever put for the key A-7 in topic orders." in given(absent)["says"]
    assert "topic orders with a time from 2001-01-01 to 2001-12-31." in given(ranged)["says"]
    assert wrong.is_error
    assert "begin" in wrong.content[0].text
    read, topics, explained, journey = map(given, others)
    assert read["says"].startswith(
        "2 messages were read of queue 0 of topic orders, from offset 1 on"
    )
    assert [each["topic"] for each in topics["details"]] == ["orders"]
    assert explained["explain"]["files"]
    assert [entry["offset"] for entry in journey["entries"]] == [1]


def test_service_answers_at_mcp_with_the_rights_of_the_request_s_key(folder, tmp_path):
    files, path = LocalFileSystem(), tmp_path / "keys.json"
    keys = KeyFile(files, path, clock=SystemClock(), ids=SystemIds())
    reader, other = (keys.create(Grant(Scope.READ, topic)) for topic in ("orders", "parcels"))
    with (
        MessageLog.open(folder, read_only=True) as log,
        Index.open(folder, read_only=True) as index,
    ):
        app = Caller(index, keys, log=log, mcp=True).app

        def client_of(**headers):
            transport = httpx2.ASGITransport(app=app)
            return httpx2.AsyncClient(transport=transport, headers=headers, timeout=60)

        @asynccontextmanager
        async def by_http(key):
            async with (
                client_of(authorization=f"Bearer {key}") as client,
                streamable_http_client("http://localhost/mcp", http_client=client) as streams,
                ClientSession(*streams[:2]) as session,
            ):
                await session.initialize()
                yield session

        async def call():
            asked = {"topic": "orders", "key": "A-0", "show": False}
            async with app.router.lifespan_context(app):
                async with by_http(reader) as session:
                    found = await session.call_tool("find_message", asked)
                    shown = await session.call_tool("find_message", {**asked, "show": True})
                async with by_http(other) as session:
                    refused = await session.call_tool("find_message", asked)
                async with client_of() as client:
                    keyless = await client.post("http://localhost/mcp", json={})
            return found, shown, refused, keyless

        found, shown, refused, keyless = anyio.run(call)
    assert len(given(found)["entries"]) == 2
    assert shown.is_error  # a key that may read entries may not read messages
    assert refused.is_error
    assert "orders" in refused.content[0].text
    assert keyless.status_code == 401


def test_incomplete_answer_says_that_nothing_follows_from_it():
    answer = {"entries": [], "complete": False, "missing": [{"file_id": "17-a"}], "as_of": 0}
    said = told(answer, "the key k in topic t")
    assert said.startswith(
        "INCOMPLETE. No entry was found for the key k in topic t, which does NOT mean"
    )
    assert "17-a" in said


def test_page_without_entries_is_not_the_end():
    answer = {"entries": [], "complete": True, "missing": [], "next_cursor": "c", "as_of": 0}
    said = told(answer, "the key k in topic t")
    assert said.startswith(
        "COMPLETE. 0 entries were found for the key k in topic t. There are more"
    )
