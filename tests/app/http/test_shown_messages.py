"""`GET /v1/entries?message=true`: the message with its entry, who may see it, and the clients' form of it."""

from __future__ import annotations

import threading

import orjson
import pyarrow as pa
import pytest

from tests.app.conftest import ENTRY, Caller, assert_problem, open_small_files
from tests.patience import PATIENCE_S
from tierdex.app.http.codecs.arrow_stream import ARROW_STREAM, write_stream
from tierdex.app.rights import Grant, Scope
from tierdex.client.answers import read_answer, read_answers
from tierdex.following.records import Record
from tierdex.log_service.message_log import MessageLog
from tierdex.resolving.message_fetcher import MessageFetcher
from tierdex.resolving.resolver import Found
from tierdex.resolving.rule import Names
from tierdex.resolving.show_settings import ShowSettings

ASKED = {"topic": "orders", "key": "ORDER-1", "message": "true"}
PATIENT = ShowSettings(message_timeout=PATIENCE_S)


class OneBody:
    """A resolver whose every message is `body`."""

    name = "one body"

    def __init__(self, body=b'{"id": "ORDER-1"}', names=("ORDER-1",)):
        self.body, self.names = body, names
        self.fetched, self.most, self.now = 0, 0, 0
        self.go = threading.Event()
        self.go.set()
        self.together = threading.Lock()

    def where(self, entry):
        return f"one body, offset {entry.offset}"

    def fetch(self, entry, wanted):
        with self.together:
            self.fetched += 1
            self.now += 1
            self.most = max(self.most, self.now)
        assert self.go.wait(PATIENCE_S)
        with self.together:
            self.now -= 1
        return Found(Record(0, entry.offset, 5, b"\xff", self.body), Names(self.names, ()))

    def close(self):
        pass


@pytest.fixture
def resolver():
    return OneBody()


@pytest.fixture
def make(tmp_path, resolver):
    """Make a service that fetches by `resolver`."""
    opened = []

    def make(keys=None, text="", settings=PATIENT, **arguments):
        data = tmp_path / "data"
        data.mkdir(exist_ok=True)
        (data / "resolvers.toml").write_text(text)
        index = open_small_files(data)
        messages = MessageFetcher(data, settings, others=resolver)
        opened.extend((messages, index))
        return Caller(index, keys, messages=messages, **arguments)

    yield make
    for each in opened:
        each.close()


def put(caller, count=1, **entry):
    rows = [{**ENTRY, "offset": 600 * n, **entry} for n in range(count)]
    assert caller.post("/v1/entries", json={"entries": rows}).status_code == 200


def test_message_comes_with_its_entry_and_the_client_reads_it(make):
    caller = make()
    put(caller)
    response = caller.get("/v1/entries", params=ASKED)
    (entry,) = response.json()["entries"]
    assert entry["message"]["outcome"] == "shown"
    assert entry["message"]["encoding"] == "base64"  # of its key, which is no text
    (read,) = read_answer(response.content).entries
    assert (read.message.body, read.message.key) == (b'{"id": "ORDER-1"}', b"\xff")
    assert read.message.text == '{\n  "id": "ORDER-1"\n}'
    assert orjson.loads(orjson.dumps(read.to_dict())) == entry
    assert b'tierdex_messages_shown_total{outcome="shown"} 1.0' in caller.get("/metrics").content
    (plain,) = caller.get("/v1/entries", params={**ASKED, "message": "false"}).json()["entries"]
    assert "message" not in plain


def test_message_of_another_key_is_not_the_answer(make, resolver):
    caller = make()
    put(caller)
    resolver.names = ("ORDER-2",)
    (entry,) = caller.get("/v1/entries", params=ASKED).json()["entries"]
    assert entry["message"]["outcome"] == "mismatch"
    assert entry["message"]["body"] is None


