"""The proxy of docs/access.md: nginx ends TLS with the very lines that the page shows."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

from tests.app.http.test_certificate import make_certificate
from tests.servers.tierdex_server import running_tierdex
from tierdex import Client
from tierdex.app.keys import KeyFile
from tierdex.app.rights import Scope
from tierdex.clock import SystemClock
from tierdex.errors import AuthenticationError
from tierdex.filesystem import LocalFileSystem
from tierdex.ids import SeededIds
from tools.debian import has_programs
from tools.free_port import find_free_port
from tools.server_process import ServerProcess

PAGE = Path(__file__).parents[3] / "docs" / "access.md"
SHOWN_ADDRESS = "http://127.0.0.1:8080"
MANY = 200_000  # entries of one request: 6 MB, more than nginx takes by default
CONFIGURATION = """
daemon off; pid {folder}/pid; error_log {folder}/errors; worker_processes 1; user root;
events {{}}
http {{
    access_log off;
    client_body_temp_path {folder}/body; proxy_temp_path {folder}/proxy;
    fastcgi_temp_path {folder}/f; uwsgi_temp_path {folder}/u; scgi_temp_path {folder}/s;
    server {{
        listen 127.0.0.1:{port} ssl;
        ssl_certificate {certificate}; ssl_certificate_key {key};
{shown}
    }}
}}
"""


def shown_lines(address):
    """Return the lines of the page, for a service at `address`."""
    (block,) = re.findall(r"```nginx\n(.*?)```", PAGE.read_text(), re.DOTALL)
    assert block.count(SHOWN_ADDRESS) == 1
    return block.replace(SHOWN_ADDRESS, address)


def test_clients_put_and_ask_through_the_proxy_of_the_page(tmp_path):
    if not has_programs(["nginx"], ["nginx-light"]):
        pytest.skip("nginx cannot be installed here")
    data, proxy = tmp_path / "data", tmp_path / "nginx"
    data.mkdir()
    proxy.mkdir()
    keys = KeyFile(LocalFileSystem(), data / "keys.json", clock=SystemClock(), ids=SeededIds(3))
    api_key, port = keys.create(Scope.WRITE), find_free_port()
    certificate, key = make_certificate(tmp_path / "tls")
    with running_tierdex(data) as server:
        text = CONFIGURATION.format(
            folder=proxy, port=port, certificate=certificate, key=key, shown=shown_lines(server.url)
        )
        (proxy / "nginx.conf").write_text(text)
        command = [shutil.which("nginx"), "-c", str(proxy / "nginx.conf"), "-p", str(proxy)]
        nginx, url = ServerProcess(command, proxy / "output", port), f"https://127.0.0.1:{port}"
        nginx.start()
        try:
            with Client(url, ca=certificate, api_key=api_key) as client:
                offsets = list(range(MANY))
                client.put_batch(
                    topic="t", keys=[f"k{n}" for n in offsets], queue_id=0, offset=offsets, size=1,
                    timestamp=5,
                )  # fmt: skip
                assert client.query("t", key=f"k{MANY - 1}").entries[0].offset == MANY - 1
            with Client(url, ca=certificate) as stranger, pytest.raises(AuthenticationError):
                stranger.query("t", key="k1")
        finally:
            nginx.stop()
