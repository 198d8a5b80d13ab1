"""What a form of file is to the experiment on corruption."""

from __future__ import annotations

from pathlib import Path

from tierdex.errors import CorruptFileError, UnsupportedFormatError

REFUSALS = (CorruptFileError, UnsupportedFormatError)
PATH = Path("/data/file")


class Form:
    """`damages` says what may be done to the sound bytes, `judge` what became of it."""

    name: str
    is_slow = False
    never_fails = False  # whatever the bytes are, nothing depends on them
