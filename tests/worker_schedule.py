"""Which tests share a process when several processes run the suite, and which `make test-fast` leaves out.

Tests of one file stay together and in order, as its fixtures expect; so do all that use the one Spark
session, all that use the brokers, and all that read the sources. What takes longest begins first, so that
no process is left alone with it at the end.

The inner loop (`--fast`) has the tests that run within their process and are quick. `SLOW` names the others:
folders whose tests start processes, servers, browsers or a JVM or are doses of torture, and files whose tests
together take more than two and a half seconds of CPU.

Depends on pytest-xdist.
"""

from __future__ import annotations

from xdist.scheduler import LoadScopeScheduling

SPARK = "tests/pipeline"
BROKERS = "tests/following"  # one Kafka broker, one of each other kind
TABLES = "tests/following/tables/"  # of a lake: files alone
CLUSTER = "tests/pipeline/test_cluster.py"  # has processes of its own, not the session
SOURCES = "tests/test_tidy.py"  # these parse all modules, once
READ_SOURCES = (
    SOURCES,
    "tests/docs/test_generated.py",
    "tests/docs/test_glossary.py",
    "tests/security/test_input_names_no_place.py",
    "tests/test_depends_on.py",
)
LONGEST = (SPARK, CLUSTER, "tests/torture/test_doses.py", BROKERS)
SLOW = frozenset(
    {
        SPARK,
        "tests/app/cli",
        "tests/app/console",
        "tests/demo",
        "tests/app/probe",
        "tests/app/http/test_compression.py",
        "tests/app/http/test_head.py",
        "tests/app/http/test_openapi.py",
        "tests/bad_store",
        "tests/crash",
        "tests/deploy",
        "tests/docs",
        "tests/end_to_end",
        "tests/following",
        "tests/test_fork.py",
        "tests/full_disk",
        "tests/app/http/hostile",
        "tests/app/http/test_certificate.py",
        "tests/app/http/test_connection.py",
        "tests/app/http/test_generated_clients.py",
        "tests/app/http/test_nginx.py",
        "tests/app/http/test_schemathesis.py",
        "tests/app/http/test_server_process.py",
        "tests/client/test_client_package.py",
        "tests/stateful",
        "tests/torture",
        "tests/compactor/test_collect.py",
        "tests/compactor/test_unpublished.py",
        "tests/testing/test_store_contract_on_s3.py",
        "tests/fileparts/kernels/test_compile.py",
        "tests/fileparts/kernels/test_kept_kernels.py",
        "tests/fileparts/test_filter.py",
        "tests/index_service/ingest/test_offsets.py",
        "tests/index_service/query/test_in_memory.py",
        "tests/index_service/test_disk_errors.py",
        "tests/index_service/test_hot_key.py",
        "tests/index_service/test_interrupts.py",
        "tests/index_service/peers/test_peers.py",
        "tests/index_service/test_private_mapping.py",
        "tests/index_service/test_read_tier.py",
        "tests/indexfile/compacted/test_corruption.py",
        "tests/log_service/recovery/test_crash.py",
        "tests/log_service/forget/test_forgetting.py",
        "tests/log_service/tiering/test_log_merge.py",
        "tests/log_service/tiering/test_published_merge.py",
        "tests/log_service/read/test_quick_reads.py",
        "tests/log_service/recovery/test_takeover.py",
        "tests/logfile/journal/test_recovery.py",
        "tests/storage_layer/test_s3.py",
        "tests/test_depends_on.py",
        "tests/test_package.py",
        "tests/rocketmq/test_faults.py",
        "tests/test_types.py",
    }
)


def group_of(nodeid: str) -> str:
    """Return the name of the tests that share a process with this one."""
    path = nodeid.partition("::")[0]
    if path.startswith(f"{BROKERS}/") and not path.startswith(TABLES):
        return BROKERS
    if path in READ_SOURCES:
        return SOURCES
    return SPARK if path.startswith(f"{SPARK}/") and path != CLUSTER else path


def longest_first(nodeid: str) -> int:
    """Return the sort key that puts the longest groups in front."""
    group = group_of(nodeid)
    return LONGEST.index(group) if group in LONGEST else len(LONGEST)


def is_slow(path: str) -> bool:
    """Say whether `make test-fast` leaves out what lies at `path`, a folder or a file."""
    return any(path == slow or path.startswith(f"{slow}/") for slow in SLOW)


class GroupScheduling(LoadScopeScheduling):
    """Gives a free process the next group, in the order of the collection."""

    def __init__(self, config, log) -> None:
        config.option.loadscopereorder = False  # not by the number of tests
        super().__init__(config, log)

    def _split_scope(self, nodeid: str) -> str:
        return group_of(nodeid)
