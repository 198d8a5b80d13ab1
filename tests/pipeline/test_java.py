"""Spark finds a Java of version 17 or newer: the machine's, else the one from PyPI."""

from __future__ import annotations

import subprocess

import pytest

from tierdex.errors import NotFoundError
from tierdex.pipeline import java


def test_packaged_java_starts_without_the_module_that_it_lacks(tmp_path, monkeypatch):
    monkeypatch.setattr(java.tempfile, "gettempdir", lambda: str(tmp_path))
    home = java.make_shim(java.packaged_java())
    assert java.java_version(home / "bin" / "java") >= java.JAVA_MIN
    asked = [home / "bin" / "java", "--add-modules=jdk.incubator.vector", "-Dx=a b", "-version"]
    assert subprocess.run(asked, capture_output=True, check=False).returncode == 0


def test_a_java_that_is_too_old_is_not_taken(tmp_path, monkeypatch):
    old = tmp_path / "java8" / "bin" / "java"
    old.parent.mkdir(parents=True)
    old.write_text("#!/bin/sh\necho 'openjdk version \"1.8.0_402\"' >&2\n")
    old.chmod(0o755)
    assert java.java_version(old) == 1
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "java8"))
    monkeypatch.setattr(java.tempfile, "gettempdir", lambda: str(tmp_path))
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
