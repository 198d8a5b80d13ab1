from __future__ import annotations

import inspect
import logging
import subprocess
import sys
from dataclasses import fields

import botocore.exceptions
import pytest
import urllib3.exceptions

from tests.servers.s3_server import ACCESS_KEY, SECRET_KEY
from tests.servers.scripted_s3 import ScriptedS3
from tierdex.clock import ManualClock, SystemClock
from tierdex.errors import (
    AlreadyExistsError,
    CorruptFileError,
    StoreRefusedError,
    StoreTimeoutError,
    StoreUnavailableError,
    TierdexError,
)
from tierdex.ids import SeededIds
from tierdex.storage_layer.retrying import RetryingStore, RetryPolicy
from tierdex.storage_layer.s3 import S3Store
from tierdex.storage_layer.s3_client import S3Server, translate
from tierdex.testing.store_contract import PatternSource

BODY = b"0123456789" * 100
PATH = "/bucket/a/key"


def make_policy(attempts=1):
    return RetryPolicy(attempts, clock=ManualClock(), ids=SeededIds(1))


@pytest.fixture(scope="module")
def shared_server(aws_environment):
    server = ScriptedS3()
    yield server
    server.close()


@pytest.fixture
def server(shared_server):
    shared_server.reset()
    return shared_server


def make_scripted_store(server, **settings):
    reached = {"endpoint_url": server.endpoint_url, "timeout_s": 5.0}
    names = {field.name for field in fields(S3Server)}
    reached |= {name: settings.pop(name) for name in names & settings.keys()}
    arguments = {"part_retry": make_policy(), "clock": SystemClock(), **settings}
    return S3Store("bucket", S3Server(**reached), **arguments)


@pytest.fixture
def make_store(server):
    stores = []

    def make(**settings):
        stores.append(make_scripted_store(server, **settings))
        return stores[-1]

    yield make
    for store in stores:
        store.close()


@pytest.fixture(scope="module")
def shared_store(shared_server):
    """Clients take a moment to make: tests without wishes share one."""
    store = make_scripted_store(shared_server)
    yield store
    store.close()


@pytest.fixture(scope="module")
def impatient_store(shared_server):
    store = make_scripted_store(shared_server, timeout_s=0.15)
    yield store
    store.close()


@pytest.fixture
def store(shared_store, server):
    return shared_store


# -- one request, one answer ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("status", "code", "expected"),
    [
        (404, "NoSuchBucket", StoreRefusedError),
        (403, "AccessDenied", StoreRefusedError),
        (401, "", StoreRefusedError),
        (403, "SignatureDoesNotMatch", StoreRefusedError),
        (409, "OperationAborted", StoreUnavailableError),
        (429, "TooManyRequests", StoreUnavailableError),
        (500, "InternalError", StoreUnavailableError),
        (503, "SlowDown", StoreUnavailableError),
        (408, "RequestTimeout", StoreTimeoutError),
        (501, "NotImplemented", StoreRefusedError),
        (416, "InvalidRange", CorruptFileError),
    ],
)
@pytest.mark.parametrize("verb", ["get", "put", "delete", "list"])
def test_refusal_becomes_the_same_error_from_every_verb(
    store, server, verb, status, code, expected
):
    server.then((status, code))
    with pytest.raises(expected) as caught:
        call_verb(store, verb)
    assert type(caught.value) is expected
    assert len(server.seen) == 1  # botocore repeats nothing: RetryingStore does


def test_pause_that_the_server_asks_for_is_in_the_error(store, server):
    server.then((503, "SlowDown", {"Retry-After": "7"}), (503, "SlowDown", {"Retry-After": "8"}))
    with pytest.raises(StoreUnavailableError) as caught:
        store.get("a/key")
    assert caught.value.retry_after_s == 7
    with pytest.raises(StoreUnavailableError) as caught:
        store.put("a/key", b"")
    assert caught.value.retry_after_s == 8


@pytest.mark.parametrize("verb", ["get", "put", "delete", "list"])
def test_connection_hung_up_is_retryable(store, server, verb):
    server.then("hang up")
    with pytest.raises(StoreUnavailableError):
        call_verb(store, verb)


@pytest.mark.parametrize("verb", ["get", "put"])
def test_silence_is_a_timeout(impatient_store, server, verb):
    server.then("say nothing")
    with pytest.raises(StoreTimeoutError):
        call_verb(impatient_store, verb)


