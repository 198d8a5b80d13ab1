"""A data folder's right to its node: a small file `DATA/OWNER`, and what a caller permits an opening.

::

    before a claim's commit   {"node": ..., "tokens": [ours, earlier ones], "number": 41}   durable
    after each commit         {"node": ..., "tokens": [ours, ...], "number": 42}

A *token* is the uuid with which an opening claims the node. The folder that holds the token of the
newest claim in the manifest owns the node: it opens again at once, however its process ended.
Several tokens are kept, since a claim may be noted and not committed, or be committed by a late
request.

`number` is the newest manifest number that this folder committed or read: a store that knows less
has lost something, or is another store.

The note is a help: when it is damaged, the folder waits or needs a takeover, as without a note.

Depends on the ground.
"""

from __future__ import annotations

import json
import logging
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from tierdex.whole_file import read_head, replace_file, with_checksum, without_checksum

if TYPE_CHECKING:
    from pathlib import Path

    from tierdex.filesystem import FileSystem


class Claiming(NamedTuple):
    """`adopt`: publish the folder's files under another node. `takeover`: fence a living owner.

    `accept_rollback`: go on although the store knows less of the node than before. `lossy`: go on with a
    log of which some may lie on another disk alone.
    """

    adopt: bool = False
    takeover: bool = False
    accept_rollback: bool = False
    lossy: bool = False


logger = logging.getLogger(__name__)

_NAME: Final = "OWNER"
_BYTES_MAX: Final = 4096
_TOKENS_MAX: Final = 4


class FolderOwner:
    """The note of one folder, about one node. For one thread at a time."""

    def __init__(self, filesystem: FileSystem, root: Path, node: str) -> None:
        self._filesystem = filesystem
        self._path = root / _NAME
        self._node = node
        found = _read(filesystem, self._path)
        self.number = 0
        self._tokens: list[bytes] = []
        if found is not None and found["node"] == node:  # else it was adopted
            self.number = found["number"]
            self._tokens = [bytes.fromhex(token) for token in found["tokens"]]

    @property
    def tokens(self) -> tuple[bytes, ...]:
        """Return the tokens of the folder's claims, the newest first; some may never have been committed."""
        return tuple(self._tokens)

    def holds(self, token: bytes) -> bool:
        """Return whether `token` is that of a claim which this folder made, or began to make."""
        return token in self._tokens

    def note_claim(self, token: bytes, before: bytes) -> None:
        """Write a claim that is about to be committed, durably. Raises OSError.

        `before` is the token of the claim that it follows. If that is this folder's, it is kept,
        however many claims are begun in vain.
        """
        others = [held for held in self._tokens if held != before]
        kept = [before] if self.holds(before) else []
        self._tokens = [token, *kept, *others][:_TOKENS_MAX]
        self._write()

    def note_commit(self, number: int) -> None:
        """Write the newest known manifest number. A failure is logged: the note is only a help."""
        if number <= self.number:
            return
        self.number = number
        try:
            self._write()
        except OSError as error:  # a full disk, for example; the commit is durable in the store
            logger.warning("last commit not noted", extra={"error": str(error)})

    def _write(self) -> None:
        tokens = [token.hex() for token in self._tokens]
        note = {"node": self._node, "tokens": tokens, "number": self.number}
        replace_file(self._filesystem, self._path, with_checksum(json.dumps(note).encode()))


def _read(filesystem: FileSystem, path: Path) -> dict[str, Any] | None:
    """Return the note; None when it is absent or damaged. Raises OSError."""
    line = read_head(filesystem, path, _BYTES_MAX)
    if line is None:
        return None
    text = without_checksum(line)
    if text is None:
        logger.warning("note is damaged", extra={"path": str(path)})
        return None
    found: dict[str, Any] = json.loads(text)
    return found
