"""The container files, read by linters: there is no engine here to build them."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from pathlib import Path

import yaml

ROOT = Path(__file__).parents[2]
BIN = Path(sys.executable).parent


def _output_of(*command) -> str:
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_linters_find_nothing_in_the_container_files():
    assert _output_of(BIN / "hadolint", "--strict-labels", "Dockerfile") == ""
    assert (
        _output_of(BIN / "yamllint", "--strict", "--config-file", ".yamllint", "compose.yaml") == ""
    )


def test_image_runs_as_a_user_without_rights_and_reports_its_health():
    text = (ROOT / "Dockerfile").read_text()
    instructions = [line.split(maxsplit=1) for line in text.splitlines() if line[:1].isupper()]
    users = [words[1] for words in instructions if words[0] == "USER"]
    assert users == ["10001:10001"]
    assert {"HEALTHCHECK", "VOLUME", "STOPSIGNAL"} <= {words[0] for words in instructions}
    assert ["VOLUME", "/data"] in instructions


def test_composed_service_has_a_volume_a_health_check_and_time_to_stop():
    service = yaml.safe_load((ROOT / "compose.yaml").read_text())["services"]["tierdex"]
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    assert service["image"] == f"tierdex:{version}"
    assert service["volumes"] == ["tierdex-data:/data"]
    assert service["healthcheck"]["test"][0] == "CMD"
    assert service["ports"] == ["127.0.0.1:8080:8080"]
    assert int(service["stop_grace_period"].removesuffix("s")) > 10
