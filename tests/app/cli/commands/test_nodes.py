"""`tierdex nodes`, and how old `tierdex query` says that a "not found" is."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

from tests.app.cli.test_commands import ONE
from tierdex.app.cli.commands.serve import Served


def rows(found):
    return json.loads(found.stdout)["nodes"]


def test_nodes_are_listed_with_how_far_they_have_published(run, put):
    put(*ONE, "--set", "node=a")
    (row,) = rows(run("nodes", "--store", "data/store", "-o", "json"))
    assert (row["node"], row["standing"], row["holds_unpublished"]) == ("a", "closed", True)
    assert row["published_through"] > 0
    assert abs(row["skew_s"]) < 60
    assert "closed" in run("nodes", "--store", "data/store").stdout
    run("compact", "--roll")
    (row,) = rows(run("nodes", "--store", "data/store", "-o", "json"))
    assert row["holds_unpublished"] is False


def test_not_found_says_of_when_and_which_nodes_were_not_asked(run, put):
    put(*ONE, "--set", "node=a")
    ask = ("query", "-t", "orders", "-k", "ORDER-1", "--store", "data/store")
    found = run(*ask, code=3)
    assert "everything acknowledged before 20" in found.stderr
    assert "not asked: node a (closed)" in found.stderr
    late = run(*ask, "--fresh-within", "0.001", code=4)
    assert "node:a" in late.stderr
    beside = run("query", "-t", "orders", "-k", "none", code=3)  # the folder is read, too
    assert "not asked" not in beside.stderr


def test_what_a_lost_folder_never_published_is_given_up_by_name(run, put):
    put(*ONE, "--set", "node=a")
    store = ("--store", "data/store")
    shutil.move("data/store", "store")
    shutil.rmtree("data")
    store = ("--store", "store")
    ask = ("query", "-t", "orders", "-k", "ORDER-1", *store)
    assert "not asked: node a" in run(*ask, code=3).stderr
    run("nodes", "retire", "none", *store, code=1)
    assert "a" in run("nodes", "retire", "a", *store).stderr
    assert "not asked" not in run(*ask, code=3).stderr
    (row,) = rows(run("nodes", *store, "-o", "json"))
    assert row["standing"] == "retired"
    assert "a" in run("nodes", "retire", "a", *store).stderr  # again: nothing changes


def test_a_reader_is_served_beside_a_node_whose_manifest_is_damaged(run, put, capsys):
    for node in "ab":
        put(*ONE, "--set", f"node={node}", "--data", node, "--store", "store")
        run("compact", "--roll", "--set", f"node={node}", "--data", node, "--store", "store")
    for path in Path("store/nodes/b/manifest").iterdir():
        path.write_bytes(b"damaged")
    index, log = Served(None, "store", {"read_only": True, "background": False}).open()
    with index:
        answer = index.query("orders", key="ORDER-1")
    assert ([entry.node for entry in answer.entries], log) == (["a"], None)
    assert [name for name, _ in answer.missing] == ["node:b"]
    assert "no message log is served: node:b" in capsys.readouterr().err


def test_watermark_shows_the_levels_here_and_what_a_node_has_published(run, put):
    put(*ONE, "--set", "node=a")
    run("compact", "--roll")
    ask = ("watermark", "-t", "orders", "-o", "json")
    here = json.loads(run(*ask, "--data", "data").stdout)
    assert here["os"] == here["remote"] > 0
    published = json.loads(run(*ask, "--store", "data/store", "--node", "a").stdout)
    assert published == {"topic": "orders", "queue_id": 0, "published": here["remote"]}
    assert "no node b" in run(*ask, "--store", "data/store", "--node", "b", code=1).stderr
