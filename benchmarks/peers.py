"""The stores that one would otherwise embed, each used in the best way that its binding offers.

All get the keys as bytes and a location of 24 bytes as the value; making those is not timed. None
of them syncs. A peer that is not installed is left out, with a message.
"""

from __future__ import annotations

import shutil
import sqlite3
from functools import partial
from itertools import repeat
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import pyarrow as pa

from benchmarks.data import TOPIC, VALUE
from benchmarks.innodb import InnoDb
from tierdex import Entry

if TYPE_CHECKING:
    from pathlib import Path

    from benchmarks.data import Block


# How many times fewer entries the slow ones get: a smaller tree is a faster one, so this favours them.
SHARES = {"SQLite": 10, "InnoDB": 20}


class Peer(Protocol):
    """A store of keys and locations."""

    name: str

    def put_many(self, block: Block) -> None: ...
    def get_many(self, keys: list[bytes]) -> list[bytes | None]: ...
    def put(self, key: bytes, value: bytes) -> None: ...
    def get(self, key: bytes) -> bytes | None: ...
    def close(self) -> None: ...


class RocksDb:
    """RocksDB through rocksdict: raw bytes, batches without a write-ahead log, multi-get."""

    name = "RocksDB"

    def __init__(self, folder: Path) -> None:
        from rocksdict import Options, Rdict, WriteOptions

        options = Options(raw_mode=True)
        options.create_if_missing(True)
        options.increase_parallelism(2)
        options.set_write_buffer_size(128 << 20)
        self._store: Any = Rdict(str(folder / "rocksdb"), options)
        quick: Any = WriteOptions()
        quick.disable_wal = True
        self._store.set_write_options(quick)

    def put_many(self, block: Block) -> None:
        from rocksdict import WriteBatch

        keys, values = block.raw_keys, block.raw_values
        for first in range(0, block.count, 10_000):
            batch = WriteBatch(raw_mode=True)
            put = batch.put
            for key, value in zip(
                keys[first : first + 10_000], values[first : first + 10_000], strict=True
            ):
                put(key, value)
            self._store.write(batch)

    def get_many(self, keys: list[bytes]) -> list[bytes | None]:
        values: list[bytes | None] = self._store[keys]
        return values

    def put(self, key: bytes, value: bytes) -> None:
        self._store.put(key, value)

    def get(self, key: bytes) -> bytes | None:
        value: bytes | None = self._store.get(key)
        return value

    def close(self) -> None:
        self._store.close()


class LevelDb:
    """LevelDB through plyvel: write batches of 10,000; it has no way of getting many."""

    name = "LevelDB"

    def __init__(self, folder: Path) -> None:
        import plyvel

        self._store = plyvel.DB(
            str(folder / "leveldb"), create_if_missing=True, write_buffer_size=128 << 20
        )

    def put_many(self, block: Block) -> None:
        keys, values = block.raw_keys, block.raw_values
        for first in range(0, block.count, 10_000):
            with self._store.write_batch() as batch:
                for key, value in zip(
                    keys[first : first + 10_000], values[first : first + 10_000], strict=True
                ):
                    batch.put(key, value)

    def get_many(self, keys: list[bytes]) -> list[bytes | None]:
        return list(map(self._store.get, keys))

    def put(self, key: bytes, value: bytes) -> None:
        self._store.put(key, value)

    def get(self, key: bytes) -> bytes | None:
        return self._store.get(key)  # type: ignore[no-any-return, unused-ignore]

    def close(self) -> None:
        self._store.close()


