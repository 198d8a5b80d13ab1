"""API keys and their rights. A key is shown once; the key file holds its SHA-256.

A key reads ``tdx_<id>_<secret>``. The id (8 hex digits) finds the row; the secret is 32 random
bytes, which cannot be guessed, so a plain hash protects it.

The file `keys.json` lies in the data folder and is replaced as a whole. A running service reads it
again when it changes: a new key is accepted at once, a removed key for at most one more second. A
change holds the lock beside the file from its read to its rename, so that no change undoes another.

A row has ``"scope": "read"``, or ``"grants": ["read", "write:orders.*"]`` where one scope in every topic
does not say it. A Tierdex that knows no patterns refuses the second form: it would take a key of one
topic for a key of all.

The file is its owner's alone (0600). A file that other users may write is refused, since its keys prove
nothing; one that they may read is a warning.

Depends on the ground and app.rights.
"""

from __future__ import annotations

import hashlib
import hmac
import stat
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

import orjson

from tierdex.app.rights import Grant, Rights, Scope, parse_grant
from tierdex.clock import Bell
from tierdex.errors import (
    AuthenticationError,
    CorruptFileError,
    InvalidRequestError,
    NotFoundError,
    UnavailableError,
)
from tierdex.whole_file import read_file, replace_file

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tierdex.clock import Clock
    from tierdex.filesystem import FileSystem
    from tierdex.ids import IdSource

FILE_NAME = "keys.json"
KEY_PREFIX = "tdx_"
_RELOAD_INTERVAL_S = 1.0
_PATIENCE_S = 10.0  # a change takes milliseconds
_PAUSE_S = 0.02


class StoredKey(NamedTuple):
    """A row of the key file. `created_ms` is epoch milliseconds, `sha256` of the whole key, hex.

    `rate_limit` are requests a second; None: as the service's setting says.
    """

    id: str
    rights: Rights
    sha256: str
    created_ms: int
    name: str
    rate_limit: float | None = None

    def document(self) -> dict[str, Any]:
        """Return the row as it lies in the file."""
        grants = self.rights.grants
        is_plain = len(grants) == 1 and grants[0].is_for_every_topic
        return {
            "id": self.id,
            **({"scope": str(grants[0])} if is_plain else {"grants": list(map(str, grants))}),
            "sha256": self.sha256,
            "created_ms": self.created_ms,
            "name": self.name,
            **({} if self.rate_limit is None else {"rate_limit": self.rate_limit}),
        }

    @classmethod
    def of_document(cls, row: dict[str, Any]) -> StoredKey:
        """Raises ValueError, KeyError, TypeError, InvalidRequestError for what is no row."""
        grants = row["grants"] if "grants" in row else [row["scope"]]
        rate = row.get("rate_limit")
        if rate is not None and not float(rate) > 0:
            raise ValueError(f"a rate limit of {rate}")
        return cls(
            str(row["id"]),
            Rights(parse_grant(str(grant)) for grant in grants),
            str(row["sha256"]),
            int(row["created_ms"]),
            str(row["name"]),
            None if rate is None else float(rate),
        )


