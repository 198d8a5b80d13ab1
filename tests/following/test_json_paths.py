"""Texts at JSON paths: many values at once give what a plain walk gives of each."""

from __future__ import annotations

import decimal
import json
import re

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tierdex.following.json_columns import read_columns
from tierdex.following.json_paths import read_paths
from tierdex.following.selectors import Every, Selector

PATIENT = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
PATHS = ["$.a", "$.a.b", "$.a[0]", "$.a[-1].b", "$", "$.a[*]", "$.a[*].b", "$[*].a", "$.b[*][0]"]
PARTS = [Selector.parse(text, field="key").parts[0] for text in PATHS]

names = st.sampled_from("ab")
leaves = st.one_of(
    st.none(), st.booleans(), st.integers(-3, 2**64 - 1), st.text(max_size=3),
    st.sampled_from([1.5, -0.0, 1e300]),
)  # fmt: skip
documents = st.recursive(
    leaves,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(names, inner, max_size=2),
    max_leaves=6,
)


def encoded(document):
    return json.dumps(document).encode()


alike = st.builds(lambda leaf: {"a": {"b": leaf}, "b": [[leaf]]}, leaves)
values = st.one_of(
    st.none(),
    st.sampled_from([b"", b"{", b'{"a": 1} x', b"\xff", b"nul", b'{"a": 18446744073709551616}']),
    st.one_of(documents, alike).map(encoded),
)


def walk(at, steps):
    if not steps:
        return [] if at is None else [at]
    step, *rest = steps
    if isinstance(step, Every):
        return [found for each in at for found in walk(each, rest)] if isinstance(at, list) else []
    if isinstance(at, dict) and isinstance(step, str):
        return walk(at.get(step), rest)
    if isinstance(at, list) and isinstance(step, int) and -len(at) <= step < len(at):
        return walk(at[step], rest)
    return []


class Digits(str):
    """A number as it is written; the integer -0 is 0, an exponent is written out."""

    def __new__(cls, text):
        if "e" in text.lower():
            text = format(decimal.Decimal(text), "f")
        return super().__new__(cls, "0" if text == "-0" else text)


def model(value, path):
    """Return the texts at a path of one value, and whether it cannot be read there."""
    if value is None:
        return [], False
    try:
        document = json.loads(
            value.decode(), parse_int=Digits, parse_float=Digits, parse_constant=lambda name: None
        )
    except ValueError:
        return [], True
    found = walk(document, path.steps)
    plain = [each for each in found if isinstance(each, bool) or is_text(each)]
    texts = [each if isinstance(each, str) else str(each).lower() for each in plain]
    return texts, len(plain) < len(found)


def is_text(each):
    return isinstance(each, str) and not re.search("[\ud800-\udfff]", each)


def expected_of(given_values, paths):
    """Return the first text of each value, path by path, and which values cannot be read."""
    rows = [[model(value, path) for path in paths] for value in given_values]
    texts = [[found[0] if found else None for found, _ in column] for column in zip(*rows)]  # noqa: B905
    return texts or [[] for _ in paths], [any(is_bad for _, is_bad in row) for row in rows]


@PATIENT
@given(st.lists(values, max_size=150) | st.lists(alike.map(encoded)))
def test_many_values_give_what_each_gives_alone(given_values):
    found = read_paths(given_values, PARTS)
    expected = [[model(value, path)[0] for path in PARTS] for value in given_values]
    for number, path in enumerate(PARTS):
        texts = [row[number] for row in expected]
        if path.gives_several:
            assert found.texts[number] == [text for each in texts for text in each]
            assert found.rows[number] == [row for row, each in enumerate(texts) for _ in each]
        else:
            assert found.texts[number] == [each[0] if each else None for each in texts]
    assert found.unreadable.tolist() == expected_of(given_values, PARTS)[1]


