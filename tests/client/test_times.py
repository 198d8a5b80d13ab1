"""One time in each of its forms, put and asked for through the library and a client."""

from __future__ import annotations

from datetime import UTC, datetime

import numpy as np
import pytest

from tests.client.test_remote import AppTransport
from tierdex import Index, MessageLog
from tierdex.app.http.application import create_app
from tierdex.app.http.server_settings import ServerSettings
from tierdex.client.remote import Client
from tierdex.errors import InvalidRequestError

TIME_MS = 1_700_000_000_000
FORMS = [
    TIME_MS,
    "1700000000000",
    "2023-11-14T22:13:20Z",
    datetime.fromtimestamp(TIME_MS / 1000, UTC),
]
PLACE = {"topic": "t", "queue_id": 0, "size": 1}
APP = ServerSettings(log_requests=False)


@pytest.fixture(scope="module")
def index(tmp_path_factory):
    with Index.open(tmp_path_factory.mktemp("times"), background=False) as index:
        yield index


@pytest.fixture(params=["library", "client"])
def door(request, index):
    if request.param == "library":
        yield index
        return
    with Client("http://localhost", transport=AppTransport(create_app(index, APP))) as client:
        yield client


def test_every_form_is_put_and_found(door, request):
    forms = [form for form in FORMS if form != "1700000000000"]  # JSON has numbers
    for offset, form in enumerate(forms):
        door.put(**PLACE, keys=[request.node.name], offset=offset, timestamp=form)
    for form in FORMS:
        found = door.query("t", key=request.node.name, begin=form, end=form)
        assert [entry.timestamp for entry in found.entries] == [TIME_MS] * len(forms)
    assert (
        len(door.query("t", key=request.node.name, begin="2023-11-14", end="2023-11-14").entries)
        == 3
    )
    assert door.query("t", key=request.node.name, end="2023-11-13").entries == []


def test_batch_takes_a_list_of_them(door, request):
    keys = [request.node.name] * 3
    forms = [[TIME_MS] * 3, [*FORMS[2:], TIME_MS], np.array([TIME_MS] * 3, "datetime64[ms]")]
    for number, times in enumerate(forms):
        door.put_batch(
            **PLACE, keys=keys, offset=[3 * number, 3 * number + 1, 3 * number + 2], timestamp=times
        )
    (found,) = door.query_batch(
        [{"topic": "t", "key": keys[0], "begin": FORMS[3], "end": FORMS[2]}]
    )
    assert len(found.entries) == 9


def test_datetime_without_a_zone_is_refused(door):
    naive = datetime(2023, 11, 14)  # noqa: DTZ001
    for act in (
        lambda: door.put(**PLACE, keys=["n"], offset=0, timestamp=naive),
        lambda: door.put_batch(**PLACE, keys=["n"], offset=[0], timestamp=[naive]),
        lambda: door.query("t", key="n", begin=naive),
    ):
        with pytest.raises(InvalidRequestError):
            act()


def test_time_before_now_is_for_people(index, door):
    door.put(**PLACE, keys=["old"], offset=0, timestamp=TIME_MS)
    if door is index:
        with pytest.raises(InvalidRequestError, match="begin"):
            door.query("t", key="old", begin="7d")
    else:
        assert door.query("t", key="old", begin="7d").entries == []
        assert len(door.query("t", key="old", end="-7d").entries) == 1


def test_log_takes_every_form(tmp_path):
    with MessageLog.open(
        tmp_path, background=False, journal_bytes=1 << 20, max_message_bytes=64 << 10
    ) as log:
        for form in FORMS:
            log.append(topic="t", queue_id=0, body=b"x", keys=["k"], timestamp=form)
        log.append_batch(topic="t", queue_id=0, body=[b"x"] * 3, timestamp=[*FORMS[2:], TIME_MS])
        log.append_batch(topic="t", queue_id=0, body=[b"y"], timestamp=FORMS[2])
        log.append(topic="t", queue_id=0, body=b"z", deliver_at=FORMS[3], timestamp=FORMS[2])
        log.append_batch(
            topic="t", queue_id=0, body=[b"z"], deliver_at=[FORMS[2]], timestamp=TIME_MS
        )
        assert {m.timestamp for m in log.read("t", 0, 0).messages} == {TIME_MS}
        for form in FORMS:
            assert log.offset_at("t", 0, form) == 0
            assert len(log.get("t", key="k", begin=form, end=form).messages) == 4
