from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from tierdex.app.http.codecs.row_text import Texts, rows_as_text

INT64 = st.integers(-(2**63), 2**63 - 1)
EDGES = [0, 9, 10, -1, -10, 2**63 - 1, -(2**63), 10**18, 10**18 - 1, -(10**18)]


@st.composite
def forms(draw):
    """Rows of a few places: texts, some of them the same in each row, and numbers between them."""
    rows = draw(st.integers(1, 20))
    places = draw(st.integers(1, 4))
    texts = []
    for _ in range(places + 1):
        distinct = draw(st.lists(st.binary(max_size=12), min_size=1, max_size=3))
        if len(distinct) == 1 and draw(st.booleans()):
            texts.append(Texts(distinct))
            continue
        chosen = st.lists(st.integers(0, len(distinct) - 1), min_size=rows, max_size=rows)
        texts.append(Texts(distinct, np.array(draw(chosen))))
    numbers = [
        np.array(draw(st.lists(INT64, min_size=rows, max_size=rows)), np.int64)
        for _ in range(places)
    ]
    return texts, numbers


def text_of(texts, row):
    return texts.distinct[0 if texts.chosen is None else texts.chosen[row]]


@given(forms())
def test_rows_are_texts_with_numbers_between(form):
    texts, numbers = form
    expected = b""
    for row in range(len(numbers[0])):
        expected += text_of(texts[0], row)
        for place, column in enumerate(numbers):
            expected += str(column[row]).encode() + text_of(texts[place + 1], row)
    assert bytes(rows_as_text(texts, numbers)) == expected


def test_numbers_of_every_length_and_sign_are_written_in_full():
    text = rows_as_text([Texts([b""]), Texts([b","])], [np.array(EDGES)])
    assert bytes(text) == "".join(f"{number}," for number in EDGES).encode()


@given(forms())
def test_two_texts_in_a_row_are_one(form):
    texts, numbers = form
    apart = texts[0], texts[1]
    joined = apart[0].followed_by(apart[1])
    for row in range(len(numbers[0])):
        assert text_of(joined, row) == text_of(apart[0], row) + text_of(apart[1], row)
