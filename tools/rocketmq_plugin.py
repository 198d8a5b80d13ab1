"""`python -m tools.rocketmq_plugin FOLDER`: builds the plug-in of RocketMQ's broker for each minor version.

Maven builds the jars; tests need the compiler alone (`compile_plugin`).
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

from tools.maven import run_tool

HOME = Path(__file__).parents[1] / "packages" / "rocketmq-plugin"
# By the RocketMQ that a jar is compiled against: the folder of the seams that its stores have.
SEAMS = {
    "5.1.4": "rocketmq-5.1",
    "5.2.0": "rocketmq-5.1",
    "5.3.3": "rocketmq-5.1",
    "5.4.0": "rocketmq-5.4",
    "5.5.0": "rocketmq-5.4",
}


def compile_plugin(version: str, jars: Path, folder: Path) -> Path:
    """Compile against a version's jars; return the folder of classes. Raises JarsUnavailableError."""
    sources = sorted(
        path
        for part in ("main", SEAMS[version])
        for path in (HOME / "src" / part / "java").rglob("*.java")
    )
    run_tool(
        ["javac", "-nowarn", "--release", "17", "-cp", f"{jars}/*", "-d", str(folder),
         *map(str, sources)]
    )  # fmt: skip
    return folder


def main() -> None:
    """Build each jar into the folder. Raises JarsUnavailableError."""
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    built = folder.absolute() / "rocketmq-plugin"
    for version, seams in SEAMS.items():
        run_tool(
            ["mvn", "-q", "-B", "-f", str(HOME / "pom.xml"), "package", f"-Drocketmq.version={version}",
             f"-Dseams={seams}", f"-Dbuilt={built}"]
        )  # fmt: skip
        for jar in built.glob(f"*-{version}.jar"):
            print(shutil.copy(jar, folder))
    shutil.rmtree(built)


if __name__ == "__main__":
    main()
