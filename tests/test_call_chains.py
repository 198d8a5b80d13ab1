"""Calls enter no modules but those of their kept chain (call_chains.txt), which only gets shorter.

After a change that shortens a chain, or renames a module: `python -m tools.call_chains --write`.
"""

from __future__ import annotations

import pytest

from tools.call_chains import read_chains, spelled_chains, spellings

MOST_MODULES, MOST_ENTRIES = 406, 766  # of all chains together: lower them, never raise them
CALLER_OF_PUT = {"index"}
CALLER_OF_APPEND = {
    "message_log", "checked_appends", "single_appends",
    "value_rules", "disk_errors", "clock",
    "levels", "log_components",  # the level, and that the log is written
    "active_journal", "queue_table",  # where the kernel's tables are
    "committer", "commit",  # the commit that it joins
}  # fmt: skip
WRITTEN_TIME = {"times", "direct_puts"}
COMMIT = {
    "writer", "reader", "tables", "scan",
    "local_file",
}  # fmt: skip


@pytest.fixture(scope="module")
def chains():
    return spelled_chains()


def test_no_call_enters_a_module_beyond_its_kept_chain(chains):
    kept = read_chains()
    assert chains.keys() == kept.keys(), "run `python -m tools.call_chains --write`"
    longer = {
        name: sorted({*chain.modules} - {*kept[name].modules}) or f"{chain.entries} entries"
        for name, chain in chains.items()
        if not {*chain.modules} <= {*kept[name].modules} or chain.entries > kept[name].entries
    }
    assert longer == {}


def test_the_kept_chains_only_get_shorter():
    kept = read_chains().values()
    assert sum(len(chain.modules) for chain in kept) <= MOST_MODULES
    assert sum(chain.entries for chain in kept) <= MOST_ENTRIES


def test_puts_end_in_the_kernels_caller(chains):
    puts = {name: {*chain.modules} for name, chain in chains.items() if name.startswith("put")}
    assert len(puts) >= 10
    for name, modules in puts.items():
        allowed = CALLER_OF_PUT | (WRITTEN_TIME if name.endswith("time") else set())
        assert modules <= allowed, name


def test_appends_end_in_the_kernels_caller_and_its_commit(chains):
    appends = {
        name: {*chain.modules} for name, chain in chains.items() if name.startswith("append")
    }
    assert len(appends) >= 15
    for name, modules in appends.items():
        if "get(" not in name and "deliver_at" not in name:
            assert modules <= CALLER_OF_APPEND | COMMIT | {"times"}, name


def test_the_documents_show_every_verb():
    assert {each.verb for each in spellings().values()} >= {"put", "append", "query", "get"}
