"""A folder as `make run` leaves it, with its service and one of an index: where the examples are run."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.patience import PATIENCE_S
from tests.rocketmq.rocketmq_files import BEGIN, FILES, make_writer, put
from tests.servers.forked_tierdex import ForkedTierdex, tierdex_program

ROOT = Path(__file__).parents[2]


class Workspace:
    """A reader's folder: `.venv`, `data` with the flights, and the services' real addresses."""

    def __init__(self, folder: Path, program: Path, urls: list[str]) -> None:
        self.folder = folder
        self.program = program  # as `tierdex`, forked
        self.replacements = dict(
            zip(("http://127.0.0.1:8080", "http://127.0.0.1:8081"), urls, strict=True)
        )


@pytest.fixture(scope="session")
def workspace(tmp_path_factory):
    folder = tmp_path_factory.mktemp("reader")
    (folder / ".venv").symlink_to(Path(sys.executable).parents[1])
    subprocess.run(
        [sys.executable, "-m", "tools.demo", "--once"],
        cwd=folder, check=True, capture_output=True, env={**os.environ, "PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    _make_rocketmq_files(folder / "rocketmq-index")
    services = [
        ForkedTierdex(["serve", "--data", data, "--port", "0"], cwd=folder, stderr=subprocess.PIPE)
        for data in ("data", "index-data")
    ]
    try:
        with tierdex_program(tmp_path_factory.mktemp("program")) as program:
            yield Workspace(folder, program, [_address(service) for service in services])
    finally:
        for service in services:
            service.send_signal(signal.SIGTERM)
        for service in services:
            assert service.wait(PATIENCE_S) == 0
            service.stderr.close()


def _address(service) -> str:
    for line in service.stderr:
        if found := re.match(r"serving on (\S+)", line):
            return found[1]
    raise AssertionError("the service did not start")


def _make_rocketmq_files(root: Path) -> None:
    folder = root / "tiered_index_file"
    folder.mkdir(parents=True)
    writer = make_writer()
    put(writer, "TopicTest", "MessageKey", 4096)
    writer.save(FILES, folder / str(BEGIN), ended=True)
