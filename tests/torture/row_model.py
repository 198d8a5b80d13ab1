"""CSV and JSON lines read simply, byte by byte: what the row readers of `tierdex load` are held against.

Nothing of it is shared with them, nor with the libraries that they use.
"""

from __future__ import annotations

from typing import NamedTuple


class Row(NamedTuple):
    """A record: where it lies, the line on which it begins, its texts by column; None for a bad row."""

    offset: int
    size: int
    line: int
    texts: dict[str, str | None] | None


class Read(NamedTuple):
    """The rows of a text, and the line that waits for its end; or that of what ends reading with an error."""

    rows: list[Row]
    waiting: int | None = None
    refused: int | None = None


# -- CSV -------------------------------------------------------------------------------------------


def read_csv(data: bytes, wanted: list[str], delimiter: bytes, *, takes_last: bool) -> Read:
    at = 3 if data[:3] == b"\xef\xbb\xbf" else 0
    header, rows, line = None, [], 1
    while at < len(data):
        fields, is_bad, end, behind = _record(data, at, delimiter)
        is_open_quote = fields is None
        if behind is None:  # no line break
            if not data[at:].strip(b" \t\r\n"):
                return Read(rows)
            if is_open_quote and (takes_last or data.endswith(b"\n")):
                return Read([], refused=line)
            if not takes_last:
                return Read(rows, waiting=line)
        if end > at:
            if header is None:
                header = [] if is_bad else [each.decode(errors="replace") for each in fields]
                if is_bad or not set(wanted) <= set(header):
                    return Read([], refused=line)
            else:
                texts = None if is_bad else _texts(fields, header, wanted)
                rows.append(Row(at, end - at, line, texts))
        line += data[at : behind or len(data)].count(b"\n")
        at = behind or len(data)
    return Read(rows)


def _record(data: bytes, at: int, delimiter: bytes):
    """Return (fields, is it bad, its end, where the next one begins) of the record that begins at `at`."""
    fields, field, is_bad = [], b"", False
    state, begin = "begin", at
    while at < len(data):
        byte = data[at : at + 1]
        if state == "quoted":
            if byte == b'"' and data[at + 1 : at + 2] == b'"':
                field += b'"'
                at += 1
            elif byte == b'"':
                state = "plain"
            else:
                field += byte
        elif byte == b'"' and state == "begin":
            state = "quoted"
        elif byte == delimiter:
            fields.append(field)
            field, state = b"", "begin"
        elif byte == b"\n":
            return [*fields, field], is_bad, _without_returns(data, begin, at), at + 1
        else:
            if byte == b"\r" and not _before_line_break(data, at):
                is_bad = True
            elif byte != b"\r":
                field += byte
            state = "plain"
        at += 1
    if state == "quoted":
        return None, True, at, None
    return [*fields, field], is_bad, _without_returns(data, begin, at), None


def _before_line_break(data, at):
    while data[at : at + 1] == b"\r":
        at += 1
    return data[at : at + 1] in (b"\n", b"")


def _without_returns(data, begin, end):
    while end > begin and data[end - 1 : end] == b"\r":
        end -= 1
    return end


def _texts(fields, header, wanted):
    if len(fields) != len(header):
        return None
    try:
        return {name: fields[header.index(name)].decode() or None for name in wanted}
    except UnicodeDecodeError:
        return None


# -- JSON lines ------------------------------------------------------------------------------------


class Number(str):
    pass


class NotJsonError(Exception):
    pass


NOTHING = object()  # null, NaN, an infinity, an absent name


def read_lines(data: bytes, wanted: list[str], *, takes_last: bool) -> Read:
    at = 3 if data[:3] == b"\xef\xbb\xbf" else 0
    rows, line = [], 1
    while at < len(data):
        end = data.find(b"\n", at)
        is_open, end = end < 0, len(data) if end < 0 else end
        text = data[at:end].rstrip(b"\r")
        if text.strip(b" \t\r\n"):
            tree = _tree_of(text)
            if is_open and not takes_last and not isinstance(tree, dict):
                return Read(rows, waiting=line)
            rows.append(Row(at, len(text), line, _columns(tree, wanted)))
        at, line = end + 1, line + 1
    return Read(rows)


def _tree_of(text):
    try:
        letters = text.decode()
        tree, end = _value(letters, _blanks(letters, 0))
        if _blanks(letters, end) != len(letters):
            raise NotJsonError
    except (UnicodeDecodeError, NotJsonError, IndexError):
        return None
    return tree


