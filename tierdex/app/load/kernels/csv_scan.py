"""Finds the records of CSV text, and the fields of records, without an object a field.

`csv_text.py` has the rule, and reads what is *odd* here: a field with a doubled quote, or with text behind
its closing quote. tests/app/load/test_csv_rows.py holds both to one model.

The byte behind each record must be a line feed or a carriage return. Depends on compile and intrinsics.
"""

from __future__ import annotations

from typing import Any

from tierdex.fileparts.kernels.compile import kernel
from tierdex.fileparts.kernels.intrinsics import load_u8

_LINE_FEED, _RETURN, _QUOTE = 0x0A, 0x0D, 0x22
PLAIN, ODD, LONE_RETURN, OPEN_QUOTE = 0, 1, 2, 3  # states of a record


@kernel
def find_breaks(data: int, begin: int, end: int, delimiter: int, breaks: Any) -> int:
    """Note the line feeds that end a record of ``data[begin:end]``, which begins with one; return how many.

    `breaks` has room for every line feed there.
    """
    count = 0
    is_quoted, is_field_begin = False, True
    at = begin
    while at < end:
        c = load_u8(data + at)
        if is_quoted:
            if c == _QUOTE:
                behind = at + 1
                if behind < end and load_u8(data + behind) == _QUOTE:
                    at = behind
                else:
                    is_quoted = False
        elif c == _LINE_FEED:
            breaks[count] = at
            count += 1
            is_field_begin = True
        elif c == delimiter:
            is_field_begin = True
        else:
            is_quoted = c == _QUOTE and is_field_begin
            is_field_begin = False
        at += 1
    return count


@kernel
def find_fields(
    data: int, starts: Any, ends: Any, delimiter: int, slots: Any, places: Any, counts: Any,
    states: Any,
) -> None:  # fmt: skip
    """Note where the wanted fields of each record lie, how many fields it has, and its state.

    Records are ``data[starts[i]:ends[i]]``. Field `f` is noted at ``places[slots[f], i]`` (begin and end in
    `data`) where `slots` has it and it is not negative.
    """
    for row in range(len(starts)):
        at, end = starts[row], ends[row]
        field, state = 0, PLAIN
        while True:
            begin = at
            is_wanted = field < len(slots) and slots[field] >= 0
            stop = end
            if at < end and load_u8(data + at) == _QUOTE:
                begin = at + 1
                at, is_odd = _behind_quoted(data, begin, end)
                if at < 0:
                    state = OPEN_QUOTE
                    break
                stop = at - 1
                if at < end and load_u8(data + at) != delimiter:
                    is_odd = True
                if is_odd and is_wanted and state == PLAIN:
                    state = ODD
                at, has_return = _field_end(data, at, end, delimiter)
            else:
                at, has_return = _field_end(data, at, end, delimiter)
                stop = at
            if has_return:
                state = LONE_RETURN
            if is_wanted:
                places[slots[field], row, 0] = begin
                places[slots[field], row, 1] = stop
            field += 1
            if at >= end:
                break
            at += 1
        counts[row] = field
        states[row] = state


@kernel
def _behind_quoted(data: int, at: int, end: int) -> Any:
    """Return where a quoted text's closing quote is left behind, -1 for none, and whether one is doubled."""
    is_doubled = False
    while at < end:
        behind = at + 1
        if load_u8(data + at) == _QUOTE:
            if behind >= end or load_u8(data + behind) != _QUOTE:
                return behind, is_doubled
            is_doubled = True
            behind += 1
        at = behind
    return -1, is_doubled


@kernel
def _field_end(data: int, at: int, end: int, delimiter: int) -> Any:
    """Return where plain text ends, and whether there is a carriage return in it."""
    has_return = False
    while at < end:
        c = load_u8(data + at)
        if c == delimiter:
            break
        if c == _RETURN:
            has_return = True
        at += 1
    return at, has_return
