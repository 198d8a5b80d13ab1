"""The chart of Helm: with its defaults it is what kustomize makes of the manifests."""

from __future__ import annotations

import re
import shutil
import subprocess

import pytest
import yaml

from tests.deploy.conftest import DEPLOY

CHART = DEPLOY / "helm" / "tierdex"
BASE = DEPLOY / "kubernetes"
_PLACE = re.compile(
    r"\{\{-? ?(?P<lists>toYaml )?\.(?P<path>[\w.]+)(?: \| nindent (?P<indent>\d+))? \}\}"
)


def rendered_here(release, values):
    """Render what the templates use of Helm's language: values, and a value as YAML."""
    known = {"Values": values, "Release": {"Name": release}}

    def filled(match):
        found = known
        for name in match["path"].split("."):
            found = found[name]
        if match["lists"] is None:
            return "" if found is None else str(found)
        text = yaml.safe_dump(found, sort_keys=False).rstrip()
        return "\n" + "\n".join(" " * int(match["indent"]) + line for line in text.splitlines())

    documents = []
    for path in sorted((CHART / "templates").glob("*.yaml")):
        text = _PLACE.sub(filled, path.read_text())
        assert "{{" not in text, path
        documents += [each for each in yaml.safe_load_all(text) if each]
    return documents


def rendered_by_helm(release, values, folder):
    changed = folder / "values.yaml"
    changed.write_text(yaml.safe_dump(values))
    told = subprocess.run(
        ["helm", "template", release, str(CHART), "--values", str(changed)],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    return [each for each in yaml.safe_load_all(told.stdout) if each]


@pytest.fixture(params=["here", "helm"])
def render(request, tmp_path):
    if request.param == "here":
        return rendered_here
    if shutil.which("helm") is None:
        pytest.skip("helm is not here")
    return lambda release, values: rendered_by_helm(release, values, tmp_path)


@pytest.fixture
def values():
    return yaml.safe_load((CHART / "values.yaml").read_text())


def by_name(documents):
    return {(each["kind"], each["metadata"]["name"]): each for each in documents}


def test_chart_with_its_defaults_is_what_the_manifests_are(render, values):
    manifests = [
        each
        for name in ("writer.yaml", "reader.yaml")
        for each in yaml.safe_load_all((BASE / name).read_text())
    ]
    made = by_name(render("tierdex", values))
    settings = made.pop(("ConfigMap", "tierdex-settings"))["data"]
    named = dict(line.split("=", 1) for line in (BASE / "settings.env").read_text().split())
    assert settings == named
    for each in made.values():
        pods = each["spec"].get("template", {}).get("spec", {})
        if pods:
            assert pods.pop("serviceAccountName") == "default"
            image = pods["containers"][0]["image"]
            assert image == f"tierdex:{values['image']['tag']}"
            pods["containers"][0]["image"] = "tierdex"  # kustomize sets the tag
        for claim in each["spec"].get("volumeClaimTemplates", ()):
            assert claim["spec"].pop("storageClassName", None) is None
    assert made == by_name(manifests)


def test_values_reach_the_manifests_and_two_releases_share_no_name(render, values):
    values["image"] = {"repository": "registry.example/tierdex", "tag": "9"}
    values["serviceAccountName"] = "bucket-user"
    values["settings"]["TIERDEX_STORE"] = "gs://other/prefix"
    values["writer"] |= {"replicas": 5, "storage": "2Ti", "storageClass": "fast"}
    values["reader"]["resources"]["limits"]["memory"] = "8Gi"
    made = by_name(render("shop", values))
    assert all(name.startswith("shop") for _, name in made)
    settings = made["ConfigMap", "shop-settings"]["data"]
    assert settings["TIERDEX_STORE"] == "gs://other/prefix"
    assert settings["TIERDEX_PEER_ALLOW"] == '["*.shop-writer:8080"]'
    writer = made["StatefulSet", "shop-writer"]["spec"]
    assert (writer["replicas"], writer["serviceName"]) == (5, "shop-writer")
    (claim,) = writer["volumeClaimTemplates"]
    assert claim["spec"]["storageClassName"] == "fast"
    assert claim["spec"]["resources"]["requests"]["storage"] == "2Ti"
    pods = writer["template"]["spec"]
    assert pods["serviceAccountName"] == "bucket-user"
    assert pods["containers"][0]["image"] == "registry.example/tierdex:9"
    told = {each["name"]: each.get("value") for each in pods["containers"][0]["env"]}
    assert told["TIERDEX_ADVERTISE_URL"] == "http://$(TIERDEX_NODE).shop-writer:8080"
    reader = made["Deployment", "shop-reader"]["spec"]["template"]["spec"]["containers"][0]
    assert reader["resources"]["limits"]["memory"] == "8Gi"
    assert made["Service", "shop"]["spec"]["selector"] == {"app": "shop-reader"}
