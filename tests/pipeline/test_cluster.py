"""A real standalone cluster whose executors do not have the package; one of them is killed at work."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

import pyspark
import pytest

from tests.patience import PATIENCE_S
from tests.pipeline import cluster_job
from tests.pipeline.conftest import SHORT_LIVED_JVM
from tests.pipeline.log_store import fill, publish, told
from tests.pipeline.log_store import open_log as open_message_log
from tierdex.pipeline.java import use_java
from tierdex.pipeline.jobs.snapshot import open_log
from tierdex.pipeline.packing import pack_environment
from tierdex.storage_layer.open import open_store
from tools.free_port import find_free_port


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    """Master and a worker with room for two executors, on loopback; yields (url, folder)."""
    folder = tmp_path_factory.mktemp("cluster")
    use_java()
    home = Path(pyspark.__file__).parent
    port, web = find_free_port(), find_free_port()
    environment = {
        **os.environ,
        "SPARK_HOME": str(home),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_DAEMON_MEMORY": "192m",
        "SPARK_DAEMON_JAVA_OPTS": SHORT_LIVED_JVM,
        "SPARK_NO_DAEMONIZE": "1",
    }
    started = []

    def start(name, *arguments):
        with open(folder / f"{name}.log", "wb") as log:
            started.append(
                subprocess.Popen(
                    [str(home / "bin" / "spark-class"), *arguments],
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    env=environment,
                    start_new_session=True,
                )
            )

    try:
        start(
            "master", "org.apache.spark.deploy.master.Master",
            "-h", "127.0.0.1", "-p", str(port), "--webui-port", str(web),
        )  # fmt: skip
        start(
            "worker", "org.apache.spark.deploy.worker.Worker",
            "-h", "127.0.0.1", "-c", "2", "-m", "1g", "-d", str(folder / "work"),
            "--webui-port", "0", f"spark://127.0.0.1:{port}",
        )  # fmt: skip
        assert pack_environment(folder / "env.tar") > 0  # while they start
        wait_for(lambda: workers_of(web) == 1, PATIENCE_S, folder)
        yield f"spark://127.0.0.1:{port}", folder
    finally:
        for process in reversed(started):
            process.terminate()
        for process in started:
            try:
                process.wait(PATIENCE_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def workers_of(web):
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{web}/json/", timeout=PATIENCE_S) as answer:
            return json.load(answer)["aliveworkers"]
    except OSError:
        return 0


def wait_for(condition, seconds, folder):
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            logs = "\n".join(path.read_text()[-2000:] for path in folder.glob("*.log"))
            raise TimeoutError(logs)
        time.sleep(0.1)


def test_killed_executor_loses_and_doubles_nothing_and_messages_are_read_from_the_store_alone(
    cluster, tmp_path
):
    master, folder = cluster
    archive = folder / "env.tar"
    store = f"file://{tmp_path}/store"
    with open_message_log(tmp_path / "log", f"{store}-of-a-log") as log:
        for first in range(0, cluster_job.MESSAGES, cluster_job.MESSAGES // 2):
            fill(log, cluster_job.MESSAGES // 2, first)
            publish(log)
        messages = told(log)
    bare = Path(sys.base_prefix) / "bin" / f"python{sys.version_info[0]}.{sys.version_info[1]}"
    # The driver's own environment must not reach the executors by accident.
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    with open(folder / "job.log", "wb") as log:
        job = subprocess.Popen(
            [sys.executable, cluster_job.__file__, master, str(archive), str(bare), store,
             str(tmp_path), SHORT_LIVED_JVM],
            cwd=tmp_path, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=environment,
        )  # fmt: skip
    try:
        wait_for(
            lambda: (tmp_path / "executor").exists() or job.poll() is not None, PATIENCE_S, folder
        )
        assert job.poll() is None, (folder / "job.log").read_text()[-4000:]
        executor = int((tmp_path / "executor").read_text())
        command = Path(f"/proc/{executor}/cmdline").read_bytes()
        assert re.search(rb"CoarseGrainedExecutorBackend", command), command
        os.kill(executor, signal.SIGKILL)
        job.wait(PATIENCE_S)
    finally:
        if job.poll() is None:
            job.kill()
            job.wait()
    assert job.returncode == 0, (folder / "job.log").read_text()[-4000:]
    result = json.loads((tmp_path / "result").read_text())
    entries, files = cluster_job.ENTRIES, cluster_job.PARTITIONS
    assert result == {
        "entries": entries,
        "tasks_of_scan": files,
        "found": entries // 100,
        "tasks_of_lookup": 2,
        "sound": files,
        "merged": files,
        "messages": [
            len(messages), sum(m[3] for m in messages), sum(len(m[8]) for m in messages),
        ],
        "files_of_messages": 2,
        "some_messages": sum(m[1] == "a" and m[3] < 10 for m in messages),
        "batches": -(-len(messages) // 150),
    }  # fmt: skip
    streamed = [
        json.loads(line)
        for path in (tmp_path / "streamed").glob("part-*.json")
        for line in path.read_text().splitlines()
    ]
    assert sorted(tuple(row.values()) for row in streamed) == [m[1:4] for m in messages]
    # One commit published the job, one the merge.
    assert open_log(open_store(store), "spark").load().number == 2
