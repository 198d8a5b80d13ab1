"""`python -m tools.trim_spark`: removes Spark's jars that no test loads from an environment.

`make test` needs what a session of tables and streams loads, on this machine or a standalone cluster. No part
of pyspark can be left out when it is installed, so the jars of other parts go afterwards. A user's
installation is whole, and `pip install --force-reinstall pyspark` makes this one whole again.

Depends on pyspark's folder alone.
"""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

UNUSED = (
    "rocksdbjni-",  # a store of state that streams may choose
    "spark-connect_",  # Spark Connect's server
    "spark-mllib_", "breeze_", "spire_", "cats-kernel_",  # machine learning
    "kubernetes-",
    "spark-hive", "hive-", "datanucleus-", "derby",  # tables of Hive: Spark looks for all of it or none
    "scala-compiler-",  # Scala's shell
)  # fmt: skip


def main() -> None:
    """Remove the jars, and say how much that was."""
    found = find_spec("pyspark")
    if found is None or found.origin is None:
        return
    removed = [jar for jar in (Path(found.origin).parent / "jars").glob("*.jar") if is_unused(jar)]
    size = sum(jar.stat().st_size for jar in removed)
    for jar in removed:
        jar.unlink()
    print(f"{size / 1e6:.0f} MB of Spark's jars removed")


def is_unused(jar: Path) -> bool:
    """Say whether no test loads a jar."""
    return jar.name.startswith(UNUSED)


if __name__ == "__main__":
    main()
