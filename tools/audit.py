"""Asks the advisory service whether anything installed here has a known vulnerability.

`make audit`: exit code 1 with what was found. Where the service cannot be reached nothing is proved:
that is said in one counted line, as for a skipped test, and is no failure.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence

COMMAND = (
    sys.executable, "-m", "pip_audit", "--local", "--skip-editable", "--vulnerability-service", "osv",
    "--progress-spinner", "off", "--format", "json", "--timeout", "10",
)  # fmt: skip
UNREACHABLE = "skipped 1: the advisory service cannot be reached"
_NO_ANSWER = re.compile(
    r"connect|connection|timed? ?out|timeout|max retries|name resolution|proxy|5\d\d server error"
    r"|40[37] client error|serviceerror",
    re.IGNORECASE,
)
_TIMEOUT_S = 300


def main(command: Sequence[str] = COMMAND) -> int:
    """Run the audit; return the exit code."""
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, check=False, timeout=_TIMEOUT_S
        )
    except subprocess.TimeoutExpired:
        print(UNREACHABLE)
        return 0
    try:
        packages: list[dict[str, Any]] = json.loads(done.stdout)["dependencies"]
    except (ValueError, KeyError):
        if _NO_ANSWER.search(done.stderr):
            print(UNREACHABLE)
            return 0
        print(done.stderr.strip() or "pip-audit said nothing")
        return 1
    found = [package for package in packages if package.get("vulns")]
    for package in found:
        for vulnerability in package["vulns"]:
            fixed = ", ".join(vulnerability.get("fix_versions", [])) or "nowhere yet"
            print(
                f"{package['name']} {package['version']}: {vulnerability['id']}, fixed in {fixed}"
            )
    print(f"audited {len(packages)} packages, {len(found)} with known vulnerabilities")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
