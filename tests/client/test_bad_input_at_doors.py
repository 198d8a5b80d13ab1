"""Bad input at every door of a message log: the same refusal or the same answer, and nothing half applied.

A door takes messages as dicts and raises typed errors, whatever it speaks inside.
"""

from __future__ import annotations

import base64

import httpx2
import orjson
import pyarrow as pa
import pytest

from tests.app.small_index import SmallIndex
from tests.client.test_remote import AppTransport
from tierdex import errors
from tierdex.app.http.application import create_app
from tierdex.app.http.codecs.arrow_stream import ARROW_STREAM, write_stream
from tierdex.app.http.server_settings import ServerSettings
from tierdex.client.message_batches import read_messages
from tierdex.client.message_calls import read_found
from tierdex.client.refusals import error_of
from tierdex.client.remote import Client
from tierdex.log_service.message_log import MessageLog

MOST_BYTES, MOST_ROWS = 64 << 10, 50
GOOD = {"topic": "t", "queue_id": 0, "body": b"x"}


@pytest.fixture(scope="module")
def log(tmp_path_factory):
    """A log: queue 0 of `t` begins at 2 and ends at 4, its first two messages expired."""
    with MessageLog.open(
        tmp_path_factory.mktemp("log"), node="n", journal_bytes=1 << 20, background=False,
        max_message_bytes=MOST_BYTES, max_batch_entries=MOST_ROWS, disk_reserve_bytes=0,
    ) as log:  # fmt: skip
        log.append_batch(topic="t", queue_id=0, body=[b"0", b"1"])
        log.roll()
        log.run_compaction()
        log.expire(before=4_102_444_800_000)
        log.append_batch(topic="t", queue_id=0, body=[b"2", b"3"], keys=[["k"], ["k"]])
        yield log


class OfLog:
    """The verbs themselves: the library, and the clients."""

    def __init__(self, verbs):
        self._verbs = verbs

    def append(self, messages, **how):
        if len(messages) == 1:
            return self._verbs.append(**messages[0], **how)
        if "expect_offset" in how:
            raise errors.InvalidRequestError("one message", field="expect_offset")
        names = {name for message in messages for name in message}
        columns = {name: [message.get(name) for message in messages] for name in names}
        return self._verbs.append_batch(**columns, **how)

    def read(self, **asked):
        return self._verbs.read(**asked)

    def get(self, **asked):
        return self._verbs.get(**asked)


class OfHttp:
    """Bodies and queries as a caller without our client may send them."""

    def __init__(self, app, form):
        self._http = httpx2.Client(base_url="http://localhost", transport=AppTransport(app))
        self._form = form

    def append(self, messages, **how):
        content, kind = getattr(self, f"_{self._form}")(messages)
        sent = self._http.post(
            "/v1/messages", params=how, content=content, headers={"content-type": kind}
        )
        return orjson.loads(self._checked(sent))["offsets"]

    def read(self, **asked):
        headers = {"accept": ARROW_STREAM}
        return read_messages(
            self._checked(self._http.get("/v1/messages", params=asked, headers=headers))
        )

    def get(self, **asked):
        asked["encoding"] = "base64"
        return read_found(self._checked(self._http.get("/v1/messages", params=asked)))

    @staticmethod
    def _checked(response):
        if response.status_code != 200:
            assert response.status_code < 500, response.text
            raise error_of(response.status_code, response.headers, response.content)
        return response.content

    @staticmethod
    def _as_text(message):
        body = message.get("body")
        if isinstance(body, bytes):
            return message | {"body": base64.b64encode(body).decode(), "encoding": "base64"}
        return message

    def _json(self, messages):
        return dumps({"messages": [self._as_text(m) for m in messages]}), "application/json"

    def _ndjson(self, messages):
        return b"\n".join(dumps(self._as_text(m)) for m in messages), "application/x-ndjson"

    def _arrow(self, messages):
        names = {name for message in messages for name in message}
        columns = {name: [m.get(name) for m in messages] for name in names}
        try:
            return bytes(write_stream(pa.table(columns))), ARROW_STREAM
        except (pa.ArrowException, OverflowError) as error:  # Arrow itself refuses it
            raise errors.InvalidRequestError(str(error), field="messages") from error


def dumps(value):
    """Return JSON of any integer, which orjson's has not."""
    import json

    return json.dumps(value).encode()


def open_door(name, log):
    if name == "library":
        return OfLog(log)
    app = create_app(SmallIndex(), ServerSettings(log_requests=False), log=log)
    if name == "Client":  # whose calls AsyncClient sends as well
        return OfLog(Client("http://localhost", transport=AppTransport(app)))
    return OfHttp(app, name)


