"""Warnings on stderr: the message and its fields."""

from __future__ import annotations

import subprocess
import sys

PROGRAM = """
import logging
from tierdex.app.cli.terminal.stderr_lines import show_warnings_with_fields
show_warnings_with_fields()
logger = logging.getLogger("tierdex.anything")
logger.info("unseen")
logger.warning("messages were gone", extra={"partition": "orders[0]", "begin": 12})
logger.warning("plain")
"""


def test_warning_that_nobody_handles_tells_its_fields():
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True
    )
    assert done.stderr == "messages were gone: partition=orders[0] begin=12\nplain\n"