@pytest.mark.parametrize("verb", ["get", "put", "delete", "list"])
def test_nobody_listening_is_retryable(make_store, verb):
    store = make_store(endpoint_url="http://127.0.0.1:1")
    with pytest.raises(StoreUnavailableError):
        call_verb(store, verb)


def call_verb(store, verb):
    if verb == "get":
        return store.get("a/key", 0, 10)
    if verb == "put":
        return store.put("a/key", BODY)
    if verb == "delete":
        return store.delete("a/key")
    return list(store.list("a/"))


# -- reading --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("behaviour", ["cut", "stall", "short range", "wrong range"])
@pytest.mark.parametrize("through", ["lean", "boto3"])
def test_body_that_is_not_the_range_is_an_error_and_never_short(
    store, impatient_store, server, behaviour, through
):
    store = impatient_store if behaviour == "stall" else store
    server.objects[PATH] = BODY
    if through == "boto3":
        server.then((301, "PermanentRedirect"))
    server.then(behaviour)
    with pytest.raises(StoreUnavailableError):
        store.get("a/key", 100, 50)
    assert store.get("a/key", 100, 50) == BODY[100:150]


@pytest.mark.parametrize("behaviour", ["cut", "stall"])
def test_whole_body_that_is_cut_is_an_error(impatient_store, server, behaviour):
    server.objects[PATH] = BODY
    server.then(behaviour)
    with pytest.raises(StoreUnavailableError):
        impatient_store.get("a/key")


def test_server_that_ignores_ranges_is_answered_from_the_whole(store, server):
    server.objects[PATH] = BODY
    server.then("ignore range", "ignore range")
    assert store.get("a/key", 3, 5) == BODY[3:8]
    with pytest.raises(CorruptFileError):
        store.get("a/key", 990, 20)


@pytest.mark.parametrize("length", [5, None])
def test_length_that_is_told_twice_is_no_error(store, server, length):
    server.objects[PATH] = BODY
    server.then("two lengths")
    assert store.get("a/key", 0, length) == BODY[:length]


def test_redirect_is_left_to_boto3(store, server):
    server.objects[PATH] = BODY
    server.then((307, "TemporaryRedirect"))
    assert store.get("a/key", 3, 5) == BODY[3:8]
    assert server.seen == [("GET", PATH)] * 2


def test_lean_get_through_a_proxy_is_left_to_boto3(make_store, server, monkeypatch):
    monkeypatch.setenv("http_proxy", server.endpoint_url)
    monkeypatch.setenv("no_proxy", "")
    store = make_store(endpoint_url="http://store.invalid")
    server.objects["http://store.invalid/bucket/a/key"] = BODY
    assert store.get("a/key", 3, 5) == BODY[3:8]


def test_crawling_body_is_given_up(make_store, server):
    class Hasty(SystemClock):
        """An hour passes between any two looks."""

        def __init__(self):
            self.now_s = 0.0

        def monotonic(self):
            self.now_s += 3600
            return self.now_s

    store = make_store(clock=Hasty())
    server.objects[PATH] = BODY
    with pytest.raises(StoreTimeoutError, match="too slowly"):
        store.get("a/key")


def test_session_token_is_signed_into_the_lean_get(make_store, server, monkeypatch):
    monkeypatch.setenv("AWS_SESSION_TOKEN", "a-token")
    server.objects[PATH] = BODY
    assert make_store().get("a/key", 3, 5) == BODY[3:8]
    assert server.headers[-1]["x-amz-security-token"] == "a-token"
    assert "x-amz-security-token" in server.headers[-1]["authorization"]


@pytest.mark.parametrize("lost", ["Key", "Size", "LastModified"])
def test_listing_with_an_altered_entry_is_an_error(store, server, lost):
    entry = "<Key>a/key</Key><Size>1</Size><LastModified>2026-01-01T00:00:00Z</LastModified>"
    text = f"<ListBucketResult><Contents>{entry}</Contents><IsTruncated>false</IsTruncated>"
    server.then(f"{text}</ListBucketResult>".replace(f"{lost}>", "Kex>").encode())
    with pytest.raises(StoreUnavailableError, match=lost):
        list(store.list("a/"))


# -- conditional writes ---------------------------------------------------------------------------------


def test_own_write_is_recognised_after_a_lost_answer(store, server):
    retried = RetryingStore(store, make_policy(attempts=3))
    server.then("hang up after")
    retried.put_if_absent("a/key", BODY)
    assert [verb for verb, _ in server.seen] == ["PUT", "PUT", "GET"]
    assert server.objects[PATH] == BODY


