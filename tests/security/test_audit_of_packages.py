"""`make audit` tells clean, vulnerable and unreachable apart."""

from __future__ import annotations

import json
import sys

import pytest

from tools import audit


def command(stdout="", stderr="", code=0):
    script = "import sys; sys.stdout.write(sys.argv[1]); sys.stderr.write(sys.argv[2])"
    return [sys.executable, "-c", f"{script}; sys.exit({code})", stdout, stderr]


def report(*vulnerabilities):
    package = {"name": "thing", "version": "1.0", "vulns": list(vulnerabilities)}
    return json.dumps({"dependencies": [package, {"name": "local", "skip_reason": "editable"}]})


def test_clean_environment_passes(capsys):
    assert audit.main(command(report())) == 0
    assert capsys.readouterr().out == "audited 2 packages, 0 with known vulnerabilities\n"


def test_vulnerability_fails_and_is_named(capsys):
    found = report({"id": "CVE-1", "fix_versions": ["1.1"]})
    assert audit.main(command(found, code=1)) == 1
    assert "thing 1.0: CVE-1, fixed in 1.1" in capsys.readouterr().out


@pytest.mark.parametrize(
    "said",
    ["Could not connect to the service", "ConnectionError: refused", "Max retries exceeded with url",
     "502 Server Error: Bad Gateway", "Read timed out", "403 Client Error: Forbidden for url"],
)  # fmt: skip
def test_service_out_of_reach_is_a_counted_skip(capsys, said):
    assert audit.main(command(stderr=said, code=1)) == 0
    assert capsys.readouterr().out == f"{audit.UNREACHABLE}\n"


def test_broken_tool_fails(capsys):
    assert audit.main(command(stderr="No module named pip_audit", code=1)) == 1
    assert "No module named pip_audit" in capsys.readouterr().out