class KeyFile:
    """The keys in one file. Safe to share between threads: the rows are replaced as a whole.

    A key file that exists and cannot be read is an error, never "no keys": a damaged key file must
    not open a service to every caller.
    """

    def __init__(self, filesystem: FileSystem, path: Path, *, clock: Clock, ids: IdSource) -> None:
        """Read the file. Raises CorruptFileError."""
        self._filesystem = filesystem
        self._path = path
        self._clock = clock
        self._ids = ids
        self._seen: tuple[int, int] | None = None
        self._looked_at = clock.monotonic()
        self._rows: dict[str, StoredKey] = {}
        self._had_keys = False
        self._read()

    def __len__(self) -> int:
        return len(self._rows)

    @property
    def had_keys(self) -> bool:
        """Whether there was ever a key: a service does not open when its last key is removed."""
        self._read_when_changed()
        return self._had_keys

    def exposure(self) -> str | None:
        """Return what to do where others may read the file, or the group write it; else None."""
        if not self._filesystem.exists(self._path):
            return None
        mode = self._filesystem.permissions(self._path)
        if not mode & (stat.S_IWGRP | stat.S_IRWXO):
            return None
        return f"{self._path} can be opened by others (mode {mode:04o}): `chmod 600 {self._path}`"

    def rows(self) -> list[StoredKey]:
        """Return all keys, oldest first."""
        return sorted(self._rows.values(), key=lambda row: (row.created_ms, row.id))

    def create(
        self, *granted: Scope | Grant, name: str = "", rate_limit: float | None = None
    ) -> str:
        """Add a key and return it; no later call can. A scope alone is for every topic.

        Raises UnavailableError.
        """
        rights = Rights(each if isinstance(each, Grant) else Grant(each) for each in granted)
        key_id = self._ids.uuid().hex()[:8]
        key = f"{KEY_PREFIX}{key_id}_{self._ids.token(32)}"
        row = StoredKey(key_id, rights, _hash(key), self._clock.now_ms(), name, rate_limit)
        with self._changing():
            self._write({**self._rows, key_id: row})
        return key

    def remove(self, key_id: str) -> None:
        """Remove a key. Raises NotFoundError, UnavailableError."""
        with self._changing():
            if key_id not in self._rows:
                raise NotFoundError(f"there is no key {key_id!r}")
            self._write({known: row for known, row in self._rows.items() if known != key_id})

    def identify(self, key: str) -> StoredKey:
        """Return the row of a key. Raises AuthenticationError, without the reason."""
        self._read_when_changed()
        parts = key.split("_", 2)
        if len(parts) == 3 and parts[1] not in self._rows:
            self._read_when_changed(at_once=True)  # the key may have been made a moment ago
        row = self._rows.get(parts[1]) if len(parts) == 3 else None
        # Compared in constant time, also when there is no such row.
        if not hmac.compare_digest(_hash(key), row.sha256 if row else "0" * 64) or row is None:
            raise AuthenticationError("no such key: send `Authorization: Bearer <key>`")
        return row

    @contextmanager
    def _changing(self) -> Iterator[None]:
        """Hold the lock of the file, and read the file first. Raises UnavailableError."""
        self._filesystem.make_folder(self._path.parent)
        path = self._path.with_name(f".{self._path.name}.lock")
        give_up_at = self._clock.monotonic() + _PATIENCE_S
        while True:
            try:
                lock = self._filesystem.lock(path, "")
                break
            except BlockingIOError as error:
                if self._clock.monotonic() > give_up_at:
                    raise UnavailableError(
                        f"another process is changing the keys ({path} is locked): try again"
                    ) from error
            self._clock.wait(Bell(), _PAUSE_S)
        try:
            self._read()
            yield
        finally:
            lock.release()

    def _read_when_changed(self, *, at_once: bool = False) -> None:
        now = self._clock.monotonic()
        if at_once or now - self._looked_at >= _RELOAD_INTERVAL_S:
            self._looked_at = now
            if self._stamp() != self._seen:
                self._read()

    def _stamp(self) -> tuple[int, int] | None:
        if not self._filesystem.exists(self._path):
            return None
        return (
            self._filesystem.modified_ms(self._path),
            self._filesystem.file_size(self._path),
        )

    def _read(self) -> None:
        stamp = self._stamp()
        if stamp is None:
            # A service keeps its keys when the file disappears: only `keys remove` removes one.
            self._seen = None
            return
        if self._filesystem.permissions(self._path) & stat.S_IWOTH:
            raise CorruptFileError(self._path, f"every user may write it: `chmod 600 {self._path}`")
        try:
            text = read_file(self._filesystem, self._path)
        except PermissionError as error:
            raise CorruptFileError(
                self._path, "may not be read by this user: `chown` it, or make keys as this user"
            ) from error
        try:
            rows = [StoredKey.of_document(row) for row in orjson.loads(text)["keys"]]
        except (ValueError, KeyError, TypeError, InvalidRequestError) as error:
            raise CorruptFileError(self._path, f"not a key file: {error}") from error
        self._use({row.id: row for row in rows}, stamp)

    def _write(self, rows: dict[str, StoredKey]) -> None:
        """Replace the file, durably, and use its rows from now on."""
        text = orjson.dumps(
            {
                "keys": [
                    row.document()
                    for row in sorted(rows.values(), key=lambda row: (row.created_ms, row.id))
                ]
            },
            option=orjson.OPT_INDENT_2,
        )
        replace_file(self._filesystem, self._path, text, private=True)
        self._use(rows, self._stamp())

    def _use(self, rows: dict[str, StoredKey], stamp: tuple[int, int] | None) -> None:
        self._rows = rows
        self._seen = stamp
        self._had_keys = self._had_keys or bool(rows)


def _hash(key: str) -> str:
    return hashlib.sha256(key.encode("utf-8", "surrogatepass")).hexdigest()
