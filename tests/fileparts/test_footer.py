import pytest

from tierdex.errors import CorruptFileError
from tierdex.fileparts.footer import encode_footer, make_part, read_footer, read_part
from tierdex.fileparts.layout import Part
from tierdex.indexfile.layout import Form

UUID = bytes(range(16))


def make_bytes() -> bytes:
    parts = [
        make_part(Part.DICTIONARIES, UUID, b"hello", 0),
        make_part(Part.STATISTICS, UUID, b"statistics", 5, 7),
    ]
    tail = encode_footer(form=Form.CHAINED, uuid=UUID, item_count=3, parts=parts, position=15)
    return b"hellostatistics" + tail


def read_all(data: bytes) -> list[bytes]:
    def read_at(position: int, length: int) -> bytes:
        return data[position : position + length]

    footer = read_footer(read_at, len(data), "x", uuid=UUID)
    return [read_part(read_at, footer, part, "x") for part in (Part.DICTIONARIES, Part.STATISTICS)]


def test_parts_come_back_by_kind():
    assert read_all(make_bytes()) == [b"hello", b"statistics"]


def test_every_flipped_byte_is_detected():
    data = make_bytes()
    for position in range(len(data)):
        damaged = bytearray(data)
        damaged[position] ^= 1
        with pytest.raises(CorruptFileError):
            read_all(bytes(damaged))


def test_every_other_length_is_detected():
    data = make_bytes()
    for length in range(len(data)):
        with pytest.raises(CorruptFileError):
            read_all(data[:length])
    with pytest.raises(CorruptFileError):
        read_all(data + b"\0")


def test_parts_that_change_places_are_detected():
    parts = [
        make_part(Part.DICTIONARIES, UUID, b"hello", 5),
        make_part(Part.STATISTICS, UUID, b"stats", 0),
    ]
    tail = encode_footer(form=Form.CHAINED, uuid=UUID, item_count=3, parts=parts, position=10)
    with pytest.raises(CorruptFileError):
        read_all(b"hello" + b"stats" + tail)


def test_footer_of_another_file_is_refused():
    data = make_bytes()
    with pytest.raises(CorruptFileError, match="another file"):
        read_footer(lambda a, n: data[a : a + n], len(data), "x", uuid=b"y" * 16)


def test_missing_part_is_named():
    data = make_bytes()
    footer = read_footer(lambda a, n: data[a : a + n], len(data), "x")
    with pytest.raises(CorruptFileError, match="filter"):
        footer.part(Part.FILTER, "x")