def test_scope_message_is_needed(make, keys):
    read, write, message, admin = (
        keys.create(scope) for scope in (Scope.READ, Scope.WRITE, Scope.MESSAGE, Scope.ADMIN)
    )
    caller = make(keys)
    for key in (read, write):
        assert_problem(caller.get("/v1/entries", params=ASKED, key=key), 403, "permission-denied")
    for key in (message, admin):
        assert caller.get("/v1/entries", params=ASKED, key=key).status_code == 200
    refused = caller.post("/v1/entries", json={"entries": [ENTRY]}, key=message)
    assert_problem(refused, 403, "permission-denied")


def test_messages_are_fetched_together_within_the_bounds(make, resolver):
    caller = make(settings=ShowSettings(message_timeout=PATIENCE_S, message_fetches=3))
    put(caller, 12)
    resolver.go.clear()
    answers = []
    asking = threading.Thread(
        target=lambda: answers.append(caller.get("/v1/entries", params=ASKED).json())
    )
    asking.start()
    while resolver.now < 3:
        pass
    resolver.go.set()
    asking.join()
    assert resolver.most == 3
    assert [e["message"]["outcome"] for e in answers[0]["entries"]] == ["shown"] * 12


def test_log_that_hangs_does_not_hold_the_answer_up(make, resolver):
    caller = make()
    put(caller)
    resolver.go.clear()
    answer = caller.get("/v1/entries", params={**ASKED, "message_timeout": "0.05"}).json()
    resolver.go.set()
    message = answer["entries"][0]["message"]
    assert message["outcome"] == "unavailable"
    assert "in time" in message["reason"]
    assert message["where"] == "one body, offset 0"


def test_long_messages_are_bounded_one_by_one_and_together(make, resolver):
    caller = make(settings=ShowSettings(message_timeout=PATIENCE_S, max_shown_bytes=1300))
    put(caller, 4, size=500)
    outcomes = [
        e["message"]["outcome"] for e in caller.get("/v1/entries", params=ASKED).json()["entries"]
    ]
    assert outcomes == ["shown", "shown", "too_large", "too_large"]
    assert resolver.fetched == 2


@pytest.mark.parametrize(
    ("parameters", "field"),
    [
        ({"message": "yes"}, "message"),
        ({"message": "true", "max_message_bytes": "0"}, "max_message_bytes"),
        ({"message": "true", "message_timeout": "-1"}, "message_timeout"),
        ({"message_timeout": "1"}, "message_timeout"),
        ({"resolver": "kafka://x/y"}, "resolver"),
    ],
)
def test_bad_parameters_are_refused(make, parameters, field):
    asked = {"topic": "orders", "key": "k", **parameters}
    assert_problem(make().get("/v1/entries", params=asked), 400, "invalid-request", field)


def test_service_without_messages_says_so(caller):
    assert_problem(caller.get("/v1/entries", params=ASKED), 404, "not-found")
    assert_problem(ask_batch(caller, [LOOKUP]), 404, "not-found")


LOOKUP = {"topic": "orders", "key": "ORDER-1"}


def ask_batch(caller, lookups, parameters="message=true", **arguments):
    path = f"/v1/entries:batchGet?{parameters}"
    return caller.post(path, json={"lookups": lookups}, **arguments)


def test_each_lookup_of_a_batch_has_the_messages_that_it_has_alone(make, resolver):
    caller = make()
    resolver.names = ("ORDER-1", "ORDER-2")
    put(caller, 3)
    put(caller, 1, keys=["ORDER-2"], offset=9000)
    put(caller, 1, keys=["ORDER-3"], offset=9600)
    keys = ["ORDER-2", "none", "ORDER-1", "ORDER-3"]
    lookups = [{"topic": "orders", "key": key} for key in keys]
    response = ask_batch(caller, lookups)
    answers = response.json()["answers"]
    alone = [caller.get("/v1/entries", params={**ASKED, "key": key}).json() for key in keys]
    assert [answer["entries"] for answer in answers] == [answer["entries"] for answer in alone]
    assert [[e["message"]["outcome"] for e in answer["entries"]] for answer in answers] == [
        ["shown"], [], ["shown"] * 3, ["mismatch"],
    ]  # fmt: skip
    assert read_answers(response.content)[0].entries[0].message.body == resolver.body
    plain = ask_batch(caller, lookups, "").json()["answers"]
    assert not any("message" in entry for answer in plain for entry in answer["entries"])


