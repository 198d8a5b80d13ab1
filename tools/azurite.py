"""Azurite on loopback, Microsoft's emulator of blob storage, from npm: `with running_azurite() as port`.

It is installed into `.cache/azurite` (80 s) by `make clouds`, and used where it is there. It sends telemetry
unless it is told not to.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import shutil
import subprocess
import sys
import tempfile
import urllib.request
from contextlib import contextmanager
from email.utils import formatdate
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tools.free_port import find_free_port
from tools.server_process import ServerProcess

if TYPE_CHECKING:
    from collections.abc import Iterator

VERSION: Final = "3.35.0"
ACCOUNT: Final = "devstoreaccount1"
# Published with the emulator: no secret.
KEY: Final = (
    "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
)
_FOLDER: Final = Path(__file__).parents[1] / ".cache" / "azurite"
_PROGRAM: Final = _FOLDER / "node_modules" / ".bin" / "azurite-blob"


def install() -> bool:
    """Install it; say whether that could be done."""
    if not _PROGRAM.exists() and shutil.which("npm"):
        _FOLDER.mkdir(parents=True, exist_ok=True)
        command = ["npm", "install", "--silent", "--no-audit", "--no-fund", f"azurite@{VERSION}"]
        subprocess.run(command, cwd=_FOLDER, check=False)
    return _PROGRAM.exists()


@contextmanager
def running_azurite() -> Iterator[int | None]:
    """Start it, yield its port, end it; yields None where it is not installed."""
    if not _PROGRAM.exists():
        yield None
        return
    port = find_free_port()
    with tempfile.TemporaryDirectory(prefix="azurite-") as folder:
        command = [
            str(_PROGRAM), "--blobHost", "127.0.0.1", "--blobPort", str(port), "-l", f"{folder}/blobs",
            "--skipApiVersionCheck", "--disableTelemetry", "--silent",
        ]  # fmt: skip
        server = ServerProcess(command, Path(folder), port)
        try:
            server.start()
            yield port
        finally:
            server.kill()


def make_container(port: int, name: str) -> None:
    """Make an empty container, with the emulator's published key (Shared Key, version 2021-08-06)."""
    now = formatdate(usegmt=True)
    lines = ["PUT", *[""] * 11, f"x-ms-date:{now}", "x-ms-version:2021-08-06"]
    resource = f"/{ACCOUNT}/{ACCOUNT}/{name}\nrestype:container"
    text = "\n".join([*lines, resource]).encode()
    digest = hmac.new(base64.b64decode(KEY), text, hashlib.sha256).digest()
    signed = f"SharedKey {ACCOUNT}:{base64.b64encode(digest).decode()}"
    headers = {"x-ms-date": now, "x-ms-version": "2021-08-06", "Authorization": signed}
    url = f"http://127.0.0.1:{port}/{ACCOUNT}/{name}?restype=container"
    urllib.request.urlopen(urllib.request.Request(url, method="PUT", headers=headers)).close()


if __name__ == "__main__":
    sys.exit(not install())
