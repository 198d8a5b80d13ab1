"""The compose file with a real S3 server: whole, and its service runs with its settings on that server.

No container engine runs here: images are read by linters, and what they start is started as it is.
"""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from tests.deploy.conftest import DEPLOY, ROOT
from tests.deploy.test_units import KNOWN
from tests.servers.tierdex_server import running_tierdex
from tierdex.client.remote import Client

COMPOSE = DEPLOY / "compose" / "compose.yaml"
IMAGE = DEPLOY / "compose" / "radosgw" / "Dockerfile"
SERVICES = yaml.safe_load(COMPOSE.read_text())["services"]
ENTRY = {"topic": "orders", "keys": ["k"], "queue_id": 0, "offset": 1, "size": 2, "timestamp": 3}


def test_linters_find_nothing_in_the_files():
    tools = Path(sys.executable).parent
    for command in (
        [tools / "hadolint", "--strict-labels", IMAGE],
        [tools / "yamllint", "--strict", "--config-file", ".yamllint", COMPOSE],
    ):
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
        assert (done.returncode, done.stdout) == (0, ""), done.stdout + done.stderr


def test_image_starts_the_script_as_the_script_says():
    usage = (ROOT / "tools" / "radosgw.sh").read_text()
    assert "start FOLDER PORT ACCESS_KEY SECRET_KEY" in usage
    command = re.search(r"radosgw\.sh start (.*?) &&", IMAGE.read_text())[1]
    assert len(command.split()) == 4
    port = SERVICES["store"]["environment"]["AWS_ENDPOINT_URL_S3"].rpartition(":")[2]
    assert command.split()[1] == port
    assert f"/dev/tcp/127.0.0.1/{port}" in IMAGE.read_text()
    build = SERVICES["store"]["build"]
    context = COMPOSE.parent / build["context"]
    assert (context / build["dockerfile"]).resolve() == IMAGE
    assert (context / "radosgw.sh").exists()


@pytest.mark.heavy
@pytest.mark.radosgw
def test_service_serves_from_the_server_with_the_settings_of_the_file(radosgw, tmp_path):
    environment = {n: str(v) for n, v in SERVICES["tierdex"]["environment"].items()}
    given = {name for name in environment if name.startswith("TIERDEX_")}
    assert given <= KNOWN
    environment |= {
        "AWS_ENDPOINT_URL_S3": radosgw.endpoint_url,
        "AWS_ACCESS_KEY_ID": os.environ["AWS_ACCESS_KEY_ID"],
        "AWS_SECRET_ACCESS_KEY": os.environ["AWS_SECRET_ACCESS_KEY"],
    }
    create = SERVICES["bucket"]["entrypoint"]
    assert create[:2] == ["python", "-c"]
    ast.parse(create[2])
    bucket = radosgw.make_bucket()
    source = create[2].replace("'tierdex'", repr(f"{bucket}-2"))
    subprocess.run([sys.executable, "-c", source], env={**os.environ, **environment}, check=True)
    environment["TIERDEX_STORE"] = f"s3://{bucket}-2/demo"
    with running_tierdex(tmp_path, environment=environment) as server, Client(server.url) as client:
        assert client.put(**ENTRY, durability="remote") == "remote"
        assert [entry.state for entry in client.query("orders", key="k").entries] == ["uploaded"]
        assert server.stop() == 0
