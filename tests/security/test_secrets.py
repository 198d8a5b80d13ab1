"""API keys and credentials of the store: hashed where they lie, compared in constant time, never told."""

from __future__ import annotations

import ast
import hmac
import inspect
import os
import stat
from pathlib import Path

import orjson
import pytest

from tests.app.http.hostile.raw_http import KeptConnection, send_raw
from tests.servers.forked_tierdex import run_tierdex
from tests.servers.tierdex_server import running_tierdex
from tierdex.app import keys as keys_module
from tierdex.app.keys import KeyFile
from tierdex.app.rights import Scope
from tierdex.clock import ManualClock
from tierdex.errors import AuthenticationError
from tierdex.fileparts.kernels.cache import private_folder
from tierdex.filesystem import LocalFileSystem
from tierdex.ids import SeededIds

STORE_SECRET = "storeSecretThatNobodyMayRead"


@pytest.fixture
def keys(tmp_path):
    return KeyFile(LocalFileSystem(), tmp_path / "keys.json", clock=ManualClock(), ids=SeededIds(4))


def test_key_file_holds_neither_key_nor_secret(keys, tmp_path):
    key = keys.create(Scope.ADMIN, name="ci")
    text = (tmp_path / "keys.json").read_text()
    secret = key.split("_", 2)[2]
    assert len(secret) >= 40
    assert not any(secret[i : i + 12] in text for i in range(len(secret) - 12))
    (row,) = orjson.loads(text)["keys"]
    assert len(row["sha256"]) == 64


def test_every_look_at_a_key_goes_through_one_constant_time_comparison(keys, monkeypatch):
    """Whether the id is known or not, and wherever the first wrong character is."""
    key = keys.create(Scope.READ)
    compared = []
    real = hmac.compare_digest

    def noting(a, b):
        compared.append((len(a), len(b)))
        return real(a, b)

    monkeypatch.setattr(keys_module.hmac, "compare_digest", noting)
    for wrong in (f"x{key[1:]}", f"{key[:-1]}x", "tdx_00000000_x", "", "no key at all"):
        with pytest.raises(AuthenticationError) as caught:
            keys.identify(wrong)
        assert str(caught.value) == "no such key: send `Authorization: Bearer <key>`"
    keys.identify(key)
    assert compared == [(64, 64)] * 6


def test_no_secret_is_compared_with_an_equals_sign():
    tree = ast.parse(inspect.getsource(keys_module.KeyFile.identify).strip())
    equal = [node for node in ast.walk(tree) if isinstance(node, ast.Eq | ast.NotEq)]
    lengths = [node for node in ast.walk(tree) if isinstance(node, ast.Compare)]
    assert len(equal) == sum("len(parts)" in ast.unparse(node) for node in lengths)


def test_run_of_a_service_tells_no_secret(tmp_path, moto_server):
    """Everything that a server and the tools write, over requests good and bad, searched."""
    key_of = {}
    output = []
    for scope in ("read", "admin"):
        made = run_tierdex("keys", "create", "--scope", scope, "--data", tmp_path)
        assert made.returncode == 0
        key_of[scope] = made.stdout.strip()
        output.append(made.stderr)
    bucket = moto_server.make_bucket()
    environment = {
        "AWS_SECRET_ACCESS_KEY": STORE_SECRET,
        "AWS_ACCESS_KEY_ID": "storeAccessKey",
        "AWS_ENDPOINT_URL_S3": moto_server.endpoint_url,
    }
    with running_tierdex(
        tmp_path, "--store", f"s3://{bucket}/p", environment=environment
    ) as server:
        for key in (*key_of.values(), key_of["admin"][:-1], "tdx_wrong_key-in-the-clear"):
            caller = KeptConnection(server.address, [f"Authorization: Bearer {key}"])
            for path in (
                "/v1/topics", "/v1/entries?topic=orders&key=QUERIED-KEY", "/v1/admin/files",
                "/v1/entries?key=QUERIED-KEY", "/nothing?api_key=QUERIED-KEY", "/metrics",
            ):  # fmt: skip
                _, body = caller.get(path)
                output.append(body.decode())
            caller.close()
            send_raw(
                server.address,
                [
                    f"GET /v1/topics HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {key}\x00\r\n\r\n".encode()
                ],
            )
        assert server.stop() == 0
        output += server.lines
    listed = run_tierdex("keys", "list", "--data", tmp_path)
    assert listed.returncode == 0
    output += [listed.stdout, listed.stderr]
    told = "\n".join(output)
    assert '"route":"/v1/entries"' in told
    secrets = [key.split("_", 2)[2] for key in key_of.values()]
    for secret in (*secrets, STORE_SECRET, "QUERIED-KEY", "key-in-the-clear"):
        assert secret not in told
    for folder, _, names in os.walk(tmp_path):
        for name in names:
            data = (Path(folder) / name).read_bytes()
            assert not any(secret.encode() in data for secret in (*secrets, STORE_SECRET)), name


def test_compiled_kernels_are_never_taken_from_a_folder_of_somebody_else(tmp_path):
    """What lies in the cache folder is executed."""
    first = private_folder(tmp_path)
    assert private_folder(tmp_path) == first
    assert stat.S_IMODE(first.stat().st_mode) == 0o700
    first.chmod(0o770)
    assert private_folder(tmp_path) != first
    first.rmdir()
    (tmp_path / "elsewhere").mkdir(mode=0o700)
    first.symlink_to(tmp_path / "elsewhere")
    assert private_folder(tmp_path) not in (first, tmp_path / "elsewhere")
