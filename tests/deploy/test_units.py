"""The unit of systemd and the manifests of Kubernetes: whole, and in words that `tierdex serve` knows."""

from __future__ import annotations

import dataclasses
import importlib
import re
import shutil
import subprocess
import sys
import tomllib
import types
import typing

import pytest
import yaml

from tests.deploy.conftest import DEPLOY, ROOT
from tierdex.app.http.server_settings import ServerSettings
from tierdex.settings import Settings
from tools.debian import has_programs

UNIT = DEPLOY / "systemd" / "tierdex.service"
KUBERNETES = DEPLOY / "kubernetes"
MANIFESTS = [
    document
    for name in ("writer.yaml", "reader.yaml")
    for document in yaml.safe_load_all((KUBERNETES / name).read_text())
]
# Variables that stand for flags (docs/operations.md); every other one is a setting.
FLAGS = {"TIERDEX_DATA", "TIERDEX_STORE", "TIERDEX_KEYS"}
KNOWN = FLAGS | {
    f"TIERDEX_{name.upper()}" for name in (*Settings.model_fields, *ServerSettings.model_fields)
}
MODELS = {"v1": "core_v1", "apps/v1": "apps_v1", "policy/v1": "policy_v1"}


@pytest.fixture(scope="session")
def analyze():
    if not has_programs(["systemd-analyze"], ["systemd"]):
        pytest.skip("systemd-analyze cannot be installed here")
    return "systemd-analyze"


def test_unit_is_one_and_is_shut_in(analyze, tmp_path):
    shutil.copy(UNIT, tmp_path)
    unit = tmp_path / UNIT.name
    unit.write_text(unit.read_text().replace("/opt/tierdex/bin/tierdex", sys.executable))
    checked = subprocess.run([analyze, "verify", "--man=no", unit], capture_output=True, text=True)
    assert UNIT.name not in checked.stderr, checked.stderr
    command = [analyze, "security", "--offline=yes", "--threshold=20", "--no-pager", unit]
    rated = subprocess.run(command, capture_output=True, text=True)
    assert rated.returncode == 0, rated.stdout[-300:] + rated.stderr


def test_unit_leaves_the_service_what_its_metrics_of_the_process_read():
    lines = UNIT.read_text().splitlines()
    assert "ProcSubset=pid" not in lines  # without /proc/stat prometheus_client shows none


def test_unit_gives_the_service_time_to_stop():
    assert re.search(r"^TimeoutStopSec=(\d+)$", UNIT.read_text(), re.MULTILINE)[1] > "10"


@pytest.fixture(scope="module", autouse=True)
def _models_alone():
    """Let the models of Kubernetes be imported without their client, which depends on httpx."""
    with pytest.MonkeyPatch.context() as patch:
        schema = types.ModuleType("lightkube.core.schema")
        schema.DictMixin, schema.field = object, dataclasses.field
        schema.dataclass = dataclasses.dataclass
        patch.setitem(sys.modules, "lightkube.core", types.ModuleType("lightkube.core"))
        patch.setitem(sys.modules, schema.__name__, schema)
        yield


@pytest.mark.parametrize(
    "manifest", MANIFESTS, ids=lambda m: f"{m['kind']} {m['metadata']['name']}"
)
def test_manifest_has_the_fields_of_its_kind(manifest):
    module = importlib.import_module(f"lightkube.models.{MODELS[manifest['apiVersion']]}")
    assert _strange(manifest, getattr(module, manifest["kind"])) == []


def _strange(given, kind, path=""):
    """Return the fields that the kind does not have, and those that it needs and are not given."""
    if typing.get_origin(kind) is typing.Union:  # Optional
        kind = typing.get_args(kind)[0]
    if typing.get_origin(kind) is list:
        assert isinstance(given, list), path
        (kind,) = typing.get_args(kind)
        return [n for i, each in enumerate(given) for n in _strange(each, kind, f"{path}/{i}")]
    if not dataclasses.is_dataclass(kind):
        return []
    assert isinstance(given, dict), path
    hints = typing.get_type_hints(kind, vars(sys.modules[kind.__module__]))
    fields = {field.metadata.get("json", field.name): field for field in dataclasses.fields(kind)}
    found = []
    for name, field in fields.items():
        if field.default is field.default_factory is dataclasses.MISSING and name not in given:
            found.append(f"{path}/{name} is missing")
    for name, value in given.items():
        if name in fields:
            found += _strange(value, hints[fields[name].name], f"{path}/{name}")
        else:
            found.append(f"{path}/{name} is none")
    return found


def test_pods_are_those_that_services_budgets_and_sets_select():
    pods = [
        m["spec"]["template"]["metadata"]["labels"] for m in MANIFESTS if "template" in m["spec"]
    ]
    for manifest in MANIFESTS:
        selector = manifest["spec"]["selector"]
        wanted = selector.get("matchLabels", selector)
        assert sum(wanted.items() <= labels.items() for labels in pods) == 1, manifest["metadata"]


def test_containers_mount_what_their_pod_has_and_set_what_the_service_knows():
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    base = yaml.safe_load((KUBERNETES / "kustomization.yaml").read_text())
    assert base["images"] == [{"name": "tierdex", "newTag": version}]
    named = dict(line.split("=", 1) for line in (KUBERNETES / "settings.env").read_text().split())
    for pods in (m["spec"] for m in MANIFESTS if "template" in m["spec"]):
        spec = pods["template"]["spec"]
        (container,) = spec["containers"]
        volumes = {each["name"] for each in spec["volumes"]}
        volumes |= {each["metadata"]["name"] for each in pods.get("volumeClaimTemplates", ())}
        assert {mount["name"] for mount in container["volumeMounts"]} == volumes
        assert container["securityContext"]["readOnlyRootFilesystem"]
        assert spec["terminationGracePeriodSeconds"] > 10
        assert not spec["enableServiceLinks"]  # TIERDEX_PORT=tcp://... of the Service `tierdex`
        for secret in (each["secret"] for each in spec["volumes"] if "secret" in each):
            # Secrets are root's, and the group's that `fsGroup` names: a service is neither without it.
            assert secret["defaultMode"] & 0o007 == 0
            assert spec["securityContext"]["fsGroup"] == spec["securityContext"]["runAsGroup"]
        variables = {each["name"] for each in container["env"]} | set(named)
        assert variables <= KNOWN, variables - KNOWN
        command = [sys.executable, "-m", "tierdex.app.cli", *container["args"], "--help"]
        subprocess.run(command, check=True, capture_output=True)