@pytest.fixture(scope="module", params=["library", "json", "ndjson", "arrow"])
def door(request, log):
    return open_door(request.param, log)


@pytest.fixture(scope="module", params=["library", "Client"])
def reading(request, log):
    return open_door(request.param, log)


def state_of(log):
    return log.topics(), [log.end_offsets(name, 0) for name in ("t", "u")], len(log.timers())


@pytest.mark.parametrize(
    ("wrong", "error"),
    [
        pytest.param([{"topic": ""}], "InvalidRequestError", id="empty topic"),
        pytest.param([{"topic": "u" * 256}], "InvalidRequestError", id="long topic"),
        pytest.param([{"topic": "u\n"}], "InvalidRequestError", id="topic with a control character"),
        pytest.param([{"topic": "\0timer"}], "InvalidRequestError", id="topic of the timer"),
        pytest.param([{"queue_id": -1}], "InvalidRequestError", id="negative queue_id"),
        pytest.param([{"queue_id": 1 << 31}], "InvalidRequestError", id="absurd queue_id"),
        pytest.param([{"queue_id": 1 << 70}], "InvalidRequestError", id="queue_id of no int64"),
        pytest.param([{"queue_id": 0.0}], "InvalidRequestError", id="fractional queue_id"),
        pytest.param([{"queue_id": True}], "InvalidRequestError", id="true queue_id"),
        pytest.param([{"queue_id": None}], "InvalidRequestError", id="no queue_id"),
        pytest.param([{"topic": None}], "InvalidRequestError", id="no topic"),
        pytest.param([{"body": None}], "InvalidRequestError", id="no body"),
        pytest.param([{"body": b"x" * (MOST_BYTES + 1)}], "RequestTooLargeError", id="large body"),
        pytest.param([{"timestamp": 1 << 63}], "InvalidRequestError", id="timestamp of no int64"),
        pytest.param([{"deliver_at": 1_700_000_000}], "InvalidRequestError", id="seconds"),
        pytest.param([{"deliver_at": 1 << 62}], "InvalidRequestError", id="absurd deliver_at"),
        pytest.param([{"keys": [""]}], "InvalidRequestError", id="empty key"),
        pytest.param([{"keys": ["k" * 70_000]}], "InvalidRequestError", id="long key"),
        pytest.param([{"message_id": ""}], "InvalidRequestError", id="empty message ID"),
        pytest.param([{"keys": ["k" * 200] * 400}], "RequestTooLargeError", id="too many keys"),
        pytest.param([{}, {"queue_id": -1}], "InvalidRequestError", id="second row"),
        pytest.param([{}, {"topic": "u", "body": b"x" * (MOST_BYTES + 1)}], "RequestTooLargeError",
                     id="large body in a second row"),
        pytest.param([{}] * (MOST_ROWS + 1), "RequestTooLargeError", id="large batch"),
    ],
)  # fmt: skip
def test_wrong_messages_are_refused_and_nothing_is_applied(log, door, wrong, error):
    before = state_of(log)
    with pytest.raises(errors.InvalidRequestError) as told:
        door.append([GOOD | message for message in wrong])
    assert type(told.value).__name__ == error
    assert told.value.field
    assert state_of(log) == before


@pytest.mark.parametrize(
    ("expected", "error"),
    [
        (3, errors.OffsetMismatchError), (5, errors.OffsetMismatchError), (0, errors.OffsetMismatchError),
        (1 << 62, errors.OffsetMismatchError), (-1, errors.InvalidRequestError),
        (1 << 63, errors.InvalidRequestError),
    ],
)  # fmt: skip
def test_wrong_expectation_is_refused_with_the_right_one(log, door, expected, error):
    if getattr(door, "_form", "") == "arrow":  # a batch of columns expects nothing
        error = errors.InvalidRequestError
    before = state_of(log)
    with pytest.raises(error) as told:
        door.append([GOOD], expect_offset=expected)
    if error is errors.OffsetMismatchError:
        assert told.value.next_offset == log.end_offset("t", 0) == 4
        assert told.value.end_offsets["disk"] == 4
    assert state_of(log) == before


@pytest.mark.parametrize("level", ["", "DISK", "safe", "published", "1"])
def test_unknown_level_is_refused(log, door, level):
    before = state_of(log)
    with pytest.raises(errors.InvalidRequestError, match=r"received|durability|visible"):
        door.append([GOOD], durability=level)
    with pytest.raises(errors.InvalidRequestError, match=r"received|durability|visible"):
        door.read(topic="t", queue_id=0, offset=0, visible=level)
    assert state_of(log) == before


