"""Ceph's radosgw on loopback: the real S3 server of the test session. See tools/radosgw.sh."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

import pytest

from tests.servers.s3_server import ACCESS_KEY, SECRET_KEY, S3Server, find_free_port

SCRIPT = Path(__file__).parents[2] / "tools" / "radosgw.sh"
PROGRAMS = ("ceph-mon", "ceph-osd", "radosgw", "ceph", "radosgw-admin", "monmaptool")
PACKAGES = ("ceph-mon", "ceph-osd", "radosgw", "ceph-common")
CANNOT_INSTALL = "radosgw cannot be installed here"
INSTALL_TIMEOUT_S = 100
START_TIMEOUT_S = 60


@contextlib.contextmanager
def running_radosgw():
    """Start the server, yield it as an S3Server, end its processes. Skips where it cannot be had."""
    if not _is_installed():
        _install()
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
                    timeout=START_TIMEOUT_S,
                    check=False,
                    start_new_session=True,  # a Ctrl-C at the terminal ends the tests first
                )
            if started.returncode != 0:
                pytest.fail(f"radosgw does not start: {(Path(folder) / 'output').read_text()}")
            yield S3Server.at("radosgw", port)
        finally:
            subprocess.run([SCRIPT, "stop", home], check=True, timeout=30)


def _is_installed() -> bool:
    return all(shutil.which(program) for program in PROGRAMS)


def _install() -> None:
    if os.geteuid() != 0 or shutil.which("apt-get") is None:
        pytest.skip(CANNOT_INSTALL)
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    for command in (
        ("apt-get", "update", "-q"),
        ("apt-get", "install", "-q", "-y", "--no-install-recommends", *PACKAGES),
    ):
        try:
            done = subprocess.run(
                command,
                env=environment,
                capture_output=True,
                timeout=INSTALL_TIMEOUT_S,
                check=False,
            )
        except subprocess.TimeoutExpired:
            pytest.skip(CANNOT_INSTALL)
        if done.returncode != 0 and command[1] == "install":
            pytest.skip(CANNOT_INSTALL)
    if not _is_installed():
        pytest.skip(CANNOT_INSTALL)