def test_bounds_hold_for_all_messages_of_a_batch_together(make, resolver):
    caller = make(settings=ShowSettings(message_timeout=PATIENCE_S, max_shown_bytes=1300))
    put(caller, 1, size=500)
    answers = ask_batch(caller, [LOOKUP] * 4).json()["answers"]
    outcomes = [answer["entries"][0]["message"]["outcome"] for answer in answers]
    assert outcomes == ["shown", "shown", "too_large", "too_large"]
    assert resolver.fetched == 2


def test_batch_needs_the_scope_message_in_each_topic(make, keys):
    read, of_orders = (
        keys.create(Scope.READ),
        keys.create(Scope.READ, Grant(Scope.MESSAGE, "orders")),
    )
    caller = make(keys)
    allowed = [LOOKUP, {"topic": "orders", "message_id": "M"}]
    for lookup in ({"topic": "users", "key": "K"}, {"message_id": "M"}):
        refused = ask_batch(caller, [LOOKUP, lookup], key=of_orders)
        assert_problem(refused, 403, "permission-denied")
    assert_problem(ask_batch(caller, allowed, key=read), 403, "permission-denied")
    assert ask_batch(caller, allowed, key=of_orders).status_code == 200


def test_batch_of_another_form_or_without_messages_takes_no_bounds_of_theirs(make):
    caller = make()
    refused = ask_batch(caller, [LOOKUP], "message_timeout=1")
    assert_problem(refused, 400, "invalid-request", "message_timeout")
    table = write_stream(pa.table({"topic": ["orders"], "key": ["ORDER-1"]}))
    path = "/v1/entries:batchGet?message=true"
    refused = caller.post(path, content=bytes(table), headers={"content-type": ARROW_STREAM})
    assert_problem(refused, 400, "invalid-request", "message")


def test_masked_topic_of_the_log_is_read_by_admins_only(tmp_path, keys):
    (tmp_path / "resolvers.toml").write_text('[topics.orders]\nmask = ["$.card"]\n')
    read, message, admin = map(keys.create, (Scope.READ, Scope.MESSAGE, Scope.ADMIN))
    small = {"journal_bytes": 16 << 20, "background": False, "node": "n"}
    with (
        MessageLog.open(tmp_path, **small) as log,
        MessageFetcher(tmp_path, PATIENT, log=log) as found,
    ):
        log.append(
            topic="orders", queue_id=0, body=b'{"card": "4111"}', keys=["ORDER-1"], message_id="M"
        )
        log.append(topic="free", queue_id=0, body=b"seen", keys=["F"])
        caller = Caller(None, keys, log=log, messages=found)
        for asked in (
            {"topic": "orders", "queue_id": "0"},
            {"topic": "orders", "key": "ORDER-1"},
            {"message_id": "M"},
        ):
            response = caller.get("/v1/messages", params=asked, key=message)
            assert_problem(response, 403, "permission-denied")
            assert caller.get("/v1/messages", params=asked, key=admin).status_code == 200
        free = {"topic": "free", "key": "F"}
        assert caller.get("/v1/messages", params=free, key=message).status_code == 200
        refused = caller.get("/v1/messages", params=free, key=read)
        assert_problem(refused, 403, "permission-denied")  # what is in messages is not for `read`
        (entry,) = caller.get("/v1/entries", params=ASKED, key=admin).json()["entries"]
        assert entry["message"]["masked"] == ["$.card"]
        assert "4111" not in str(entry)
        log.expire(before=1 << 50)