class Lmdb:
    """LMDB: one transaction a block, putmulti; cursor.getmulti for many; no sync, write map."""

    name = "LMDB"

    def __init__(self, folder: Path) -> None:
        import lmdb

        self._store = lmdb.open(
            str(folder / "lmdb"), map_size=64 << 30, sync=False, metasync=False, writemap=True,
            map_async=True,
        )  # fmt: skip

    def put_many(self, block: Block) -> None:
        with self._store.begin(write=True) as transaction, transaction.cursor() as cursor:
            cursor.putmulti(zip(block.raw_keys, block.raw_values, strict=True))

    def get_many(self, keys: list[bytes]) -> list[bytes | None]:
        with self._store.begin(buffers=False) as transaction, transaction.cursor() as cursor:
            found = dict(cursor.getmulti(keys))
        return [found.get(key) for key in keys]

    def get_entries(self, texts: list[str]) -> list[Entry]:
        """Return the entries of texts that are all there, made as `query_batch` makes them."""
        values: Any = self.get_many([text.encode() for text in texts])
        rows = np.frombuffer(b"".join(values), VALUE)
        columns = (rows[name].tolist() for name in ("queue", "offset", "size", "time"))
        same = map(repeat, ("file", "state", "node", None, None, None))
        make: Any = partial(tuple.__new__, Entry)
        return list(map(make, zip(repeat(TOPIC), *columns, *same, strict=False)))

    def get_table(self, keys: Any) -> Any:
        """Return the columns of an Arrow array of keys that are all there, as `query_batch_arrow`."""
        values: Any = self.get_many(keys.cast(pa.binary()).to_pylist())
        rows = np.frombuffer(b"".join(values), VALUE)
        return pa.table({name: np.ascontiguousarray(rows[name]) for name in VALUE.names or ()})

    def put(self, key: bytes, value: bytes) -> None:
        with self._store.begin(write=True) as transaction:
            transaction.put(key, value)

    def get(self, key: bytes) -> bytes | None:
        with self._store.begin() as transaction:
            value: bytes | None = transaction.get(key)
        return value

    def close(self) -> None:
        self._store.close()


class Sqlite:
    """SQLite without a rowid: executemany, one transaction a block; `IN (...)` for many."""

    name = "SQLite"

    def __init__(self, folder: Path) -> None:
        self._store = sqlite3.connect(folder / "sqlite.db", isolation_level=None)
        for pragma in ("journal_mode=WAL", "synchronous=OFF", "cache_size=-1000000"):
            self._store.execute(f"PRAGMA {pragma}")
        self._store.execute("CREATE TABLE entries (key BLOB PRIMARY KEY, value BLOB) WITHOUT ROWID")

    def put_many(self, block: Block) -> None:
        self._store.execute("BEGIN")
        self._store.executemany(
            "INSERT OR REPLACE INTO entries VALUES (?, ?)",
            zip(block.raw_keys, block.raw_values, strict=True),
        )
        self._store.execute("COMMIT")

    def get_many(self, keys: list[bytes]) -> list[bytes | None]:
        marks = ",".join("?" * len(keys))
        rows = self._store.execute(f"SELECT key, value FROM entries WHERE key IN ({marks})", keys)
        found = dict(rows)
        return [found.get(key) for key in keys]

    def put(self, key: bytes, value: bytes) -> None:
        self._store.execute("INSERT OR REPLACE INTO entries VALUES (?, ?)", (key, value))

    def get(self, key: bytes) -> bytes | None:
        row = self._store.execute("SELECT value FROM entries WHERE key = ?", (key,)).fetchone()
        return None if row is None else row[0]

    def close(self) -> None:
        self._store.close()


class InMemory:
    """A dict of str to tuple: no store at all, what an embedding program would begin with."""

    name = "dict"

    def __init__(self) -> None:
        self._store: dict[str, Any] = {}

    def put_many(self, block: Block) -> None:
        self._store.update(zip(block.texts, block.tuples, strict=True))

    def get_all(self, keys: list[str]) -> list[Any]:
        return list(map(self._store.get, keys))

    def get_one(self, key: str) -> Any:
        return self._store.get(key)


def open_peers(folder: Path) -> list[Peer]:
    """Open every embedded store that is installed."""
    peers: list[Peer] = []
    for kind in (RocksDb, LevelDb, Lmdb, Sqlite, InnoDb):
        try:
            peers.append(kind(folder))
        except ImportError as error:
            print(f"{kind.name} is left out: {error}")
    return peers


def remove(folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)
