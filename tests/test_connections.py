"""A file of authorities (PEM) that cannot be used is refused at each door, by the name that it has there."""

from __future__ import annotations

import pytest

from tierdex import AsyncClient, Client, Settings
from tierdex.clock import ManualClock
from tierdex.errors import InvalidRequestError
from tierdex.following.open_source import open_source
from tierdex.index_service.peers.asking import Peers

STREAM = "rabbitmqs://127.0.0.1:1/orders"
DOORS = {
    "client": ("ca", lambda path: Client("https://127.0.0.1:1", ca=path)),
    "async client": ("ca", lambda path: AsyncClient("https://127.0.0.1:1", ca=path)),
    "peers": ("peer_ca", lambda path: Peers(Settings(peer_ca=path), ManualClock(), read_view=None)),
    "rabbitmq": ("ca_file", lambda path: open_source(STREAM, {"ca_file": path})),
}


@pytest.mark.parametrize("text", [None, "no certificate"])
@pytest.mark.parametrize("door", DOORS)
def test_file_of_authorities_that_cannot_be_used_is_refused_by_its_name(tmp_path, door, text):
    path = tmp_path / "authorities.pem"
    if text is not None:
        path.write_text(text)
    field, open_door = DOORS[door]
    with pytest.raises(InvalidRequestError, match=r"authorities\.pem cannot be used") as refused:
        open_door(str(path))
    assert refused.value.field == field
