"""InnoDB: MariaDB's server in a folder of its own, on a socket, installed from Debian where it may be.

Flushes its log once a second, as the index does at level `os`; nothing else is tuned but the buffer
pool. It gets a twentieth of each block (a smaller tree is a faster one), many rows a statement.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pathlib import Path

    from benchmarks.data import Block

PACKAGE = "mariadb-server-core"
_INSTALL_TIMEOUT_S = 90
_START_TIMEOUT_S = 30
_ROWS_A_STATEMENT = 5000


class InnoDb:
    """A table of key and value, looked up by `IN (...)`."""

    name = "InnoDB"

    def __init__(self, folder: Path) -> None:
        """Start a server over an empty folder. Raises ImportError when there is none to be had."""
        import pymysql

        program = shutil.which("mariadbd", path=os.environ["PATH"] + ":/usr/sbin") or _install()
        data = folder / "innodb"
        data.mkdir()
        socket = data / "socket"
        self._log = (folder / "innodb.log").open("w")
        self._server = subprocess.Popen(
            [
                program, "--no-defaults", "--skip-grant-tables", "--skip-networking", "--user=root",
                f"--datadir={data}", f"--socket={socket}", f"--pid-file={data}/pid",
                "--innodb-buffer-pool-size=2G", "--innodb-log-file-size=1G",
                "--innodb-flush-log-at-trx-commit=0", "--max-allowed-packet=64M",
            ],
            stdout=self._log, stderr=self._log,
        )  # fmt: skip
        self._connection = self._connect(pymysql, str(socket))
        self._cursor = self._connection.cursor()
        self._cursor.execute("CREATE DATABASE bench")
        self._cursor.execute("USE bench")
        self._cursor.execute(
            "CREATE TABLE entries (k VARBINARY(64) PRIMARY KEY, v VARBINARY(32)) ENGINE=InnoDB"
        )

    def _connect(self, pymysql: Any, socket: str) -> Any:
        end = time.monotonic() + _START_TIMEOUT_S
        while True:
            try:
                return pymysql.connect(unix_socket=socket, user="root", autocommit=True)
            except pymysql.err.OperationalError as error:
                if self._server.poll() is not None or time.monotonic() > end:
                    self._server.kill()
                    self._server.wait()
                    raise ImportError(f"the server does not start: {error}") from error
                time.sleep(0.1)

    def put_many(self, block: Block) -> None:
        pairs = [(k, v) for k, v in zip(block.raw_keys, block.raw_values, strict=True)]
        self._connection.begin()
        for first in range(0, len(pairs), _ROWS_A_STATEMENT):
            self._cursor.executemany(
                "INSERT INTO entries (k, v) VALUES (%s, %s)",
                pairs[first : first + _ROWS_A_STATEMENT],
            )
        self._connection.commit()

    def get_many(self, keys: list[bytes]) -> list[bytes | None]:
        marks = ",".join(["%s"] * len(keys))
        self._cursor.execute(f"SELECT k, v FROM entries WHERE k IN ({marks})", keys)
        found = dict(self._cursor.fetchall())
        return [found.get(key) for key in keys]

    def put(self, key: bytes, value: bytes) -> None:
        self._cursor.execute("REPLACE INTO entries VALUES (%s, %s)", (key, value))

    def get(self, key: bytes) -> bytes | None:
        self._cursor.execute("SELECT v FROM entries WHERE k = %s", (key,))
        row = self._cursor.fetchone()
        return None if row is None else row[0]

    def close(self) -> None:
        self._connection.close()
        self._server.terminate()
        self._server.wait(60)
        self._log.close()


def _install() -> str:
    """Install the server from Debian. Raises ImportError where that is not possible."""
    if os.geteuid() != 0 or shutil.which("apt-get") is None:
        raise ImportError("mariadbd is not installed, and it cannot be installed here")
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    for command in (
        ("apt-get", "update", "-q"),
        ("apt-get", "install", "-q", "-y", "--no-install-recommends", PACKAGE),
    ):
        try:
            subprocess.run(
                command,
                env=environment,
                capture_output=True,
                timeout=_INSTALL_TIMEOUT_S,
                check=True,
            )
        except (subprocess.SubprocessError, OSError) as error:
            raise ImportError(f"mariadbd cannot be installed: {error}") from error
    found = shutil.which("mariadbd", path=os.environ["PATH"] + ":/usr/sbin")
    if found is None:
        raise ImportError(f"{PACKAGE} holds no mariadbd")
    return found
