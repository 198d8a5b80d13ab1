import dataclasses

import pytest

from tierdex.errors import CorruptFileError, UnsupportedFormatError
from tierdex.indexfile import layout
from tierdex.indexfile.header import FileHeader, decode_header
from tierdex.indexfile.layout import Form
from tierdex.indexfile.schema import MESSAGE_SCHEMA

HEADER = FileHeader(Form.CHAINED, bytes(range(16)), MESSAGE_SCHEMA, 64, 1000, 5000, 17)


def test_header_comes_back_as_it_was_written():
    data = HEADER.encode()
    assert len(data) == layout.HEADER_BYTES
    assert decode_header(data, "x") == HEADER


def test_every_flipped_byte_is_detected():
    data = HEADER.encode()
    for position in range(len(data)):
        damaged = bytearray(data)
        damaged[position] ^= 0x41
        with pytest.raises(CorruptFileError):
            decode_header(bytes(damaged), "x")


@pytest.mark.parametrize("length", [0, 1, 7, 8, 100, 4095])
def test_cut_header_is_corrupt(length):
    with pytest.raises(CorruptFileError) as caught:
        decode_header(HEADER.encode()[:length], "x")
    assert not isinstance(caught.value, UnsupportedFormatError)


def test_foreign_file_is_unsupported():
    with pytest.raises(UnsupportedFormatError):
        decode_header(b"PK\x03\x04".ljust(4096, b"x"), "x")


def test_newer_version_is_unsupported_even_if_its_checksum_differs():
    data = bytearray(HEADER.encode())
    data[8] = 3
    with pytest.raises(UnsupportedFormatError, match="newer"):
        decode_header(bytes(data), "x")


def test_all_zero_file_is_corrupt_not_foreign():
    with pytest.raises(CorruptFileError) as caught:
        decode_header(bytes(4096), "x")
    assert not isinstance(caught.value, UnsupportedFormatError)


@pytest.mark.parametrize(
    "change",
    [
        {"slot_count": 0},
        {"slot_count": 1 << 40},
        {"item_capacity": 0},
        {"item_capacity": 1 << 40},
        {"row_capacity": 1 << 33},
        {"row_capacity": 10},
    ],
    ids=str,
)
def test_implausible_counts_are_refused(change):
    with pytest.raises(CorruptFileError):
        decode_header(dataclasses.replace(HEADER, **change).encode(), "x")


def test_other_form_than_asked_for_is_refused():
    with pytest.raises(CorruptFileError, match="chained"):
        decode_header(HEADER.encode(), "x", form=Form.COMPACTED)


def test_unknown_hash_function_is_unsupported():
    with pytest.raises(UnsupportedFormatError):
        decode_header(dataclasses.replace(HEADER, hash_function=9).encode(), "x")
