"""A fork of a process that has an index: the child is refused, the parent loses nothing.

The forks happen in processes of their own, so that no thread of the tests is ever forked.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys

from tests.forking import COUNT
from tests.patience import PATIENCE_S
from tests.servers.tierdex_server import running_tierdex
from tests.torture.fork_server import server
from tierdex import Index


def run(scenario, place):
    named = (scenario, str(place), dict(os.environ))
    with server().fork("tests.forking:run_scenario", *named) as child:
        told = json.loads(child.told())
        assert child.wait() == 0
    return told


def test_what_parent_and_child_put_is_the_parents_alone(tmp_path):
    seen = run("both_put", tmp_path / "data")
    child = seen["child"]
    assert set(child["calls"].values()) == {"ForkedError"}, child["calls"]
    assert child["refused"] == COUNT
    assert child["health"] == ["closed"]
    assert child["close"] is None
    assert seen["before"] == {"parent": COUNT, "level": "disk"}
    assert seen["after"] == {"parent": COUNT, "child": 0}
    assert seen["items"] == COUNT  # nothing that waited at the fork was written twice
    assert not any(seen["broken"])


def test_a_child_opens_its_own(tmp_path):
    seen = run("child_opens_its_own", tmp_path / "data")
    expected = {"found": COUNT, "in_use": "FolderInUseError", "inherited": "ForkedError"}
    assert seen == {"child": expected, "other": expected, "exit": 0, "after": COUNT}


def test_a_child_that_outlives_its_parent_does_not_hold_the_folder(tmp_path):
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.forking", "child_outlives", str(tmp_path / "data")],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
    )
    try:
        assert process.wait(PATIENCE_S) == 0  # the child waits for the end of our pipe
        with Index.open(tmp_path / "data") as index:
            assert len(index.query("t", key="parent1").entries) == 1
    finally:
        process.stdin.close()


def test_the_end_of_a_child_gives_nothing_of_its_parents_back(tmp_path):
    seen = run("holder_stays", tmp_path / "data")
    assert seen["in_use"] == "FolderInUseError"
    assert f"pid {seen['pid']} " in seen["holder"]


def test_forks_at_any_moment_harm_neither_side(tmp_path):
    seen = run("many_forks", tmp_path / "data")
    assert seen["children"] == [["ForkedError"]] * 8
    assert seen["found"] == seen["done"]
    assert min(seen["done"]) > 0


def test_a_client_is_shared_with_children(tmp_path):
    with running_tierdex(tmp_path / "data") as service:
        assert run("client_forks", service.url) == {"child": 200, "parent": 200}


def test_a_store_of_the_parent_is_refused_in_the_child(moto_server):
    seen = run("store_forks", moto_server.make_url())
    assert seen == {"child": {"inherited": "ForkedError", "own": "1"}, "parent": "1"}