def test_own_write_is_recognised_when_a_proxy_repeated_it(store, server):
    server.objects[PATH] = BODY
    server.then((412, "PreconditionFailed"))
    store.put_if_absent("a/key", BODY)


def test_taken_key_is_told_apart_from_a_conflict_under_way(store, server):
    server.objects[PATH] = b"another"
    with pytest.raises(AlreadyExistsError):
        store.put_if_absent("a/key", BODY)
    server.then((409, "ConditionalRequestConflict"))
    with pytest.raises(StoreUnavailableError):
        store.put_if_absent("a/key", BODY)


def test_conflict_under_way_is_asked_again(store, server):
    retried = RetryingStore(store, make_policy(attempts=3))
    server.then((409, "ConditionalRequestConflict"), (409, "ConditionalRequestConflict"))
    retried.put_if_absent("a/key", BODY)
    assert server.objects[PATH] == BODY


def test_object_that_came_and_went_is_retryable(store, server):
    server.then((412, "PreconditionFailed"))
    with pytest.raises(StoreUnavailableError):
        store.put_if_absent("a/key", BODY)


# -- writing --------------------------------------------------------------------------------------------


def test_put_carries_a_digest_that_servers_verify(store, server):
    store.put("a/key", BODY)
    assert "content-md5" in server.headers[-1]


def test_checksum_setting_leaves_the_digest_to_boto3(make_store, server):
    make_store(checksum="when_supported").put("a/key", BODY)
    assert "content-md5" not in server.headers[-1]
    assert any(name.startswith("x-amz-checksum") for name in server.headers[-1])


def test_lost_part_is_sent_again_and_not_the_whole_upload(radosgw, monkeypatch):
    store = S3Store(
        radosgw.make_bucket(),
        S3Server(endpoint_url=radosgw.endpoint_url),
        multipart_bytes=5 << 20,
        part_retry=make_policy(attempts=3),
        clock=SystemClock(),
    )
    sent = fail_some_parts(store, monkeypatch, failing={1})
    store.upload("big", PatternSource(11 << 20), 11 << 20)
    assert sent == [1, 1, 2, 3]
    assert store.head("big").size == 11 << 20
    store.close()


def test_failed_upload_is_aborted_and_invisible(radosgw, monkeypatch):
    bucket = radosgw.make_bucket()
    store = S3Store(
        bucket,
        S3Server(endpoint_url=radosgw.endpoint_url),
        multipart_bytes=5 << 20,
        part_retry=make_policy(attempts=2),
        clock=SystemClock(),
    )
    fail_some_parts(store, monkeypatch, failing={2, 3})
    with pytest.raises(StoreUnavailableError):
        store.upload("big", PatternSource(6 << 20), 6 << 20)
    assert radosgw.client.list_multipart_uploads(Bucket=bucket).get("Uploads", []) == []
    assert list(store.list("")) == []
    store.close()


def test_upload_whose_completion_says_nothing_has_failed(make_store, server):
    store = make_store(multipart_bytes=600)
    server.then(
        b"<InitiateMultipartUploadResult><UploadId>u</UploadId></InitiateMultipartUploadResult>"
    )
    server.then("well", "well", b"")
    with pytest.raises(StoreUnavailableError, match="was cut"):
        store.upload("a/key", PatternSource(1000), 1000)
    assert [verb for verb, _ in server.seen] == ["POST", "PUT", "PUT", "POST", "DELETE"]


def fail_some_parts(store, monkeypatch, failing):
    """Let the calls of upload_part whose number (from 1) is in `failing` be lost; list what is sent."""
    real, sent = store._client.upload_part, []

    def upload_part(**arguments):
        sent.append(arguments["PartNumber"])
        if len(sent) in failing:
            raise botocore.exceptions.ConnectionClosedError(endpoint_url="http://store")
        return real(**arguments)

    monkeypatch.setattr(store._client, "upload_part", upload_part)
    return sent


# -- real refusals --------------------------------------------------------------------------------------


def test_missing_bucket_is_refused_and_says_what_to_do(s3_server):
    store = S3Store(
        "no-such-bucket",
        S3Server(endpoint_url=s3_server.endpoint_url),
        part_retry=make_policy(),
        clock=SystemClock(),
    )
    for call in (
        lambda: store.get("key"),
        lambda: store.put("key", b""),
        lambda: [*store.list("")],
    ):
        with pytest.raises(StoreRefusedError, match="create the bucket"):
            call()
    store.close()


