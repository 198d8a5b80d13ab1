"""A value as a key: digits, never an exponent."""

from __future__ import annotations

import uuid
from decimal import Context, Decimal

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tierdex.key_texts import key_texts, number_text, same_number
from tierdex.text_times import RowError

ID = uuid.UUID("7ed4bffc-f189-40b0-9090-c58e1cba14b8")


@pytest.mark.parametrize(
    ("column", "texts"),
    [
        (pa.array([8841.0, None, 1234567890123.0, 1e15, 1e22, -0.0]),
         ["8841", None, "1234567890123", "1000000000000000", "10000000000000000000000", "0"]),
        (pa.array([0.1, 1e-7, -2.5]), ["0.1", "0.0000001", "-2.5"]),
        (pa.array([0.1, 16777216.0, 8841.0], pa.float32()), ["0.1", "16777216", "8841"]),
        (pa.array([float("nan"), float("inf"), 1.0]), [None, None, "1"]),
        (pa.array([Decimal("1E-7"), Decimal("12.5"), None], pa.decimal128(20, 7)),
         ["0.0000001", "12.5000000", None]),
        (pa.array([ID.bytes, None], pa.uuid()), [str(ID), None]),
        (pa.array(["a"]).dictionary_encode(), ["a"]),
        (pa.array([b"text"], pa.binary(4)), ["text"]),
        (pa.array([2**64 - 1], pa.uint64()), [str(2**64 - 1)]),
        (pa.array([True, False]), ["true", "false"]),
    ],
    ids=["floats", "fractions", "float32", "no number", "decimals", "uuid", "dictionary", "bytes", "uint64",
         "booleans"],
)  # fmt: skip
def test_value_has_one_text(column, texts):
    assert key_texts(column).to_pylist() == texts


def test_bytes_that_are_no_text_are_told_by_their_row():
    with pytest.raises(RowError, match="UUID") as caught:
        key_texts(pa.array([b"a", ID.bytes], pa.binary()))
    assert caught.value.row == 1


@given(
    st.from_regex(r"-?(0|[1-9][0-9]{0,9})(\.[0-9]{1,9})?", fullmatch=True),
    st.integers(-300, 300),
    st.sampled_from(["e", "E"]),
)
def test_exponent_is_written_out(number, power, letter):
    written = f"{number}{letter}{power}"
    plain = number_text(written)
    assert "e" not in plain.lower()
    assert Decimal(plain) == Decimal(written)
    assert plain == "0" or plain.lstrip("-")[:2] != "00"
    assert same_number(written, plain)
    assert number_text(number) == ("0" if number == "-0" else number)


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_float_is_found_by_its_digits(number):
    (text,) = key_texts(pa.array([number])).to_pylist()
    assert float(text) == number
    assert "e" not in text
    if number == int(number):
        assert text == str(int(number))
    else:
        assert Context(prec=400).create_decimal(repr(number)) == Decimal(text)


def test_spellings_of_one_number_are_the_same_and_texts_are_not():
    assert same_number("1e+15", "1000000000000000")
    assert same_number("8841.0", "8841")
    assert not same_number("007", "7a")
    assert not same_number("1.5", "15")