# What a kernel may get wrong: each is JSON, or nearly, and most have something at a path.
NEARLY = [
    b'{"a":"x"}', b' {\t"a" : "x"\r\n} ', b'{"a":"x"', b'{"a":"x"}}', b'{"a":"x",}', b'{,"a":"x"}',
    b'{"a" "x"}', b'{"a":}', b'{"a"}', b'{"a":"x" "b":1}', b"{'a':1}", b'{"a":"x"}\x0b', b'{\x0c"a":1}',
    b'{"a":"x","a":null}', b'{"a":{"b":1},"a":"y"}', b'{"a":"y","a":{"b":1}}', b'{"a":{"b":1},"a":{}}',
    b'{"a":{"b":1,"b":[]}}', b'{"\\u0061":"x"}', b'{"a":"\\u00e9\\n\\/"}', b'{"c":"\\ud83d\\ude00","a":1}',
    b'{"c":"\\ud83d","a":1}', b'{"a":"\\ud83d"}',
    b'{"c":"\\u12g4","a":1}', b'{"c":"\\x","a":1}', b'{"c":"\\', b'{"c":"\\u12',
    b'{"a":"\xc3\xa9"}', b'{"c":"\xc3","a":1}', b'{"c":"\xed\xa0\x80","a":1}', b'{"a":"\x7f"}',
    b'{"a":"\x00"}',
    b'{"a":-0}', b'{"a":0}', b'{"a":-1}', b'{"a":01}', b'{"a":+1}', b'{"a":1.}', b'{"a":.5}', b'{"a":1.50}',
    b'{"a":-}', b'{"a":1e2}', b'{"a":1.50E+3}', b'{"a":-2e-7}', b'{"a":1e}', b'{"a":1e+}', b'{"a":1E400}',
    b'{"a":-0.0}', b'{"c":1e5,"a":1}', b'{"c":1e,"a":1}', b'{"c":[-1E-999],"a":"x"}',
    b'{"c":1E400,"a":1}', b'{"c":-1.5e-3,"a":1}', b'{"a":12345678901234567890}',
    b'{"c":' + b"9" * 400 + b',"a":1}', b'{"a":999999999999999999}', b'{"a":9223372036854775807}',
    b'{"a":true}', b'{"a":false}', b'{"a":tru}', b'{"a":truex}', b'{"a":nul', b'{"a":fals', b'{"a":NaN}',
    b'{"a":Infinity}', b'{"a":[1,2]}', b'{"a":{}}', b'{"a":[{"b":1}]}', b'{"c":[{"a":1},[],{}],"a":"z"}',
    b'{"c":[1,],"a":1}', b'{"c":[,1],"a":1}', b'{"c":[1 2],"a":1}', b'{"c":[1},"a":1}', b'{"c":{]',
    b'{"c":' + b"[" * 40 + b"]" * 40 + b',"a":1}', b'[{"a":1}]', b'"a"', b"7", b"null", b"", b" ", b"{",
    b'{"a":""}', b'{"":"x","a":"x"}', b'{"ab":"x"}', b'\xef\xbb\xbf{"a":1}',
    b'{"a":"' + b"x" * 50 + b'\x1f"}',
    b'{"a":"' + b"x" * 50 + b'"}', b'{"a":"1234567\\\\"}', b'{"a":1}{"a":2}', b'{"a":1}\n{"a":2}', None,
]  # fmt: skip
PLAIN = [Selector.parse(text, field="key").parts[0] for text in ("$.a", "$.a.b", "$.ab", "$.a.b.a")]
PADDING = [b'{"a":"pad"}'] * 64  # fewer values are not worth a kernel


@PATIENT
@given(st.lists(st.sampled_from(NEARLY) | values | alike.map(encoded), max_size=60))
def test_kernel_gives_what_each_gives_alone(given_values):
    check_kernel(given_values + PADDING)


def test_kernel_is_right_about_every_odd_value_alone_and_beside_the_others():
    for each in NEARLY:
        check_kernel([each, *PADDING])
    check_kernel(NEARLY + PADDING)


def check_kernel(given_values):
    texts, unreadable = expected_of(given_values, PLAIN)
    columns, rows, found_unreadable = read_columns(given_values, PLAIN)
    assert [column.to_pylist() for column in columns] == texts
    assert rows == [None] * len(PLAIN)
    assert found_unreadable.tolist() == unreadable
    for column in columns:
        column.validate(full=True)


@PATIENT
@given(st.binary(max_size=40), st.integers(0, 40), st.binary(max_size=3))
def test_bytes_that_are_changed_anywhere_are_read_alike(tail, place, change):
    whole = b'{"a":{"b":"xyz","c":[1,2.5,true]},"ab":-12} '
    changed = whole[:place] + change + whole[place + len(change) :]
    check_kernel([changed, whole + tail, changed + tail, *PADDING])