@pytest.mark.radosgw
def test_wrong_secret_is_refused_and_never_shown(radosgw, monkeypatch, caplog):
    caplog.set_level(logging.DEBUG)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "a-wrong-secret")
    store = S3Store(
        radosgw.make_bucket(),
        S3Server(endpoint_url=radosgw.endpoint_url),
        part_retry=make_policy(),
        clock=SystemClock(),
    )
    for call in (lambda: store.get("key"), lambda: store.put("key", b"")):
        with pytest.raises(StoreRefusedError, match="AWS credentials") as caught:
            call()
        assert "a-wrong-secret" not in str(caught.value)
    shown = caplog.text + repr(store) + store.url
    store.close()
    assert "a-wrong-secret" not in shown
    assert SECRET_KEY not in shown
    assert ACCESS_KEY not in shown
    assert "Signature=" not in shown


def test_missing_credentials_are_refused(make_store, monkeypatch):
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    store = make_store()
    with pytest.raises(StoreRefusedError, match="credentials"):
        store.get("a/key")
    with pytest.raises(StoreRefusedError, match="credentials"):
        store.put("a/key", b"")


def test_missing_profile_is_refused(make_store, monkeypatch):
    monkeypatch.setenv("AWS_PROFILE", "nobody")
    with pytest.raises(StoreRefusedError, match="nobody"):
        make_store()


# -- errors of the libraries ----------------------------------------------------------------------------


def make_error(kind):
    """Return an instance of a library's exception, whatever its constructor wants."""
    error = kind.__new__(kind)
    error.__dict__.update(partial=0, expected=0, length=0)
    if isinstance(error, botocore.exceptions.ClientError):
        error.response = {"Error": {"Code": "Odd"}, "ResponseMetadata": {"HTTPStatusCode": 400}}
    Exception.__init__(error, "odd")
    return error


def exceptions_of(module):
    return [
        kind
        for _, kind in inspect.getmembers(module, inspect.isclass)
        if issubclass(kind, Exception) and not issubclass(kind, Warning)
    ]


@pytest.mark.parametrize("kind", exceptions_of(botocore.exceptions), ids=lambda kind: kind.__name__)
def test_every_error_of_botocore_becomes_one_of_ours(kind):
    assert isinstance(translate(make_error(kind), "s3://bucket/key"), TierdexError)


@pytest.mark.parametrize(
    "kind",
    [k for k in exceptions_of(urllib3.exceptions) if issubclass(k, urllib3.exceptions.HTTPError)],
    ids=lambda kind: kind.__name__,
)
def test_every_error_of_urllib3_is_retryable(kind):
    assert isinstance(translate(make_error(kind), "s3://bucket/key"), StoreUnavailableError)


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        (botocore.exceptions.ConnectTimeoutError, StoreTimeoutError),
        (botocore.exceptions.ReadTimeoutError, StoreTimeoutError),
        (botocore.exceptions.EndpointConnectionError, StoreUnavailableError),
        (botocore.exceptions.ConnectionClosedError, StoreUnavailableError),
        (botocore.exceptions.IncompleteReadError, StoreUnavailableError),
        (botocore.exceptions.MetadataRetrievalError, StoreUnavailableError),
        (botocore.exceptions.NoCredentialsError, StoreRefusedError),
        (botocore.exceptions.NoRegionError, StoreRefusedError),
        (urllib3.exceptions.ReadTimeoutError, StoreTimeoutError),
        (urllib3.exceptions.NewConnectionError, StoreUnavailableError),
        (TimeoutError, StoreTimeoutError),
        (ConnectionResetError, StoreUnavailableError),
    ],
)
def test_errors_of_the_libraries_are_told_apart(kind, expected):
    assert type(translate(make_error(kind), "s3://bucket/key")) is expected


def test_bug_of_ours_is_not_dressed_up_as_a_store_error():
    assert translate(KeyError("x"), "s3://bucket/key") is None


def test_missing_boto3_names_the_extra_and_the_package_loads_without_it():
    program = """
import sys
sys.modules["boto3"] = None
from tierdex.storage_layer.open import open_store
from tierdex.storage_layer.s3 import S3Store
assert "botocore" not in sys.modules
try:
    open_store("s3://bucket/prefix")
except Exception as error:
    print(type(error).__name__, error)
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert "StoreRefusedError" in done.stdout
    assert "tierdex[s3]" in done.stdout
