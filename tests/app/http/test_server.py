"""Where a service listens, and what is said when it cannot."""

from __future__ import annotations

import socket

import pytest

from tierdex.app.http.server import _listen
from tierdex.disk_errors import disk_error


@pytest.mark.parametrize(
    ("host", "advice"), [("127.0.0.1", "choose another port"), ("192.0.2.1", "choose another")]
)
def test_address_that_cannot_be_had_is_named_and_no_disk_is_blamed(host, advice):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(OSError, match="Errno") as refused:
            _listen(host, port)
    said = str(disk_error(refused.value))
    assert f"{host}:{port}" in said
    assert advice in said
    assert "disk" not in said
