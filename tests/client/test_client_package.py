"""`tierdex-client` as a user gets it: built, beside its own dependencies and nothing else, against a service.

Its wheel is built by the backend that is installed here, and its dependencies are lent one by one from this
environment: nothing is fetched, and what it does not depend on cannot be imported.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from hatchling.builders.wheel import WheelBuilder

import tierdex
from tests.app.console.conftest import served
from tests.distributions import ROOT, brought_by
from tierdex.app.http.application import create_app
from tierdex.app.http.server_settings import ServerSettings

PACKAGE = ROOT / "packages" / "tierdex-client"
USER = Path(__file__).parents[1] / "app" / "http" / "users" / "client_user.py"


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    folder = tmp_path_factory.mktemp("built")
    (built,) = WheelBuilder(str(PACKAGE)).build(directory=str(folder))
    return zipfile.ZipFile(built)


@pytest.fixture(scope="module")
def place(wheel, tmp_path_factory):
    """A function that makes a folder of the wheel and of what it brings with some extras."""

    def make(*extras):
        folder = tmp_path_factory.mktemp("place")
        wheel.extractall(folder)
        wanted = f"tierdex-client[{','.join(extras)}]"
        for known in brought_by(wanted).values():
            for top in {file.parts[0] for file in known.files} - {"..", "__pycache__"}:
                if not (folder / top).exists():
                    (folder / top).symlink_to(known.locate_file(top))
        return folder

    return make


@pytest.fixture(scope="module")
def url(tmp_path_factory):
    data = tmp_path_factory.mktemp("data")
    small = {"slot_count": 1024, "item_capacity": 4096}
    settings = ServerSettings(log_requests=False, max_wait=0.01)
    with (
        tierdex.Index.open(data / "index", background=False, **small) as index,
        tierdex.MessageLog.open(
            data / "log", index=True, background=False, journal_bytes=16 << 20, **small
        ) as log,
        served(create_app(index, settings, log=log)) as url,
    ):
        yield url


def run(place, url):
    """Run the user's program where only `place` and the standard library can be imported."""
    start = f"""
import runpy, sys
sys.path.insert(0, {str(place)!r})
import httpx2
of_http = len(sys.modules)
import tierdex_client
assert len(sys.modules) < 2 * of_http  # no engine is loaded (decision 0095)
runpy.run_path({str(USER)!r})
"""
    command = [sys.executable, "-W", "error", "-I", "-S", "-c", start, url]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_client_without_arrow_puts_queries_pages_and_says_what_columns_need(place, url):
    told = run(place(), url)
    assert told["heavy"] == []
    assert told["pages"] == [3, 2, 1]
    assert told["bodies"] == ["b", "a"]
    assert told["refused"] == ["InvalidRequestError", "key"]
    assert set(told["columns"]) == {"put_batch", "append_batch", "query_batch_arrow", "read"}
    for message in told["columns"].values():
        assert "pip install 'tierdex-client[arrow]'" in message


def test_client_with_arrow_sends_columns_and_reads_queues(place, url):
    told = run(place("arrow"), url)
    assert told["heavy"] == []
    assert told["columns"] == {
        "put_batch": "os", "append_batch": [0, 1], "query_batch_arrow": [7],
        "read": [[0, "x", ["k"]], [1, "y", ["l"]]],
    }  # fmt: skip


def test_package_has_the_modules_of_its_clients_and_their_public_names(wheel):
    names = wheel.namelist()
    assert {"tierdex_client/py.typed", "tierdex_client/client/remote.py"} <= set(names)
    assert any(name.endswith(".dist-info/licenses/LICENSE") for name in names)
    assert not [name for name in names if "kernel" in name or "/app/" in name]
    sources = [wheel.read(name).decode() for name in names if name.endswith(".py")]
    assert not [text for text in sources if re.search(r"^\s*(from|import) tierdex\b", text, re.M)]
    assert (
        "from tierdex_client.ids import __version__"
        in wheel.read("tierdex_client/__init__.py").decode()
    )
    assert f"/tierdex_client-{tierdex.__version__}.dist-info/" in f"/{names[-1]}"
