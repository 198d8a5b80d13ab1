"""The command line: `tierdex COMMAND`. One small module a command, gathered here.

Exit codes: 0 found or done, 1 error, 2 usage, 3 not found, 4 incomplete (wins over 0 and 3).
`tierdex spark ...` is a group of its own (spark.py).

Depends on commands; heavy modules are imported inside the commands, so that `--help` is quick.
"""

from __future__ import annotations

import atexit
import gc
import os
import sys

from tierdex.app.cli.commands import make_cli


def main() -> None:
    """Run the command line; the entry point `tierdex`."""
    # Imports and kernels make a million objects that all stay. To walk through them again and again,
    # and once more at the end, is a third of a query in a process of its own. `reporting` enables the
    # collector for commands that may run for long.
    gc.disable()
    atexit.register(gc.freeze)
    try:
        make_cli()(prog_name="tierdex")
    except BrokenPipeError:  # `tierdex files | head`: whoever read has enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(0)
