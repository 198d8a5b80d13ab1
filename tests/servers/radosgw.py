"""Ceph's radosgw on loopback: the real S3 server of the test session. See tools/radosgw.sh."""

from __future__ import annotations

import contextlib
import subprocess
import tempfile
from pathlib import Path

import pytest

from tests.patience import PATIENCE_S
from tests.servers.debian import has_programs
from tests.servers.s3_server import ACCESS_KEY, SECRET_KEY, S3Server, find_free_port

SCRIPT = Path(__file__).parents[2] / "tools" / "radosgw.sh"
PROGRAMS = ("ceph-mon", "ceph-osd", "radosgw", "ceph", "radosgw-admin", "monmaptool")
PACKAGES = ("ceph-mon", "ceph-osd", "radosgw", "ceph-common")


@contextlib.contextmanager
def running_radosgw():
    """Start the server, yield it as an S3Server, end its processes. Skips where it cannot be had."""
    if not has_programs(PROGRAMS, PACKAGES):
        pytest.skip("radosgw cannot be installed here")
    # Its admin sockets want a short path, which pytest's own temporary folders need not have.
    with tempfile.TemporaryDirectory(prefix="rgw-") as folder:
        port = find_free_port(2)
        home = Path(folder) / "rgw"
        try:
            with (Path(folder) / "output").open("w") as output:
                started = subprocess.run(
                    [SCRIPT, "start", home, str(port), ACCESS_KEY, SECRET_KEY],
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=output,
                    timeout=PATIENCE_S,
                    check=False,
                    start_new_session=True,  # a Ctrl-C at the terminal ends the tests first
                )
            if started.returncode != 0:
                pytest.fail(f"radosgw does not start: {(Path(folder) / 'output').read_text()}")
            yield S3Server.at("radosgw", port)
        finally:
            subprocess.run([SCRIPT, "stop", home], check=True, timeout=PATIENCE_S)
