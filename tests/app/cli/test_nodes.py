"""`tierdex nodes`, and how old `tierdex query` says that a "not found" is."""

from __future__ import annotations

import json
import shutil

from tests.app.cli.test_commands import ONE


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


def test_watermark_shows_the_levels_here_and_what_a_node_has_published(run, put):
    put(*ONE, "--set", "node=a")
    run("compact", "--roll")
    ask = ("watermark", "-t", "orders", "-o", "json")
    here = json.loads(run(*ask, "--data", "data").stdout)
    assert here["os"] == here["remote"] > 0
    published = json.loads(run(*ask, "--store", "data/store", "--node", "a").stdout)
    assert published == {"topic": "orders", "queue_id": 0, "published": here["remote"]}
    assert "no node b" in run(*ask, "--store", "data/store", "--node", "b", code=1).stderr
