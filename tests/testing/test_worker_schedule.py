"""Which tests share a process of `make test`."""

from __future__ import annotations

from pathlib import Path

from tests.worker_schedule import CLUSTER, LONGEST, SLOW, SPARK, group_of, is_slow, longest_first

ROOT = Path(__file__).parents[2]


def test_one_spark_session_serves_all_its_tests():
    assert group_of("tests/pipeline/merging/test_merge_job.py::test_x[a::b]") == SPARK
    assert group_of("tests/pipeline/lookups/test_lookup_job.py::test_y") == SPARK
    assert group_of(f"{CLUSTER}::test_z") == CLUSTER


def test_other_files_are_groups_of_their_own():
    assert (
        group_of("tests/app/http/test_server_process.py::test_x[1]")
        == "tests/app/http/test_server_process.py"
    )


def test_longest_groups_exist_and_come_first():
    assert all((ROOT / name).exists() for name in LONGEST)
    ids = [
        "tests/app/test_times.py::a",
        f"{CLUSTER}::b",
        "tests/pipeline/merging/test_merge_job.py::c",
    ]
    assert [nodeid[-1] for nodeid in sorted(ids, key=longest_first)] == ["c", "b", "a"]


def test_slow_places_exist_and_only_they_are_left_out():
    assert [name for name in SLOW if not (ROOT / name).exists()] == []
    assert is_slow("tests/pipeline/merging/test_merge_job.py")
    assert is_slow("tests/index_service/peers/test_peers.py")
    assert not is_slow("tests/index_service/peers/test_messages.py")
    assert not is_slow("tests/http_client.py")
