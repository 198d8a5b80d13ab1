"""An index over a store that fails in every way, over a real socket: see tests/bad_store."""

from __future__ import annotations

import tempfile
from collections import Counter
from pathlib import Path

import pytest

from tests.bad_store.campaign import Campaign
from tests.servers.bad_proxy import running_bad_proxy
from tests.servers.moto_server import running_moto
from tests.servers.s3_server import set_aws_environment

FAULTS_OF_A_CAMPAIGN = 500


def fail_many_requests(count, seed=0):
    """Return how often each fault struck. Campaign n of a seed has the seed `seed * 1000 + n`."""
    struck = Counter()
    with pytest.MonkeyPatch.context() as patch:
        set_aws_environment(patch)
        with running_moto() as server, running_bad_proxy(server.endpoint_url) as proxy:
            for number in range(-(-count // FAULTS_OF_A_CAMPAIGN)):
                own_seed = seed * 1000 + number
                with tempfile.TemporaryDirectory(prefix="bad-store-") as folder:
                    campaign = Campaign(proxy, server.make_url("p"), Path(folder) / "data")
                    try:
                        campaign.run(seed=own_seed, faults=min(count, FAULTS_OF_A_CAMPAIGN))
                    except BaseException as error:
                        error.add_note(f"bad_store campaign seed {own_seed}")
                        raise
            struck.update(fault.fault.value for fault in proxy.history)
    return struck
