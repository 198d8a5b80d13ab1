"""Clients that generators make of openapi.yaml: every route, importable, and used against a server.

The generators are installed once, into `.cache/`, apart from the environment: openapi-python-client
wants an older typer than ours.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import yaml

from tests.callers_machine import installers_environment
from tests.servers.tierdex_server import running_tierdex

ROOT = Path(__file__).parents[3]
USERS = Path(__file__).parent / "users"
GENERATORS = ROOT / ".cache" / "generators"
NPM = ("openapi-typescript@^7", "openapi-fetch@^0.13", "typescript@^5")
COMPILE = ("--strict", "--target", "es2022", "--module", "nodenext", "--skipLibCheck")


def run(*command, **options):
    options = {"env": installers_environment(), **options}
    done = subprocess.run(command, capture_output=True, text=True, **options)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


@pytest.fixture(scope="module")
def python_generator():
    """The folder of openapi-python-client, to be first on a PYTHONPATH."""
    folder = GENERATORS / "python"
    if not folder.exists():
        wanted = tomllib.loads((ROOT / "pyproject.toml").read_text())["dependency-groups"]
        pip = [sys.executable, "-m", "pip", "install", "-q", "--disable-pip-version-check"]
        made = GENERATORS / f"python-{os.getpid()}"  # whole, or not there
        run(*pip, "--no-deps", "--target", str(made), *wanted["generators"])
        made.rename(folder)
    return folder


@pytest.fixture(scope="module")
def node_modules():
    """The folder of openapi-typescript, openapi-fetch and the compiler."""
    if shutil.which("npm") is None:
        pytest.skip("npm is not here")
    folder = GENERATORS / "npm"
    if not folder.exists():
        made = GENERATORS / f"npm-{os.getpid()}"
        made.mkdir(parents=True)
        run("npm", "install", "--no-audit", "--no-fund", "--prefix", str(made), *NPM)
        made.rename(folder)
    return folder / "node_modules"


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    with running_tierdex(tmp_path_factory.mktemp("generated") / "data") as server:
        yield server
        server.stop()


def test_python_client_of_every_route_puts_and_pages(python_generator, server, tmp_path):
    environment = {**os.environ, "PYTHONPATH": f"{python_generator}:{tmp_path}"}
    config = tmp_path / "generator.yaml"
    config.write_text((ROOT / "docs" / "generator.yaml").read_text())
    told = run(
        sys.executable, "-m", "openapi_python_client", "generate", "--meta", "none",
        "--path", str(ROOT / "openapi.yaml"), "--output-path", str(tmp_path / "made"),
        "--config", str(config), env=environment,
    )  # fmt: skip
    assert "WARNING" not in told, told
    printed = run(sys.executable, str(USERS / "user.py"), server.url, env=environment)
    paths = yaml.safe_load((ROOT / "openapi.yaml").read_text())["paths"]
    routes, *rest = json.loads(printed.splitlines()[-1])
    assert routes == sum(len(operations) for operations in paths.values())
    assert rest == [3, [3, 2, 1], True, [3, 0]]


def test_generated_package_has_a_name_of_its_own(python_generator, tmp_path):
    """Ours is `tierdex-client`: installed into one environment, one would replace the other."""
    environment = {**installers_environment(), "PYTHONPATH": str(python_generator)}
    run(
        sys.executable, "-m", "openapi_python_client", "generate", "--path", str(ROOT / "openapi.yaml"),
        "--config", str(ROOT / "docs" / "generator.yaml"), env=environment, cwd=tmp_path,
    )  # fmt: skip
    (made,) = tmp_path.iterdir()
    ours = tomllib.loads((ROOT / "packages/tierdex-client/pyproject.toml").read_text())["project"]
    assert ours["name"] == "tierdex-client"
    assert made.name == "tierdex-http-api-client"
    assert (made / "tierdex_http_api_client").is_dir()


def test_typescript_client_compiles_strictly_puts_and_pages(node_modules, server, tmp_path):
    (tmp_path / "node_modules").symlink_to(node_modules)
    (tmp_path / "package.json").write_text("{}")
    shutil.copy(USERS / "user.ts", tmp_path)
    tools = node_modules / ".bin"
    run(tools / "openapi-typescript", ROOT / "openapi.yaml", "-o", tmp_path / "schema.d.ts")
    run(tools / "tsc", *COMPILE, "user.ts", cwd=tmp_path)
    printed = run("node", "user.js", server.url, cwd=tmp_path)
    assert json.loads(printed) == [3, [3, 2, 1], True, [3, 0]]


@pytest.mark.heavy
def test_java_client_puts_and_finds(server, tmp_path):
    if shutil.which("mvn") is None or shutil.which("java") is None:
        pytest.skip("Maven and Java are not here")
    built = tmp_path / "built"
    run(
        "mvn", "-q", "-B", "-f", str(ROOT / "packages" / "java-client" / "pom.xml"), "-P", "client",
        f"-Dbuilt={built}", "package", "dependency:copy-dependencies", f"-DoutputDirectory={built / 'lib'}",
    )  # fmt: skip
    classes = f"{built / 'classes'}:{built / 'lib'}/*"
    host, port = server.address
    service = f"http://{host}:{port}"
    said = run("java", "-cp", classes, "tierdex.example.PutAndFind", service, "ORDER-JAVA")
    assert said == "orders 4096\n"
