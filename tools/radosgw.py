"""Ceph's radosgw on loopback, a real S3 server for tests and benchmarks. See radosgw.sh beside this."""

from __future__ import annotations

import contextlib
import subprocess
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from tools.debian import has_programs
from tools.free_port import find_free_port

if TYPE_CHECKING:
    from collections.abc import Iterator

_SCRIPT = Path(__file__).with_name("radosgw.sh")
_PROGRAMS = ("ceph-mon", "ceph-osd", "radosgw", "ceph", "radosgw-admin", "monmaptool")
_PACKAGES = ("ceph-mon", "ceph-osd", "radosgw", "ceph-common")
_TIMEOUT_S = 240.0  # it ends only what would never end


@contextlib.contextmanager
def running_radosgw(access_key: str, secret_key: str) -> Iterator[int | None]:
    """Install what is not here, start the server, yield its port, end its processes.

    Yields None where it cannot be installed. Raises RuntimeError with the output when it does not start.
    """
    if not has_programs(_PROGRAMS, _PACKAGES):
        yield None
        return
    # Its admin sockets want a short path, which pytest's own temporary folders need not have.
    with tempfile.TemporaryDirectory(prefix="rgw-") as folder:
        port = find_free_port(2)
        home, output = Path(folder) / "rgw", Path(folder) / "output"
        try:
            with output.open("w") as log:
                started = subprocess.run(
                    [_SCRIPT, "start", home, str(port), access_key, secret_key],
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    timeout=_TIMEOUT_S,
                    check=False,
                    start_new_session=True,  # a Ctrl-C at the terminal ends the caller first
                )
            if started.returncode != 0:
                raise RuntimeError(f"radosgw does not start: {output.read_text()}")
            yield port
        finally:
            subprocess.run([_SCRIPT, "stop", home], check=True, timeout=_TIMEOUT_S)
