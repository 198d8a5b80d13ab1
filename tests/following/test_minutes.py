"""The minutes of docs/follow.md that need a broker, run against the one of these tests."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

from tests.docs.code_blocks import Block, lines_not_in, run_block

PAGE = Path(__file__).parents[2] / "docs" / "follow.md"
_NEEDS = re.compile(
    r"<!-- not executed: needs a broker of (?P<kind>\w+), [^\n]*-->\n"
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
    "redis": [("127.0.0.1:6379", "{host}:{port}"), ('"127.0.0.1", 6379', '"{host}", {port}')],
}
MINUTES = {
    kind: [
        Block(f"{kind}-{n}", found["language"], found["code"], found["shown"] or "")
        for n, found in enumerate(_NEEDS.finditer(PAGE.read_text()))
        if found["kind"] == kind
    ]
    for kind in WRITTEN
}


@pytest.mark.heavy
@pytest.mark.parametrize("kind", MINUTES)
def test_minute_finds_the_message(kind, request, tmp_path):
    server = request.getfixturevalue(kind)
    (tmp_path / ".venv").symlink_to(Path(sys.executable).parents[1])
    host, _, port = server.address.partition(":")
    here = {each: form.format(host=host, port=port) for each, form in WRITTEN[kind]}
    assert MINUTES[kind]
    for block in MINUTES[kind]:
        output = run_block(block, tmp_path, here)
        assert lines_not_in(block.shown, output) == [], output