def _columns(tree, wanted):
    if not isinstance(tree, dict):
        return None
    columns = {}
    for name in wanted:
        own, deep = tree.get(name, NOTHING), tree
        for step in name.split("."):
            deep = deep.get(step, NOTHING) if isinstance(deep, dict) else NOTHING
        if isinstance(own, dict | list) or isinstance(deep, dict | list):
            return None
        value = deep if own is NOTHING else own
        try:
            text = None if value is NOTHING else _text(value)
            _text(deep if deep is not NOTHING else "")
        except UnicodeEncodeError:
            return None
        columns[name] = text
    return columns


def _text(value):
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, Number):
        return _plain(value)
    value.encode()
    return value or None


def _plain(number):
    """Write a number without its exponent, by moving the point a place at a time."""
    if number == "-0":
        return "0"
    letters = number.lower()
    if "e" not in letters:
        return str(number)
    digits, power = letters.split("e")
    if abs(int(power)) > 4096:
        return str(number)
    sign = "-" if digits.startswith("-") else ""
    whole, _, fraction = digits.lstrip("-").partition(".")
    for _ in range(abs(int(power))):
        if power.startswith("-"):
            whole, fraction = whole[:-1] or "0", (whole[-1:] or "0") + fraction
        else:
            whole, fraction = whole + (fraction[:1] or "0"), fraction[1:]
    whole = whole.lstrip("0") or "0"
    plain = sign + whole + ("." + fraction if fraction else "")
    return "0" if plain == "-0" else plain


def _blanks(text, at):
    while at < len(text) and text[at] in " \t\n\r":
        at += 1
    return at


def _value(text, at):
    letter = text[at]
    if letter == "{":
        return _members(text, at + 1)
    if letter == "[":
        return _elements(text, at + 1)
    if letter == '"':
        return _string(text, at + 1)
    words = {
        "true": True, "false": False, "null": NOTHING, "NaN": NOTHING, "Infinity": NOTHING,
        "-Infinity": NOTHING,
    }  # fmt: skip
    for word, value in words.items():
        if text.startswith(word, at):
            return value, at + len(word)
    return _number(text, at)


def _members(text, at):
    members = {}
    at = _blanks(text, at)
    if text[at] == "}":
        return members, at + 1
    while True:
        at = _blanks(text, at)
        if text[at] != '"':
            raise NotJsonError
        name, at = _string(text, at + 1)
        at = _blanks(text, at)
        if text[at] != ":":
            raise NotJsonError
        members[name], at = _value(text, _blanks(text, at + 1))
        at = _blanks(text, at)
        if text[at] == "}":
            return members, at + 1
        if text[at] != ",":
            raise NotJsonError
        at += 1


def _elements(text, at):
    elements = []
    at = _blanks(text, at)
    if text[at] == "]":
        return elements, at + 1
    while True:
        element, at = _value(text, _blanks(text, at))
        elements.append(element)
        at = _blanks(text, at)
        if text[at] == "]":
            return elements, at + 1
        if text[at] != ",":
            raise NotJsonError
        at += 1


def _string(text, at):
    found = ""
    escapes = {
        '"': '"',
        "\\": "\\",
        "/": "/",
        "b": "\b",
        "f": "\f",
        "n": "\n",
        "r": "\r",
        "t": "\t",
    }
    while True:
        letter = text[at]
        if letter == '"':
            return _joined(found), at + 1
        if letter < " ":
            raise NotJsonError
        if letter != "\\":
            found, at = found + letter, at + 1
        elif text[at + 1] == "u":
            digits = text[at + 2 : at + 6]
            if len(digits) < 4 or any(each not in "0123456789abcdefABCDEF" for each in digits):
                raise NotJsonError
            found, at = found + chr(int(digits, 16)), at + 6
        elif text[at + 1] in escapes:
            found, at = found + escapes[text[at + 1]], at + 2
        else:
            raise NotJsonError


def _joined(text):
    """Join the halves of surrogate pairs."""
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass")


def _number(text, at):
    begin = at
    at += text[at] == "-"
    whole = _digits(text, at)
    if whole == at or (text[at] == "0" and whole > at + 1):
        raise NotJsonError
    at = whole
    if at < len(text) and text[at] == ".":
        at, begun = _digits(text, at + 1), at + 1
        if at == begun:
            raise NotJsonError
    if at < len(text) and text[at] in "eE":
        at += 1
        at += at < len(text) and text[at] in "+-"
        at, begun = _digits(text, at), at
        if at == begun:
            raise NotJsonError
    return Number(text[begin:at]), at


def _digits(text, at):
    while at < len(text) and text[at] in "0123456789":
        at += 1
    return at
