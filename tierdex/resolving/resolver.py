"""`Resolver`: fetches the messages of a topic. Any object with these methods is one.

A resolver is told by the operator where its log is, never by a request. What every resolver promises:

* it returns the message at an entry's place, or None when its log has it no more;
* `names` are the key texts and message IDs by which the message was indexed, by the rule that indexed
  them; None where the rule is not known, and then the name that was looked up must occur in the message;
* a log that does not answer raises UnavailableError; missing rights are PermissionDeniedError; no error and
  no name holds a password;
* `fetch` may be called from several threads.

docs/show.md has a worked example. Depends on errors, following, rule and index_service.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol

from tierdex.errors import InvalidRequestError

if TYPE_CHECKING:
    from tierdex.following.records import Record
    from tierdex.index_service.answer import Entry
    from tierdex.resolving.rule import Names, Rule


class Wanted(NamedTuple):
    """What was looked up: a key or a message ID. `max_bytes` bounds what is fetched of a message."""

    key: str | None
    message_id: str | None
    max_bytes: int

    @property
    def text(self) -> str:
        return self.key or self.message_id or ""


class Found(NamedTuple):
    """A message as its log has it, and its names.

    With `rule` they are looked for in the decoded value as well, if that is not what the log has.
    """

    record: Record
    names: Names
    rule: Rule | None = None
    cost: tuple[int, int] = (0, 0)  # requests for it, and their bytes, where they are counted


class TooLargeError(Exception):
    """The message is longer than may be fetched: `size` bytes, or more."""

    def __init__(self, size: int) -> None:
        super().__init__(size)
        self.size = size


class ChangedError(Exception):
    """What is at the place now is not what was indexed; the text says what is wrong."""


class UndecodedError(Exception):
    """The body is not what its schema says; the text, which holds nothing of the body, says why."""


def refuse_rows(entry: Entry) -> None:
    """Raise InvalidRequestError for an entry of a file's row: a log has messages alone."""
    if entry.source is not None or entry.queue_id is None or entry.offset is None:
        where = "a file" if entry.source is None else entry.source
        raise InvalidRequestError(
            f"the entry is of a row in {where}, and the topic's resolver is a log: give files:FOLDER"
        )


class Resolver(Protocol):
    """Fetches the messages of one topic, or of several."""

    @property
    def name(self) -> str:
        """Where the messages are, without any secret."""
        ...

    def where(self, entry: Entry) -> str:
        """Return where the message is, in words of its log."""
        ...

    def fetch(self, entry: Entry, wanted: Wanted) -> Found | None:
        """Return the message, None when its log has it no more.

        Raises TooLargeError, ChangedError; NotFoundError for what is gone in words of its own.
        """
        ...

    def close(self) -> None:
        """End connections. Idempotent."""
        ...
