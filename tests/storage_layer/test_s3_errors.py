from __future__ import annotations

import pytest

from tierdex.errors import NotFoundError, StoreRefusedError, StoreUnavailableError
from tierdex.storage_layer.s3_errors import (
    ADVICE,
    Refusal,
    error_of,
    parse_retry_after,
    refusal_of_body,
)


@pytest.mark.parametrize("code", sorted(ADVICE))
def test_refusal_with_a_known_code_says_what_to_do(code):
    error = error_of(Refusal(403, code, "because"), "s3://bucket/key")
    assert type(error) is StoreRefusedError
    assert str(error).endswith(ADVICE[code])
    assert "s3://bucket/key" in str(error)


@pytest.mark.parametrize("code", ["BadDigest", "IncompleteBody", "NoSuchUpload", "SlowDown"])
def test_what_another_attempt_mends_is_retryable(code):
    assert type(error_of(Refusal(400, code, ""), "x")) is StoreUnavailableError


def test_head_of_an_absent_object_is_not_found_without_a_body():
    error = error_of(Refusal(404, "404", "Not Found"), "x")
    assert (type(error), str(error)) == (NotFoundError, "x: 404 Not Found")


def test_long_message_of_a_server_is_cut():
    assert len(str(error_of(Refusal(500, "InternalError", "x" * 10_000), "x"))) < 300


def test_error_body_that_is_no_xml_has_no_code():
    refusal = refusal_of_body(502, {}, b"<html>bad gateway \xff</html>")
    assert (refusal.status, refusal.code, refusal.retry_after_s) == (502, "", 0)


@pytest.mark.parametrize(
    ("value", "expected"),
    [(None, 0), ("", 0), ("5", 5), ("-1", 0), ("1e9", 0), ("Wed, 21 Oct 2015 07:28:00 GMT", 0)],
)
def test_retry_after_is_read_as_seconds_or_left(value, expected):
    assert parse_retry_after(value) == expected
