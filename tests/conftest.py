"""What the whole suite shares: S3 servers, each started once a process and only when a test wants it,
which tests several processes run and in which order, where they write, and what the garbage collector
need not look at.
"""

from __future__ import annotations

import gc
import os

import pytest
from hypothesis import HealthCheck, settings

from tests import callers_machine
from tests.servers.moto_server import running_moto
from tests.servers.radosgw import running_radosgw
from tests.servers.s3_server import set_aws_environment
from tests.torture.quick_folder import memory_with_room
from tests.worker_schedule import GroupScheduling, is_slow, longest_first

# A busy machine makes examples slowly, and runs them slowly: that is no finding.
settings.register_profile("patient", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("patient")

S3_SERVERS = frozenset({"moto_server", "radosgw", "s3_server"})
_ROOM_BYTES = 6 << 30  # a third is for the packages that a Spark cluster unpacks


def pytest_configure(config):
    """Let `tmp_path` lie in memory where there is room: tests wait for thousands of syncs otherwise.

    None sees a difference. The power fails on simulated disks only, what kill -9 leaves is the page cache,
    here as there, and a test that needs a real file system makes its own.
    """
    if (folder := memory_with_room(_ROOM_BYTES)) is not None:
        os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", str(folder))


def pytest_sessionstart(session):
    """Let no test see the caller's working folder, home and settings; paths of arguments are resolved by now.

    A process that only hands tests out stays where it is: those that it starts read the arguments there.
    """
    if hasattr(session.config, "workerinput") or not getattr(session.config.option, "tx", None):
        callers_machine.leave()


def pytest_addoption(parser):
    parser.addoption(
        "--fast", action="store_true", help="leave out what tests/worker_schedule.py calls slow"
    )


def pytest_ignore_collect(collection_path, config):
    path = collection_path.relative_to(config.rootpath).as_posix()
    return True if config.getoption("fast") and is_slow(path) else None


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config, log):
    return GroupScheduling(config, log)


@pytest.hookimpl(wrapper=True)
def pytest_collection(session):
    """Collect without the garbage collector, which then never looks at the half million objects again.

    It would at each full run: a third of the collection's time, and a twentieth of that of the tests.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.collect()
        gc.freeze()
        gc.enable()


def pytest_collection_modifyitems(config, items):
    named_by_place = [item.nodeid for item in items if " at 0x" in item.nodeid]
    if named_by_place:  # the processes would not agree on what they have collected
        raise pytest.UsageError(
            f"give these parameters ids that are not addresses: {named_by_place}"
        )
    if "heavy" not in (config.option.markexpr or ""):
        heavy = [item for item in items if item.get_closest_marker("heavy")]
        config.hook.pytest_deselected(items=heavy)
        items[:] = [item for item in items if item not in heavy]
    if config.getoption("fast"):  # its environment has no S3 server
        asking = [item for item in items if S3_SERVERS & set(item.fixturenames)]
        config.hook.pytest_deselected(items=asking)
        items[:] = [item for item in items if item not in asking]
    if hasattr(config, "workerinput"):
        items.sort(key=lambda item: longest_first(item.nodeid))


@pytest.fixture(scope="session")
def aws_environment():
    """The test servers' credentials in the environment, and nothing of the machine's own."""
    with pytest.MonkeyPatch.context() as patch:
        set_aws_environment(patch)
        yield


@pytest.fixture(scope="session")
def radosgw(aws_environment):
    """A real S3 server (`tests.servers.s3_server.S3Server`); skips where it cannot be installed."""
    with running_radosgw() as server:
        yield server


@pytest.fixture(scope="session")
def moto_server(aws_environment):
    """The quick S3 server that needs nothing but PyPI."""
    with running_moto() as server:
        yield server


@pytest.fixture(params=["moto", "radosgw"])
def s3_server(request):
    """Both S3 servers, one after the other."""
    return request.getfixturevalue({"moto": "moto_server", "radosgw": "radosgw"}[request.param])