@pytest.mark.parametrize(
    ("asked", "first", "bodies", "from_begin"),
    [
        ({"topic": "nobody"}, 0, [], False), ({"queue_id": 7}, 0, [], False),
        ({"queue_id": (1 << 31) - 1}, 0, [], False),
        ({"offset": 0}, 2, [b"2", b"3"], True), ({"offset": 1}, 2, [b"2", b"3"], True),
        ({"offset": 3}, 3, [b"3"], False), ({"offset": 4}, 4, [], False),
        ({"offset": (1 << 63) - 1}, (1 << 63) - 1, [], False),
    ],
)  # fmt: skip
@pytest.mark.parametrize("visible", ["disk", "remote"])
def test_offsets_outside_are_answered_from_the_begin_or_empty(
    reading, asked, first, bodies, from_begin, visible
):
    if visible == "remote":
        bodies, first = [], first if asked.get("offset", 0) != 3 else 3
    answer = reading.read(**{"topic": "t", "queue_id": 0, "offset": 0, "visible": visible, **asked})
    assert answer.complete, answer.missing
    assert [m.body for m in answer.messages] == bodies
    assert (answer.first_offset, answer.from_begin) == (first, from_begin)
    assert answer.next_offset == first + len(bodies)


@pytest.mark.parametrize(
    "wrong",
    [
        {"offset": -1}, {"offset": 1 << 63}, {"queue_id": -1}, {"queue_id": 1 << 31}, {"max_count": 0},
        {"max_count": -5}, {"max_count": 1 << 40}, {"max_bytes": 0}, {"max_bytes": 1 << 40}, {"topic": ""},
        {"topic": "t\x7f"},
    ],
    ids=str,
)  # fmt: skip
def test_absurd_reads_are_refused_by_the_field(reading, wrong):
    with pytest.raises(errors.InvalidRequestError) as told:
        reading.read(**{"topic": "t", "queue_id": 0, "offset": 0, **wrong})
    assert told.value.field == next(iter(wrong))


@pytest.mark.parametrize(
    "wrong",
    [
        {"topic": "t"}, {"key": "k"}, {"topic": "t", "key": "k", "message_id": "m"},
        {"topic": "t", "key": ""}, {"topic": "t", "key": "k", "max_count": 0},
        {"topic": "t", "key": "k", "cursor": "none"}, {"topic": "t", "key": "k", "begin": 1 << 70},
        {"topic": "t", "key": "k", "visible": "here"}, {"message_id": ""},
        {"topic": "t", "key": "k" * 5000}, {"topic": "t", "key": "k", "max_count": 10**9},
    ],
    ids=lambda asked: str(asked)[:60],
)  # fmt: skip
def test_wrong_question_for_a_key_is_refused(reading, wrong):
    with pytest.raises(errors.InvalidRequestError):
        reading.get(**wrong)


def test_unknown_keys_are_a_complete_answer_without_messages(reading):
    for asked in ({"topic": "nobody", "key": "k"}, {"topic": "t", "key": "K"}, {"message_id": "m"}):
        found = reading.get(**asked)
        assert (tuple(found.messages), found.complete) == ((), True)
    assert [m.body for m in reading.get(topic="t", key="k").messages] == [b"3", b"2"]


def test_question_that_fits_no_request_is_refused_and_not_tried_again(log):
    client = open_door("Client", log)
    with pytest.raises(errors.InvalidRequestError):
        client.get(topic="t", key="k" * 70_000)
    with pytest.raises(errors.InvalidRequestError) as told:
        client.append([GOOD | {"queue_id": 1 << 70}])
    assert told.value.field == "queue_id"


def test_every_verb_of_a_client_refuses_a_closed_log(tmp_path):
    log = MessageLog.open(tmp_path, journal_bytes=1 << 20, max_message_bytes=8192)
    client = Client(
        "http://localhost", attempts=1,
        transport=AppTransport(create_app(SmallIndex(), ServerSettings(log_requests=False), log=log)),
    )  # fmt: skip
    log.close()
    for call in (
        lambda of: of.append(**GOOD), lambda of: of.append_batch(topic="t", queue_id=0, body=[b"x"]),
        lambda of: of.read("t", 0, 0), lambda of: of.get("t", key="k"), lambda of: of.queues("t"),
        lambda of: of.end_offset("t", 0), lambda of: of.end_offsets("t", 0), lambda of: of.timers(),
    ):  # fmt: skip
        with pytest.raises(errors.ClosedError):
            call(log)
        with pytest.raises((errors.ClosedError, errors.UnavailableError)):
            call(client)
