"""An index over a store that fails in every way that we know, over a real socket."""

from __future__ import annotations

import pytest

from tests.bad_store.campaign import Campaign
from tests.patience import PATIENCE_S
from tests.servers.bad_proxy import Fault, running_bad_proxy
from tierdex.errors import StoreUnavailableError
from tierdex.settings import load_settings
from tierdex.storage_layer.open import open_store

SEED = 11
FAULTS = 100


@pytest.fixture
def proxy(s3_server):
    with running_bad_proxy(s3_server.endpoint_url) as proxy:
        yield proxy


def test_nothing_is_lost_doubled_or_orphaned_over_a_bad_store(proxy, s3_server, tmp_path):
    Campaign(proxy, s3_server.make_url("prefix"), tmp_path / "data").run(seed=SEED, faults=FAULTS)
    assert len(proxy.history) >= FAULTS
    assert len({struck.fault for struck in proxy.history}) >= len(Fault) - 3


@pytest.fixture
def cut_store(moto_server):
    """A store of one object, whose coming answers are cut behind their first header."""
    with running_bad_proxy(moto_server.endpoint_url) as proxy:
        url = proxy.url_of(moto_server.make_url())
        store = open_store(url, settings=load_settings(store_attempts=1, store_timeout=PATIENCE_S))
        store.put("folder/key", b"body")
        proxy.plan = lambda _request: Fault.CUT_HEAD
        yield store
        store.close()


@pytest.mark.parametrize(
    "ask",
    [
        lambda store: list(store.list("folder/")),
        lambda store: store.list_folders(""),
        lambda store: store.head("folder/key"),
        lambda store: store.get("folder/key"),
        lambda store: store.get("folder/key", 1, 2),
    ],
    ids=["list", "folders", "head", "get", "range"],
)
def test_answer_that_was_cut_is_never_an_empty_one(cut_store, ask):
    """A listing without its end must not look like a store without objects."""
    with pytest.raises(StoreUnavailableError):
        ask(cut_store)
