"""Which tests share a process when several processes run the suite (`make test` runs two).

Tests of one file stay together and in order, as its fixtures expect; so do all that use the one Spark
session, and all that use the brokers. What takes longest begins first, so that no process is left alone
with it at the end.

Depends on pytest-xdist.
"""

from __future__ import annotations

from xdist.scheduler import LoadScopeScheduling

SPARK = "tests/pipeline"
BROKERS = "tests/following"  # one Kafka broker, one of each other kind
CLUSTER = "tests/pipeline/test_cluster.py"  # has processes of its own, not the session
LONGEST = (SPARK, "tests/torture/test_doses.py", CLUSTER)


def group_of(nodeid: str) -> str:
    """Return the name of the tests that share a process with this one."""
    path = nodeid.partition("::")[0]
    if path.startswith(f"{BROKERS}/"):
        return BROKERS
    return SPARK if path.startswith(f"{SPARK}/") and path != CLUSTER else path


def longest_first(nodeid: str) -> int:
    """Return the sort key that puts the longest groups in front."""
    group = group_of(nodeid)
    return LONGEST.index(group) if group in LONGEST else len(LONGEST)


class GroupScheduling(LoadScopeScheduling):
    """Gives a free process the next group, in the order of the collection."""

    def __init__(self, config, log) -> None:
        config.option.loadscopereorder = False  # not by the number of tests
        super().__init__(config, log)

    def _split_scope(self, nodeid: str) -> str:
        return group_of(nodeid)
