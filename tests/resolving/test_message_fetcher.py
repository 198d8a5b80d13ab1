"""What goes wrong with one message is that message's, whatever was raised: the others are shown."""

from __future__ import annotations

import pytest

from tierdex.errors import UnavailableError
from tierdex.following.records import Record
from tierdex.index_service.answer import Answer, Entry
from tierdex.resolving.message_fetcher import MessageFetcher
from tierdex.resolving.resolver import Found
from tierdex.resolving.rule import Names


class Failing:
    """Has every message but those at odd offsets, for which it raises."""

    name = "a log"

    def __init__(self, error, fails_at_places=False):
        self._error = error
        self._fails_at_places = fails_at_places

    def where(self, entry):
        if self._fails_at_places:
            raise self._error
        return f"place {entry.offset}"

    def fetch(self, entry, wanted):
        if entry.offset % 2:
            raise self._error
        return Found(Record(0, entry.offset, 0, None, b"K"), Names(["K"], []))

    def close(self):
        pass


def messages_of(resolver, count=3):
    entries = [Entry("t", 0, n, 1, 5, "f", "uploaded", "n") for n in range(count)]
    with MessageFetcher(None, others=resolver) as messages:
        found = messages.with_messages(Answer(entries), key="K")
    return [entry.message for entry in found.entries]


@pytest.mark.parametrize(
    "error",
    [OverflowError("4111"), RecursionError("4111"), MemoryError("4111"), KeyError("4111"), OSError("4111")],
)  # fmt: skip
def test_any_error_of_one_message_is_its_reason_alone(error):
    before, failed, after = messages_of(Failing(error))
    assert before.outcome == after.outcome == "shown"
    assert failed.outcome == "unavailable"
    assert "4111" not in repr(failed)  # an error's text may hold what the message holds


def test_error_at_the_place_of_a_message_hides_no_message():
    messages = messages_of(Failing(ValueError("x"), fails_at_places=True))
    assert [each.where for each in messages] == ["a log"] * 3
    assert messages[1].outcome == "unavailable"


def test_log_that_says_why_is_quoted():
    assert (
        messages_of(Failing(UnavailableError("down for an hour")))[1].reason == "down for an hour"
    )


ROW = Entry(
    "t", None, None, None, 5, "f", "uploaded", "n", {"row_group": 0, "row": 1}, "/x.parquet"
)
LINE = Entry("t", 3, 10, 5, 5, "f", "uploaded", "n", {"offset": 10, "size": 5}, "/x.jsonl")


class NoLog:
    """A message log that must not be asked."""

    def read(self, *_asked, **_how):
        raise AssertionError


@pytest.mark.parametrize("entry", [ROW, LINE], ids=["row", "line"])
@pytest.mark.parametrize("kind", ["own", "folder", "file"])
def test_resolver_of_another_kind_says_no_in_words(tmp_path, entry, kind):
    (tmp_path / "logs").mkdir()
    (tmp_path / "m.log").write_text("x" * 100)
    source = {"folder": f"folder:{tmp_path}/logs", "file": f"file:{tmp_path}/m.log"}.get(kind)
    if source:
        (tmp_path / "resolvers.toml").write_text(f"[topics.t]\nsource='{source}'\nkeys=['$.id']\n")
    with MessageFetcher(tmp_path, log=NoLog() if kind == "own" else None) as messages:
        for _ in range(2):
            (found,) = messages.with_messages(Answer([entry]), key="K").entries
            assert found.message.outcome == "unresolved"
            assert entry.source in found.message.reason
            assert "give files:FOLDER" in found.message.reason
