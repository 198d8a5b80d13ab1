"""The command line: `tierdex COMMAND`, one module a command.

Exit codes: 0 found or done, 1 error, 2 usage, 3 not found, 4 incomplete (which wins over 0 and 3).
`tierdex spark ...` is a group of its own (spark.py). Commands import heavy modules when they run,
so that `--help` is quick.

Depends on commands and stderr_lines.
"""

from __future__ import annotations

import atexit
import gc
import os
import sys

from tierdex.app.cli.commands import make_cli
from tierdex.app.cli.terminal.stderr_lines import show_compilations, show_warnings_with_fields


def main() -> None:
    """Run the command line; the entry point `tierdex`."""
    # Imports and kernels make a million objects, none of which is garbage. Scanning them takes a third
    # of the time of one `tierdex query`. `reporting` enables the collector for long commands.
    gc.disable()
    atexit.register(gc.freeze)
    show_compilations()
    show_warnings_with_fields()
    try:
        make_cli(next(iter(sys.argv[1:]), None))(prog_name="tierdex")
    except BrokenPipeError:  # `tierdex files | head`: the reader has closed the pipe
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(0)
