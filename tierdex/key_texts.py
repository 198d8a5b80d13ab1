"""A value as a key: one text for each, whatever file or program it comes from.

| value | key |
|---|---|
| text | itself |
| integer; float that is a whole number | its digits: ``1234567890123`` |
| other float | its shortest digits, plain: ``0.0000001``; NaN and infinities are none |
| decimal | all digits of its scale, plain: ``12.50`` |
| number in JSON | as it is written: ``1.50``; ``-0`` is ``0``; ``1.5E3`` is ``1500`` |
| boolean | ``true``, ``false`` |
| UUID | ``7ed4bffc-f189-40b0-9090-c58e1cba14b8`` |
| bytes | the text that they are in UTF-8 |
| date, time | as Arrow writes it: ``2024-03-01``, ``2024-03-01 10:00:00.000Z`` |

An exponent that would make more than 4,096 digits stays as it is written.

Depends on text_times, numpy and pyarrow.
"""

from __future__ import annotations

import re
import uuid
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute

from tierdex.text_times import RowError

pc: Any = pyarrow.compute
_is: Any = pa.types
_DIGITS_MOST: Final = 4096
_NUMBER: Final = re.compile(
    r"(?P<sign>-?)(?P<whole>[0-9]+)(?:\.(?P<fraction>[0-9]*))?(?:[eE](?P<power>[+-]?[0-9]+))?"
)


def number_text(written: str) -> str:
    """Return a number, as a program wrote it, as a key: never with an exponent."""
    if written == "-0":
        return "0"
    if "e" not in written and "E" not in written:
        return written
    found = _NUMBER.fullmatch(written)
    if found is None or len(found["power"]) > 5 or abs(int(found["power"])) > _DIGITS_MOST:
        return written
    whole, fraction = found["whole"], found["fraction"] or ""
    point = len(whole) + int(found["power"])
    digits = whole + fraction
    if point < 1:
        digits, point = "0" * (1 - point) + digits, 1
    whole, fraction = digits[:point].ljust(point, "0").lstrip("0") or "0", digits[point:]
    text = found["sign"] + whole + ("." + fraction if fraction else "")
    return text if text != "-0" else "0"


def same_number(one: str, other: str) -> bool:
    """Return whether two texts are equal, or spell one number: ``1e+3`` and ``1000``, ``8.0`` and ``8``."""
    return one == other or (
        None not in (found := [_plainest(one), _plainest(other)]) and found[0] == found[1]
    )


def key_texts(column: Any) -> Any:
    """Return a column (one Arrow array) as texts. Raises RowError, TypeError for another kind of values."""
    kind = column.type
    if isinstance(kind, pa.BaseExtensionType):
        if kind.extension_name == "arrow.uuid":
            return _uuids(column.storage)
        return key_texts(column.storage)
    if _is.is_dictionary(kind):
        return key_texts(column.dictionary_decode())
    if _is.is_nested(kind):
        raise TypeError(f"holds {kind}, not plain values")
    if _is.is_string(kind):
        return column
    if _is.is_floating(kind):
        return _floats(column)
    if _is.is_decimal(kind):
        return pa.array(
            [None if each is None else format(each, "f") for each in column.to_pylist()],
            pa.string(),
        )
    try:
        return column.cast(pa.string())
    except pa.ArrowNotImplementedError as error:
        raise TypeError(f"is no text: {error}") from None
    except pa.ArrowInvalid:
        return _utf8(column)


def _utf8(column: Any) -> Any:
    """Raise RowError for the first bytes that are no text."""
    for row, value in enumerate(column.to_pylist()):
        try:
            if isinstance(value, bytes):
                value.decode()
        except UnicodeDecodeError:
            raise RowError(
                row,
                f"{len(value)} bytes are no UTF-8, and the file does not say that they are a UUID",
            ) from None
    raise TypeError(f"holds {column.type}, which is no text")


def _uuids(column: Any) -> Any:
    texts = [None if each is None else str(uuid.UUID(bytes=each)) for each in column.to_pylist()]
    return pa.array(texts, pa.string())


def _floats(column: Any) -> Any:
    """Return floats as texts: those that are whole and fit 64 bits at once, the others one by one."""
    numbers = column.cast(pa.float64()).to_numpy(zero_copy_only=False)
    if column.null_count:
        numbers = np.where(np.asarray(column.is_null()), 0.0, numbers)
    is_whole = np.isfinite(numbers) & (np.abs(numbers) < 2**63) & (np.floor(numbers) == numbers)
    texts = pa.array(np.where(is_whole, numbers, 0).astype(np.int64)).cast(pa.string())
    if not is_whole.all():
        short = {pa.float32(): np.float32, pa.float16(): np.float16}.get(column.type, float)
        left = column.filter(pa.array(~is_whole)).to_pylist()
        others = [None if each is None else float_text(each, short) for each in left]
        texts = pc.replace_with_mask(texts, pa.array(~is_whole), pa.array(others, pa.string()))
    if column.null_count:
        texts = pc.if_else(column.is_valid(), texts, pa.scalar(None, pa.string()))
    return texts


def float_text(number: float, short: type = float) -> str | None:
    """Return a float as a key, None for no number. `short` is a narrower type whose digits are its own."""
    if not np.isfinite(number):
        return None
    return str(int(number)) if number == np.floor(number) else number_text(str(short(number)))


def _plainest(text: str) -> str | None:
    """Return the number without zeros that say nothing; None for what is no number."""
    found = _NUMBER.fullmatch(text)
    if found is None:
        return None
    plain = number_text(text)
    if "." in plain and "e" not in plain and "E" not in plain:
        plain = plain.rstrip("0").rstrip(".")
    return "0" if plain == "-0" else plain
