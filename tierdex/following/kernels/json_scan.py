"""Finds the texts at plain JSON paths (names only) of many values, without an object a value.

A record is scanned once, left to right::

    {"at": 1, "order": {"id": "A-1", "n": 2}}          path $.order.id
              |        |     |
              |        |     a text of a path that ends here: its place is noted
              |        masks[2]: the paths whose first name was "order"
              masks[1]: all paths

It decides only what it is sure of: a record that is not JSON, and whatever is rare (a name or a text with an
escape, an exponent or an object at a path, surrogates, more than 31 levels), is *odd*,
and the general way (json_paths.py) reads it. So a record that is not odd is JSON, and has the same texts
there: tests/following/test_json_paths.py holds both to one model. With it a folder is followed 2.5 times as
fast.

The byte behind each record must be a line feed or a carriage return. Depends on compile and intrinsics.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tierdex.fileparts.kernels.compile import kernel
from tierdex.fileparts.kernels.intrinsics import copy_bytes, load_u8, load_u64

_LEVELS = 32
_VALUE, _VALUE_OR_END, _NAME, _NAME_OR_END, _AFTER = 0, 1, 2, 3, 4
_NONE = np.uint64(0)
_ONE = np.uint64(1)
# What a string goes on behind without a look: no quote, backslash, control character, byte above ASCII.
_ONES = np.uint64(0x0101010101010101)
_HIGH_BITS = np.uint64(0x8080808080808080)
_QUOTES = np.uint64(0x2222222222222222)
_SLASHES = np.uint64(0x5C5C5C5C5C5C5C5C)
_BLANKS = np.uint64(0x2020202020202020)
_PLAIN = np.array([0x20 <= c < 0x80 and c not in b'"\\' for c in range(256)])


@kernel
def find_texts(
    data: int,
    starts: Any,
    ends: Any,
    names: int,
    name_bounds: Any,
    path_bounds: Any,
    is_utf8: bool,
    found: Any,
    is_odd: Any,
) -> None:
    """Note where the text of each path lies in each record, and which records are odd.

    Records are ``data[starts[i]:ends[i]]``; name `k` is ``names[name_bounds[k]:name_bounds[k + 1]]``; path
    `p` has the names from ``path_bounds[p]`` to ``path_bounds[p + 1]``, at least one. `found` is
    i8[paths, records, 2]: begin and end in `data`, -1 where nothing is. Without `is_utf8` records with bytes
    above ASCII are odd.
    """
    kinds = np.zeros(_LEVELS, np.uint8)
    masks = np.zeros(_LEVELS, np.uint64)
    for row in range(len(starts)):
        is_odd[row] = not _scan(
            data, starts[row], ends[row], names, name_bounds, path_bounds, is_utf8, found, row,
            kinds, masks,
        )  # fmt: skip


@kernel
def gather(data: int, places: Any, offsets: Any, target: int) -> None:
    """Copy the texts at `places` (i8[n, 2]) one behind the other, the n-th to ``target + offsets[n]``."""
    for row in range(len(places)):
        begin = places[row, 0]
        if begin >= 0:
            copy_bytes(target + offsets[row], data + begin, places[row, 1] - begin)


@kernel
def _scan(
    data: int, start: int, stop: int, names: int, name_bounds: Any, path_bounds: Any, is_utf8: bool,
    found: Any, row: int, kinds: Any, masks: Any,
) -> bool:  # fmt: skip
    """Scan one record; return False where it is odd."""
    paths = len(path_bounds) - 1
    for path in range(paths):
        found[path, row, 0] = -1
    mask = (_ONE << np.uint64(paths)) - _ONE  # the paths that lead to the value that comes
    at, end = data + start, data + stop
    depth, state = 0, _VALUE
    while True:
        at = _behind_blanks(at, end)
        c = load_u8(at)
        if at >= end:
            return bool(state == _AFTER and depth == 0)
        if state == _AFTER:
            if depth == 0:
                return False
            if c == 0x2C:  # ,
                state = _NAME if kinds[depth] == 0x7B else _VALUE
            elif c == kinds[depth] + 2:  # } of {, ] of [
                depth -= 1
            else:
                return False
            mask = _NONE
            at += 1
        elif state in (_NAME, _NAME_OR_END):
            if c == 0x7D and state == _NAME_OR_END:
                depth -= 1
                state = _AFTER
                at += 1
                continue
            if c != 0x22:
                return False
            begin = at + 1
            at, is_escaped = _string_end(begin, end, is_utf8)
            if at < 0 or is_escaped:
                return False
            mask = masks[depth]
            if mask:
                mask = _with_name(
                    mask, begin, at, depth - 1, names, name_bounds, path_bounds, found, row
                )
            at = _behind_blanks(at + 1, end)
            if at >= end or load_u8(at) != 0x3A:
                return False
            at += 1
            state = _VALUE
        elif c == 0x22:
            begin = at + 1
            at, is_escaped = _string_end(begin, end, is_utf8)
            if at < 0:
                return False
            if mask and _ends_here(mask, depth, path_bounds):
                if is_escaped:
                    return False
                _note(mask, depth, path_bounds, found, row, begin - data, at - data)
            at += 1
            state = _AFTER
        elif c == 0x7B or c == 0x5B:
            if mask and _ends_here(mask, depth, path_bounds):
                return False
            depth += 1
            if depth == _LEVELS:
                return False
            kinds[depth] = c
            masks[depth] = mask if c == 0x7B else _NONE
            state = _NAME_OR_END if c == 0x7B else _VALUE_OR_END
            mask = _NONE
            at += 1
        elif c == 0x5D and state == _VALUE_OR_END:
            depth -= 1
            state = _AFTER
            at += 1
        else:
            begin = at
            at, is_text = _scalar_end(begin, end)
            if at < 0:
                return False
            if mask and c != 0x6E and _ends_here(mask, depth, path_bounds):  # null is nothing
                if not is_text:
                    return False
                _note(mask, depth, path_bounds, found, row, begin - data, at - data)
            state = _AFTER


@kernel
def _behind_blanks(at: int, end: int) -> int:
    c = load_u8(at)
    while at < end and (c == 0x20 or c == 0x0A or c == 0x0D or c == 0x09):
        at += 1
        c = load_u8(at)
    return at


@kernel
def _with_name(
    mask: Any, begin: int, end: int, level: int, names: int, name_bounds: Any, path_bounds: Any,
    found: Any, row: int,
) -> Any:  # fmt: skip
    """Return the paths whose name of this level is [begin, end); what they found before counts no more."""
    matching = _NONE
    for path in range(len(path_bounds) - 1):
        bit = _ONE << np.uint64(path)
        if not mask & bit:
            continue
        name = path_bounds[path] + level
        length = name_bounds[name + 1] - name_bounds[name]
        if length != end - begin:
            continue
        place = names + name_bounds[name]
        same = 0
        while same < length and load_u8(place + same) == load_u8(begin + same):
            same += 1
        if same == length:
            matching |= bit
            found[path, row, 0] = -1
    return matching


@kernel
def _ends_here(mask: Any, depth: int, path_bounds: Any) -> bool:
    """Return whether one of these paths has no further name."""
    for path in range(len(path_bounds) - 1):
        if mask & (_ONE << np.uint64(path)) and path_bounds[path + 1] - path_bounds[path] == depth:
            return True
    return False


@kernel
def _note(
    mask: Any, depth: int, path_bounds: Any, found: Any, row: int, begin: int, end: int
) -> None:
    for path in range(len(path_bounds) - 1):
        if mask & (_ONE << np.uint64(path)) and path_bounds[path + 1] - path_bounds[path] == depth:
            found[path, row, 0] = begin
            found[path, row, 1] = end


@kernel
def _string_end(at: int, end: int, is_utf8: bool) -> Any:
    """Return where the quote of a string stands, -1 for none, and whether something in it is escaped."""
    is_escaped = False
    while True:
        while at + 8 <= end and _are_plain(load_u64(at)):
            at += 8
        c = load_u8(at)
        while _PLAIN[c]:
            at += 1
            c = load_u8(at)
        if at >= end:
            return -1, False
        if c == 0x22:
            return at, is_escaped
        if c >= 0x80 and is_utf8:
            at += 1
        elif c == 0x5C:
            is_escaped = True
            length = _escape_length(at + 1)
            if length == 0:
                return -1, False
            at += 1 + length
        else:
            return -1, False


@kernel
def _are_plain(word: Any) -> bool:
    """Return whether eight bytes are all plain."""
    quotes, slashes = word ^ _QUOTES, word ^ _SLASHES
    low = (
        (word - _BLANKS) | (quotes - _ONES) | (slashes - _ONES)
    )  # its high bit: the byte is below that
    return bool(((low & ~word) | word) & _HIGH_BITS == _NONE)


@kernel
def _escape_length(at: int) -> int:
    """Return the length of what follows a backslash, 0 for no escape, and for a surrogate."""
    c = load_u8(at)
    if c == 0x75:  # \u
        code = 0
        for place in range(at + 1, at + 5):
            digit = load_u8(place)
            if 0x30 <= digit <= 0x39:
                code = code * 16 + digit - 0x30
            elif 0x41 <= digit & 0xDF <= 0x46:
                code = code * 16 + (digit & 0xDF) - 0x37
            else:
                return 0
        return 0 if 0xD800 <= code <= 0xDFFF else 5
    for known in (0x22, 0x5C, 0x2F, 0x62, 0x66, 0x6E, 0x72, 0x74):
        if c == known:
            return 1
    return 0


@kernel
def _scalar_end(at: int, end: int) -> Any:
    """Return where a number, true, false or null ends, -1 for none, and whether it is its own text."""
    c = load_u8(at)
    if c == 0x74:
        return _literal_end(at, end, 0x65757274, 4), True
    if c == 0x6E:
        return _literal_end(at, end, 0x6C6C756E, 4), True
    if c == 0x66:
        return _literal_end(at + 1, end, 0x65736C61, 4), True
    begin = at
    if c == 0x2D:
        at += 1
    first = at
    while 0x30 <= load_u8(at) <= 0x39:
        at += 1
    digits = at - first
    if digits == 0 or (digits > 1 and load_u8(first) == 0x30):
        return -1, False
    is_text = not (first > begin and load_u8(first) == 0x30)  # -0
    if load_u8(at) == 0x2E:
        is_text = True
        at += 1
        point = at
        while 0x30 <= load_u8(at) <= 0x39:
            at += 1
        if at == point:
            return -1, False
    if load_u8(at) & 0xDF == 0x45:  # e, E
        is_text = False
        at += 1
        if load_u8(at) == 0x2B or load_u8(at) == 0x2D:
            at += 1
        power = at
        while 0x30 <= load_u8(at) <= 0x39:
            at += 1
        if at == power:
            return -1, False
    return (at, is_text) if at <= end else (-1, False)


@kernel
def _literal_end(at: int, end: int, word: int, length: int) -> int:
    """Return the end of four letters, the first one lowest in `word`."""
    for number in range(length):
        if load_u8(at + number) != (word >> (8 * number)) & 0xFF:
            return -1
    return at + length if at + length <= end else -1
