"""`python -m tierdex.app.cli`: the same as `tierdex`."""

from tierdex.app.cli import main

main()
