from __future__ import annotations

import pytest

from tierdex.errors import CorruptFileError, StoreUnavailableError
from tierdex.storage_layer.open import open_store
from tierdex.storage_layer.s3_get import checked_body, range_header


@pytest.mark.parametrize(
    ("position", "length", "expected"),
    [(0, 1, "bytes=0-0"), (10, 20, "bytes=10-29"), (10, None, "bytes=10-")],
)
def test_range_header_is_inclusive(position, length, expected):
    assert range_header(position, length) == expected


@pytest.mark.parametrize(
    ("body", "content_range", "expected"),
    [
        (b"abcde", "bytes 10-14/100", b"abcde"),
        (b"abcd", "bytes 10-14/100", StoreUnavailableError),
        (b"abcdef", "bytes 10-14/100", StoreUnavailableError),
        (b"abcde", "bytes 11-15/100", StoreUnavailableError),
        (b"abcd", "bytes 10-13/14", CorruptFileError),
        (b"0123456789abcdef", None, b"abcde"),
        (b"0123456789abcd", None, CorruptFileError),
        (b"0123456789abcdef", "rubbish", b"abcde"),
    ],
)
def test_body_is_the_range_or_an_error(body, content_range, expected):
    arguments = {"content_range": content_range, "where": "x"}
    if isinstance(expected, bytes):
        assert checked_body(body, 10, 5, **arguments) == expected
    else:
        with pytest.raises(expected):
            checked_body(body, 10, 5, **arguments)


def test_lean_get_and_boto3_return_the_same(s3_server):
    store = open_store(s3_server.make_url("pre=fix/a.b_c"))
    body = bytes(range(256)) * 40
    store.put("node=1/key_-.x", body)
    backend = store._inner._inner
    assert backend._lean() is not None
    for position, length in [(0, None), (0, 1), (100, 5000), (10_000, None)]:
        lean = store.get("node=1/key_-.x", position, length)
        full = backend._get_by_boto3("pre=fix/a.b_c/node=1/key_-.x", position, length)
        assert lean == full
    store.close()
