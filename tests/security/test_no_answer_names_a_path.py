"""No answer tells a caller below scope `admin` where this machine keeps its files."""

from __future__ import annotations

import shutil

import pytest

from tests.app.conftest import Caller, open_small_files
from tierdex.app.http.problems import problem_document
from tierdex.app.keys import KeyFile
from tierdex.app.rights import Scope
from tierdex.clock import ManualClock
from tierdex.errors import (
    BacklogFullError,
    ClosedError,
    CorruptFileError,
    IncompleteAnswerError,
    reason_of,
    without_places,
)
from tierdex.filesystem import LocalFileSystem
from tierdex.ids import SeededIds
from tierdex.index_service.answer import Missing

PATH = "/srv/my data/log/sealed/7"


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (f"{PATH} was closed", "7 was closed"),
        (f"[Errno 2] No such file: '{PATH}'", "[Errno 2] No such file: '7'"),
        ("file:///srv/store/nodes/a: gone", "a: gone"),
        ("s3://bucket/prefix/nodes/a", "a"),
        ("/tmp/a/b/next.ready: a chain", "next.ready: a chain"),
        ("see /v1/messages, or 3/4 of keys / IDs", "see /v1/messages, or 3/4 of keys / IDs"),
        ("http://127.0.0.1:80/x did not answer", "http://127.0.0.1:80/x did not answer"),
        ("nodes/a/manifest/0001: bad", "nodes/a/manifest/0001: bad"),
    ],
)
def test_a_path_is_told_by_its_last_name(text, told):
    assert without_places(text) == told


def test_a_reason_names_no_path():
    assert reason_of(CorruptFileError(PATH, "checksum of block 3 differs")) == (
        "checksum of block 3 differs"
    )
    assert PATH not in reason_of(OSError(2, "No such file", PATH))
    assert reason_of(KeyError()) == "KeyError"


@pytest.mark.parametrize(
    "error",
    [
        ClosedError(f"{PATH} was closed"),
        BacklogFullError(f"no space left in {PATH}"),
        IncompleteAnswerError(f"{PATH}: x", missing=[Missing(f"a {PATH}", f"cannot read {PATH}")]),
    ],
)
def test_problems_name_paths_to_admins_alone(error):
    assert "/srv" not in str(problem_document(error, "r"))
    assert "/srv" in problem_document(error, "r", tells_places=True)["detail"]


@pytest.fixture
def reader(tmp_path):
    """Return (get, index): a service whose caller may read, over files of a path that tells itself."""
    index = open_small_files(tmp_path / "data")
    keys = KeyFile(LocalFileSystem(), tmp_path / "keys.json", clock=ManualClock(), ids=SeededIds(1))
    text = keys.create(Scope.READ, name="reader")
    caller = Caller(index, keys=keys)
    yield lambda path, **query: caller.get(path, key=text, params=query), index
    index.close()


def test_an_answer_about_a_damaged_file_names_no_path(reader, tmp_path):
    get, index = reader
    index.put(topic="orders", key="A", queue_id=0, offset=1, size=1, timestamp=1)
    index.roll()
    index.run_compaction()
    for folder in ("store", "uploaded"):
        shutil.rmtree(tmp_path / "data" / folder)
    for path in ("/v1/entries", "/v1/journeys", "/v1/topics", "/v1/histogram"):
        for on_error in ("partial", "fail"):
            query = {"topic": "orders", "key": "A", "on_error": on_error}
            wanted = {"/v1/topics": {"as_of": True}, "/v1/journeys": {"key": "A"}}.get(path, query)
            assert str(tmp_path) not in get(path, **wanted).text
