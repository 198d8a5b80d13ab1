"""Fails CI when no test ran, or when a test was skipped for a reason that is not on the list.

A skip is a hole in the proof: each allowed reason names something that a machine may really lack.
"""

from __future__ import annotations

import re
import sys
from collections import Counter
from pathlib import Path
from xml.etree import ElementTree

ALLOWED_SKIPS = (
    r"(radosgw|chromium|redis-server|nats-server|rabbitmq-server) cannot be installed here",
    r"(promtool|systemd-analyze|nginx) cannot be installed here",
    r"needs a real Kafka broker, which needs Maven and Java",
    r"needs a real RocketMQ broker, which needs Maven, Java and a network",
    r"npm is not here",
    r"helm is not here",
    r"Maven and Java are not here",
    r"shared/lake-tables is not there",
    r"(Azurite|fake-gcs-server) is not installed here: make clouds",
    r"this machine is no x86-64-v3",
    r"needs root and mkfs",
    r"cannot mount",
    r"needs a C compiler",
    r"LAKE_SPARK_PYTHON names no Python with pyspark",
    r"no C compiler has built the tree.s kernels",
)


def main(path: str) -> int:
    cases = list(ElementTree.parse(path).getroot().iter("testcase"))
    skips = Counter(
        skipped.get("message", "") for case in cases for skipped in case.iter("skipped")
    )
    failed = sum(
        case.find("failure") is not None or case.find("error") is not None for case in cases
    )
    ran = len(cases) - skips.total()
    for reason, count in skips.items():
        print(f"skipped {count}: {reason}")
    unknown = [r for r in skips if not any(re.search(allowed, r) for allowed in ALLOWED_SKIPS)]
    if ran == 0:
        print("no test ran")
        return 1
    if unknown:
        print(f"skip reasons that are not on the list: {unknown}")
        return 1
    print(f"{ran - failed} passed, {failed} failed, {skips.total()} skipped")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(*map(str, [Path(argument) for argument in sys.argv[1:2]])))
