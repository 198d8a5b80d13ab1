"""Ceph's radosgw on loopback for one part of the benchmark; absent where it is not installed."""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import subprocess
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

SCRIPT = Path(__file__).parents[1] / "tools" / "radosgw.sh"
PROGRAMS = ("ceph-mon", "ceph-osd", "radosgw", "ceph", "radosgw-admin", "monmaptool")
ACCESS_KEY, SECRET_KEY = "benchaccess", "benchsecret123"


@contextlib.contextmanager
def running_radosgw() -> Iterator[str | None]:
    """Yield the endpoint's URL, with credentials in the environment; None where it cannot be had."""
    if os.geteuid() != 0 or not all(shutil.which(program) for program in PROGRAMS):
        yield None
        return
    with tempfile.TemporaryDirectory(prefix="rgw-") as folder:
        home, port = Path(folder) / "rgw", _free_port()
        try:
            with (Path(folder) / "output").open("w") as output:
                subprocess.run(
                    [SCRIPT, "start", home, str(port), ACCESS_KEY, SECRET_KEY],
                    stdin=subprocess.DEVNULL, stdout=output, stderr=output, timeout=90, check=True,
                    start_new_session=True,
                )  # fmt: skip
            kept = dict(os.environ)
            os.environ.update(
                AWS_ACCESS_KEY_ID=ACCESS_KEY, AWS_SECRET_ACCESS_KEY=SECRET_KEY,
                AWS_CONFIG_FILE=os.devnull, AWS_SHARED_CREDENTIALS_FILE=os.devnull,
                AWS_EC2_METADATA_DISABLED="true", AWS_REGION="us-east-1",
            )  # fmt: skip
            yield f"http://127.0.0.1:{port}"
            os.environ.clear()
            os.environ.update(kept)
        finally:
            subprocess.run([SCRIPT, "stop", home], check=False, timeout=30)


def _free_port() -> int:
    """Return a free port whose neighbour is free too: the monitor takes that."""
    while True:
        with socket.socket() as first, socket.socket() as second:
            first.bind(("127.0.0.1", 0))
            port: int = first.getsockname()[1]
            try:
                second.bind(("127.0.0.1", port + 1))
            except OSError:
                continue
            return port
