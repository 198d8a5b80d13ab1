"""Bodies as people read them, and what of them stays hidden."""

from __future__ import annotations

import gzip

import google_crc32c
import pyarrow as pa
import pytest

from tierdex.following.records import Record
from tierdex.resolving.compression import decompress, kind_of
from tierdex.resolving.decoding import Decoder
from tierdex.resolving.resolver import TooLargeError
from tierdex.resolving.resolver_file import Showing

MOST = 1 << 20
TEXT = b'{"id": 9223372036854775807, "price": 1.50}' * 1


def shown(body, *, key=None, headers=(), **showing):
    decoder = Decoder(Showing(**showing), None)
    return decoder.shown(Record(0, 0, 5, key, body, headers), decoder.read(body, MOST), "here")


def raw_snappy(data):
    return pa.Codec("snappy").compress(data, asbytes=True)


def framed_snappy(data):
    crc = google_crc32c.value(data)
    masked = ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF
    chunk = masked.to_bytes(4, "little") + raw_snappy(data)
    head = b"\x00" + len(chunk).to_bytes(3, "little")
    return b"\xff\x06\x00\x00sNaPpY" + b"\xfe\x02\x00\x00pp" + head + chunk


def xerial_snappy(data):
    chunk = raw_snappy(data)
    head = b"\x82SNAPPY\x00" + (1).to_bytes(4, "big") * 2
    return head + len(chunk).to_bytes(4, "big") + chunk


FORMS = {
    "gzip": gzip.compress,
    "zstd": lambda data: pa.Codec("zstd").compress(data, asbytes=True),
    "lz4": lambda data: pa.Codec("lz4").compress(data, asbytes=True),
    "framed": framed_snappy,
    "xerial": xerial_snappy,
}


@pytest.mark.parametrize("form", FORMS)
def test_compressed_body_is_read_and_a_bomb_is_not(form):
    body = FORMS[form](TEXT)
    message = shown(body)
    assert message.text == '{\n  "id": 9223372036854775807,\n  "price": 1.50\n}'
    assert message.body == body
    assert message.decoded == (kind_of(body, "auto"),)
    bomb = FORMS[form](bytes(MOST + 1))
    with pytest.raises(TooLargeError):
        decompress(bomb, kind_of(bomb, "auto"), MOST)
    cut = shown(body[:-3])
    assert cut.outcome == "shown"
    assert cut.body == body[:-3]
    assert "not decompressed" in cut.reason


def test_raw_snappy_is_read_where_the_topic_says_so():
    assert shown(raw_snappy(TEXT), compression="snappy").form == "json"
    bomb = raw_snappy(bytes(MOST + 1))
    with pytest.raises(TooLargeError):
        decompress(bomb, "snappy", MOST)


def test_zstd_frame_of_a_huge_window_is_refused_before_memory_is_taken():
    frame = b"\x28\xb5\x2f\xfd\x00" + bytes([(37 - 10) << 3]) + b"\x01\x00\x00"
    with pytest.raises(TooLargeError):
        decompress(frame, "zstd", MOST)


@pytest.mark.parametrize(
    ("body", "form", "text"),
    [
        (b'{"a":1,"a":[],"b":{"c":1e400,"d":0.10}}',
         "json", '{\n  "a": 1,\n  "a": [],\n  "b": {\n    "c": 1e400,\n    "d": 0.10\n  }\n}'),
        ('"\\ud83d \u00e9"'.encode(), "json", '"\\ud83d \\u00e9"'),
        (b"123456789012345678901234567890", "json", "123456789012345678901234567890"),
        (b'{"a": tru', "text", '{"a": tru'),
        (b"[" * 100_000, "text", "[" * 100_000),
        (b"\x00\xff", "binary", None),
        (b"", "text", ""),
        (None, None, None),
    ],
    ids=["exact", "surrogate", "long number", "truncated", "deep", "binary", "empty", "none"],
)  # fmt: skip
def test_body_is_set_out_without_changing_what_it_says(body, form, text):
    message = shown(body)
    assert (message.outcome, message.form, message.text) == ("shown", form, text)
    assert message.body == body


def test_masked_places_leave_in_no_form():
    body = (
        b'{"card": {"number": "4111", "number": "4222"}, "items": [{"p": 1}, {"p": 2}], "id": "A"}'
    )
    message = shown(
        body, key=b"secret-key", headers=(("auth", b"t0ken"), ("trace", b"7F")),
        mask=["$.card.number", "$.items[*].p", "header:auth", "key", "$.absent"],
    )  # fmt: skip
    everything = repr(message.to_dict())
    for secret in ("4111", "4222", "secret-key", "t0ken", '"p": 1'):
        assert secret not in everything
    assert message.masked == ("$.card.number", "$.items[*].p", "header:auth", "key")
    assert '"id": "A"' in message.text
    assert message.headers == (("auth", b"***"), ("trace", b"7F"))


@pytest.mark.parametrize(
    "body",
    [b'{"card": "4111', b"card=4111", b"\xff4111", gzip.compress(b"4111 text", mtime=0)],
    ids=["cut", "text", "bytes", "gzip"],
)
def test_body_that_cannot_be_masked_is_withheld(body):
    message = shown(body, mask=["$.card"])
    assert message.outcome == "withheld"
    assert message.body is message.text is None
    assert "4111" not in repr(message.to_dict())


def test_compressed_body_is_masked_in_its_bytes_too():
    message = shown(gzip.compress(b'{"card": "4111"}'), mask=["$.card"])
    assert message.body == message.text.encode() == b'{\n  "card": "***"\n}'


def test_masked_value_is_hidden_whole():
    message = shown(b"\x00secret", mask=["value"])
    assert (message.body, message.text, message.masked) == (b"***", "***", ("value",))


def test_byte_order_mark_is_no_part_of_a_body():
    body = b'\xef\xbb\xbf{"id": "A", "card": "4111"}'
    message = shown(body)
    assert (message.form, message.body) == ("json", body)
    assert message.text.startswith("{")
    assert shown(body, mask=["$.card"]).text == '{\n  "id": "A",\n  "card": "***"\n}'
    assert shown(gzip.compress(body)).form == "json"
    assert shown(b"\xef\xbb\xbfplain").text == "plain"
    assert shown(b"\xef\xbb\xbf" * 2 + b"twice").text == "\ufefftwice"


def skippable(data):
    return (0x184D2A5D).to_bytes(4, "little") + len(data).to_bytes(4, "little") + data


@pytest.mark.parametrize("form", ["zstd", "lz4"])
def test_frames_that_readers_skip_hide_no_body(form):
    body = skippable(b"abcd") + skippable(b"") + FORMS[form](b'{"id": 1}')
    message = shown(body)
    assert (message.decoded, message.text) == ((form,), '{\n  "id": 1\n}')
    bomb = skippable(b"x") + b"\x28\xb5\x2f\xfd\x00" + bytes([(37 - 10) << 3]) + b"\x01\x00\x00"
    with pytest.raises(TooLargeError):
        decompress(bomb, "zstd", MOST)
    assert shown(skippable(b"abcd")).decoded == ()


def test_gzip_of_several_members_and_padding_is_read():
    body = gzip.compress(b'{"id"') + b"\0" * 7 + gzip.compress(b": 1}") + b"\0" * 512
    assert shown(body).text == '{\n  "id": 1\n}'
    assert "not decompressed" in shown(gzip.compress(b"x") + b"junk").reason
