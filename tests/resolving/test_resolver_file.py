"""`resolvers.toml`: what it takes, and that what is wrong is named without telling a value."""

from __future__ import annotations

import pytest

from tierdex.clock import ManualClock
from tierdex.errors import InvalidRequestError
from tierdex.filesystem import LocalFileSystem
from tierdex.index_service.answer import Answer, Entry
from tierdex.resolving.message_fetcher import MessageFetcher
from tierdex.resolving.resolver_file import read_resolver_file
from tierdex.seams import Seams

FILES = LocalFileSystem()


def read(tmp_path, text):
    path = tmp_path / "resolvers.toml"
    path.write_text(text)
    return read_resolver_file(FILES, path)


def shown(messages, entry, key):
    return messages.with_messages(Answer([entry]), key=key).entries[0].message


def test_masks_of_a_topic_are_added_to_those_of_all(tmp_path):
    file = read(tmp_path, '[default]\nmask=["$.a"]\n[topics.t]\nmask=["$.b"]\ncompression="gzip"\n')
    assert file.showing("t").mask == ["$.a", "$.b"]
    assert file.showing("t").compression == "gzip"
    assert file.showing("other").mask == ["$.a"]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[topics.t]\npassword='hunter2'", "topics.t.password"),
        ("[topics.t]\nmask=['hunter2 {key}']", "mask"),
        ("[topics.t]\nkeys=['{hunter2']", "keys"),
        ("[topics.t]\ncompression='hunter2'", "topics.t.compression"),
        ("[topics.t]\nsource=7", "topics.t.source"),
        ("[topics.t", "TOML"),
    ],
)
def test_what_cannot_be_is_named(tmp_path, text, said):
    with pytest.raises(InvalidRequestError, match=said):
        read(tmp_path, text)


@pytest.mark.parametrize("source", ["hunter2", "file:", "KAFKA://x/y"])
def test_source_that_cannot_be_is_refused_at_the_start(tmp_path, source):
    (tmp_path / "resolvers.toml").write_text(f"[topics.t]\nsource='{source}'\n")
    with pytest.raises(InvalidRequestError, match=r"topics\.t\.source"):
        MessageFetcher(tmp_path)


def test_unknown_registry_option_is_said_where_the_message_would_stand(tmp_path):
    (tmp_path / "r.conf").write_text("pasword=hunter2\n")
    (tmp_path / "data.jsonl").write_text('{"id": "A"}\n')
    (tmp_path / "resolvers.toml").write_text(
        f"[topics.t]\nsource='file:{tmp_path}/data.jsonl'\nregistry='http://127.0.0.1:1'\n"
        "registry_config='r.conf'\n"
    )
    entry = Entry("t", 0, 0, 11, 5, "f", "unsealed", "n")
    with MessageFetcher(tmp_path) as messages:
        message = shown(messages, entry, "A")
    assert message.outcome == "unresolved"
    assert "pasword" in message.reason
    assert "hunter2" not in message.reason


def test_changed_file_is_read_once_it_is_whole_and_a_bad_one_changes_nothing(tmp_path, caplog):
    path, clock = tmp_path / "resolvers.toml", ManualClock()

    def said():
        """The masks of a second later, twice: the file is believed when it is the same as before."""
        for _ in range(2):
            clock.advance(1.1)
            masked = messages.has_masks("t")
        return masked

    with MessageFetcher(tmp_path, seams=Seams.of(clock)) as messages:
        assert not messages.has_masks("t")
        path.write_text('[topics.t]\nmask=["$.card"]\n')
        clock.advance(1.1)
        assert not messages.has_masks("t")  # it may be written just now
        assert said()
        path.write_text("[topics.t]\nmask=['$.card', 'hunter2 {key}']\n")
        assert said()
        assert "stay as they were" in caplog.text
        path.unlink()
        assert said()
        path.write_text("[topics.t]\nmask=[]\n# another length\n")
        assert not said()


def test_topic_goes_to_another_source_when_the_file_says_so(tmp_path):
    clock = ManualClock()
    entry = Entry("t", 0, 0, 11, 5, "f", "unsealed", "n")
    for name in ("one", "another"):
        (tmp_path / name).write_text(f'{{"id":"{name}"}}\n')
    path = tmp_path / "resolvers.toml"
    path.write_text(f"[topics.t]\nsource='file:{tmp_path}/one'\nkeys=['$.id']\n")
    with MessageFetcher(tmp_path, seams=Seams.of(clock)) as messages:
        first = shown(messages, entry._replace(size=12), "one")
        assert first.body == b'{"id":"one"}'
        path.write_text(f"[topics.t]\nsource='file:{tmp_path}/another'\nkeys=['$.id']\n")
        for _ in range(2):
            clock.advance(1.1)
            second = shown(messages, entry._replace(size=16), "another")
        assert second.body == b'{"id":"another"}'
