"""A Spark session with the source registered, for tests, docs and the command line.

Any session will do for the pipeline (`register` is all it needs). This one suits a laptop: loopback
only, this Python for the workers, Arrow batches of a useful size.

Depends on java and registration.
"""

from __future__ import annotations

import os
import site
import sys
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tierdex.errors import NotFoundError, TierdexError
from tierdex.pipeline.java import use_java

if TYPE_CHECKING:
    from collections.abc import Iterator


def make_session(
    master: str = "local[*]",
    *,
    name: str = "tierdex",
    conf: dict[str, str] | None = None,
    archive: str | None = None,
    executor_python: str | None = None,
) -> Any:
    """Return a session (a running one is reused) with ``format("tierdex")`` registered.

    `conf` are Spark's own settings, on top of ours. For executors without the package, `archive` is
    what `pack_environment` wrote, and `executor_python` their Python, of this minor version (and on
    this machine as well: Spark plans with it). Raises NotFoundError when there is no Java.
    """
    use_java()
    if executor_python is not None:
        os.environ["PYSPARK_PYTHON"] = executor_python
    # Without it workers take whatever python3 comes first in PATH.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    from pyspark.sql import SparkSession

    from tierdex.pipeline.registration import register

    chosen = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.execution.arrow.maxRecordsPerBatch": "65536",
        "spark.sql.session.timeZone": "UTC",
    }
    if master.startswith("local"):
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
        chosen |= {"spark.driver.bindAddress": "127.0.0.1", "spark.driver.host": "127.0.0.1"}
    if archive is not None:
        chosen |= {"spark.archives": f"{archive}#env", "spark.executorEnv.PYTHONPATH": "./env"}
        _lend_packages_to_planner()
    builder = SparkSession.builder.master(master).appName(name)
    for key, value in (chosen | (conf or {})).items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    register(spark)
    return spark


def _lend_packages_to_planner() -> None:
    """Make the Python with which Spark plans on this machine import this process's packages.

    It is the executors' Python, without packages of its own; the JVM passes our PYTHONPATH to it,
    and not to executors on other machines.
    """
    home = Path(__file__).parent.parent.parent  # where the package lies
    paths = [*site.getsitepackages(), str(home), os.environ.get("PYTHONPATH", "")]
    os.environ["PYTHONPATH"] = os.pathsep.join(path for path in paths if path)


@contextmanager
def plain_errors() -> Iterator[None]:
    """Turn Spark's errors into one of ours, without the stacks.

    A missing pyspark becomes a NotFoundError that names what to install.
    """
    try:
        from py4j.protocol import Py4JError
        from pyspark.errors import PySparkException
    except ImportError as error:
        raise NotFoundError(
            f"Spark is not installed ({error.name}): pip install 'tierdex[spark]'"
        ) from error
    try:
        yield
    except (PySparkException, Py4JError) as error:
        raise TierdexError(_last_words(error)) from error


def _last_words(error: Exception) -> str:
    """Return a task's own error if there is one of ours, else what Spark says first."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    ours = [line for line in lines if line.startswith("tierdex.errors.")]
    if ours:
        return ours[-1].partition(": ")[2]
    return lines[0] if lines else type(error).__name__
