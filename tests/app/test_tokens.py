"""Tokens of an issuer: which are believed, what they may, and what an outage of the issuer does."""

from __future__ import annotations

import base64
import hashlib
import hmac
import re
import threading
from pathlib import Path

import orjson
import pytest
from joserfc import jwt
from joserfc.jwk import ECKey, KeySet, OctKey, RSAKey

from tests.app.conftest import Caller, assert_problem
from tests.app.small_index import SmallIndex
from tests.patience import PATIENCE_S
from tierdex.app.http.server_settings import ServerSettings, load_server_settings
from tierdex.app.issuer_keys import IssuerKeys, reader_of
from tierdex.app.logs import JsonLogger
from tierdex.app.rights import Scope
from tierdex.app.tokens import Tokens
from tierdex.clock import ManualClock
from tierdex.errors import AuthenticationError, InvalidRequestError, UnavailableError

ISSUER, AUDIENCE = "https://issuer.example/", "tierdex"
EC = ECKey.generate_key("P-256", {"kid": "ec", "use": "sig"})
RSA = RSAKey.generate_key(2048, {"kid": "rsa"})
STRANGER = ECKey.generate_key("P-256", {"kid": "ec"})
SHARED = OctKey.import_key("a secret that the issuer shares", {"kid": "oct"})
JWKS = orjson.dumps({"keys": [key.as_dict(private=key is SHARED) for key in (EC, RSA, SHARED)]})
SETTINGS = {
    "jwt_jwks": "https://issuer.example/keys",
    "jwt_issuer": ISSUER,
    "jwt_audience": AUDIENCE,
}


class NoLog:
    def write(self, data):
        pass

    def flush(self):
        pass


class Issuer:
    """The issuer's keys, with a count of their reads; `document` None: it is down."""

    def __init__(self, document=JWKS):
        self.document = document
        self.reads = 0

    def __call__(self):
        self.reads += 1
        if self.document is None:
            raise OSError("no route to host")
        return self.document


@pytest.fixture
def issuer():
    return Issuer()


@pytest.fixture
def tokens(issuer, clock):
    settings = ServerSettings(**SETTINGS)
    return Tokens(settings, clock, JsonLogger(NoLog(), clock), issuer)


def claims(clock, **changed):
    now = clock.now_ms() // 1000
    whole = {
        "iss": ISSUER, "aud": AUDIENCE, "sub": "ann", "exp": now + 600, "iat": now,
        "scope": "openid tierdex:read tierdex:write:orders.*", **changed,
    }  # fmt: skip
    return {name: value for name, value in whole.items() if value is not None}


def token(clock, key=EC, alg="ES256", header=None, **changed):
    head = {"alg": alg, "kid": key.kid, **(header or {})}
    return jwt.encode(
        {n: v for n, v in head.items() if v is not None}, claims(clock, **changed), key, [alg]
    )


def test_settings_of_the_page_give_the_rights_that_it_says(clock, tmp_path, monkeypatch):
    """The issuer's keys come from a file here; all else is as docs/access.md shows it."""
    page = Path(__file__).parents[2] / "docs" / "access.md"
    (block,) = re.findall(r"```ini\n(.*?)```", page.read_text(), re.DOTALL)
    shown = dict(line.split("=", 1) for line in block.splitlines())
    assert all(name.startswith("TIERDEX_JWT_") for name in shown)
    (tmp_path / "jwks.json").write_bytes(JWKS)
    shown["TIERDEX_JWT_JWKS"] = f"file://{tmp_path / 'jwks.json'}"
    for name, value in shown.items():
        monkeypatch.setenv(name, value)
    settings = load_server_settings()
    believed = Tokens(settings, clock, JsonLogger(NoLog(), clock), reader_of(settings.jwt_jwks))
    made = {"iss": shown["TIERDEX_JWT_ISSUER"], "aud": shown["TIERDEX_JWT_AUDIENCE"], "scope": None}
    for roles, rights in ((["support"], "message:orders.* read:pay"), (["ops", "x"], "admin")):
        caller = believed.caller_of(token(clock, **made, realm_access={"roles": roles}))
        assert str(caller.rights) == rights
    with pytest.raises(AuthenticationError):
        believed.caller_of(
            token(clock, **{**made, "aud": "another"}, realm_access={"roles": ["ops"]})
        )


def part(document):
    return base64.urlsafe_b64encode(orjson.dumps(document)).rstrip(b"=").decode()


def by_hand(clock, header, sign, **changed):
    signed = f"{part(header)}.{part(claims(clock, **changed))}"
    signature = base64.urlsafe_b64encode(sign(signed.encode())).rstrip(b"=").decode()
    return f"{signed}.{signature}"


@pytest.mark.parametrize(("key", "alg"), [(EC, "ES256"), (RSA, "RS256")], ids=["ec", "rsa"])
def test_token_of_the_issuer_names_its_subject_and_rights(tokens, clock, key, alg):
    caller = tokens.caller_of(token(clock, key, alg))
    assert str(caller) == "token:ann"
    assert str(caller.rights) == "read write:orders.*"
    assert tokens.caller_of(token(clock, key, alg, aud=["other", AUDIENCE])).name == "ann"


def wrong_tokens(clock):
    now = clock.now_ms() // 1000
    good = token(clock)
    head, body, signature = good.split(".")
    forged = part(claims(clock, sub="root", scope="tierdex:admin"))
    none = part({"alg": "none"})

    def with_public_key(data):  # key confusion: the public key taken for a shared secret
        return hmac.new(RSA.as_pem(private=False), data, hashlib.sha256).digest()

    def with_shared_key(data):
        return hmac.new(b"a secret that the issuer shares", data, hashlib.sha256).digest()

    return {
        "nothing": "", "one part": "x", "dots": "..", "not base64": "a.b.c", "cut": good[:-4],
        "more": f"{good}.x", "blank": f"{good} x", "not json": f"{head}.{part('x')}.{signature}",
        "no ascii": "é.é.é", "huge": "a" * 20_000, "deep": f"{part({'alg': 'ES256'})}.{'W' * 9000}.x",
        "body of another": f"{head}.{forged}.{signature}",
        "none": f"{none}.{forged}.", "None": f"{part({'alg': 'None'})}.{forged}.",
        "no algorithm": f"{part({'kid': 'ec'})}.{forged}.{signature}",
        "public key as secret": by_hand(clock, {"alg": "HS256", "kid": "rsa"}, with_public_key),
        "shared key of the document": by_hand(clock, {"alg": "HS256", "kid": "oct"}, with_shared_key),
        "empty signature": f"{head}.{body}.",
        "zero signature": by_hand(clock, {"alg": "ES256", "kid": "ec"}, lambda _: bytes(64)),
        "another's key of this name": token(clock, STRANGER),
        "another's key in its head": token(
            clock, STRANGER, header={"kid": None, "jwk": STRANGER.as_dict(private=False)}),
        "another's key at an address": token(
            clock, STRANGER, header={"jku": "https://evil.example/keys"}),
        "unknown key": token(clock, STRANGER, header={"kid": "new"}),
        "algorithm that is not set": token(clock, RSA, "RS512"),
        "key of another kind": by_hand(clock, {"alg": "RS256", "kid": "ec"}, lambda _: bytes(256)),
        "critical": by_hand(
            clock, {"alg": "ES256", "kid": "ec", "crit": ["x"], "x": 1}, lambda _: bytes(64)),
        "expired": token(clock, exp=now - 60), "no end": token(clock, exp=None),
        "end in words": token(clock, exp="tomorrow"), "not yet": token(clock, nbf=now + 60),
        "for another": token(clock, aud="other"), "for nobody": token(clock, aud=None),
        "for a part of us": token(clock, aud=["tier", "dex"]), "for none": token(clock, aud=[]),
        "of another": token(clock, iss="https://issuer.example"), "of nobody": token(clock, iss=None),
        "of several": token(clock, iss=[ISSUER]), "no subject": token(clock, sub=None),
        "subject 5": token(clock, sub=5), "subject blank": token(clock, sub=""),
    }  # fmt: skip


@pytest.mark.parametrize("name", wrong_tokens(ManualClock()))
def test_wrong_token_is_refused(tokens, clock, name):
    with pytest.raises(AuthenticationError, match="refused"):
        tokens.caller_of(wrong_tokens(clock)[name])


@pytest.mark.parametrize(
    ("claim", "given", "rights"),
    [
        ("scope", {"scope": "openid email"}, "none"),
        ("scope", {"scope": None}, "none"),
        ("scope", {"scope": {"tierdex:admin": True}}, "none"),
        ("scope", {"scope": ["tierdex:read:a b", 5, "tierdex:root", "tierdex:none"]}, "read:a b"),
        ("scope", {"scope": "admin read support"}, "message:orders.* read:pay"),
        ("groups", {"groups": ["support"], "scope": "tierdex:admin"}, "message:orders.* read:pay"),
        ("realm_access.roles", {"realm_access": {"roles": ["tierdex:read"]}}, "read"),
        ("realm_access.roles", {"realm_access": "tierdex:read"}, "none"),
        ("https://x.example/r", {"https://x.example/r": ["tierdex:write"]}, "write"),
    ],
)
def test_claim_gives_what_the_settings_say_and_nothing_else(issuer, clock, claim, given, rights):
    settings = ServerSettings(
        **SETTINGS, jwt_claim=claim, jwt_grants={"support": ["message:orders.*", "read:pay"]}
    )
    tokens = Tokens(settings, clock, JsonLogger(NoLog(), clock), issuer)
    assert str(tokens.caller_of(token(clock, **given)).rights) == rights


def test_keys_are_read_once_and_again_when_they_are_old(tokens, issuer, clock):
    for _ in range(20):
        tokens.caller_of(token(clock))
    assert issuer.reads == 1
    clock.advance(301)
    tokens.caller_of(token(clock))
    assert issuer.reads == 2


def test_made_up_key_names_make_few_reads(tokens, issuer, clock):
    for number in range(50):
        with pytest.raises(AuthenticationError):
            tokens.caller_of(token(clock, STRANGER, header={"kid": str(number)}))
        clock.advance(0.5)
    assert issuer.reads <= 4


def test_new_key_of_the_issuer_is_found_and_one_that_it_took_back_is_refused(tokens, issuer, clock):
    old = token(clock)
    tokens.caller_of(old)
    issuer.document = orjson.dumps(KeySet([RSA]).as_dict())
    clock.advance(11)
    assert tokens.caller_of(token(clock, RSA, "RS256")).name == "ann"
    clock.advance(301)
    with pytest.raises(AuthenticationError):
        tokens.caller_of(old)


@pytest.mark.parametrize(
    "answer", [None, b"<html>", b'{"keys": []}', b"[]", b'{"keys": [{"kty": "RSA"}]}']
)
def test_outage_of_the_issuer_leaves_its_keys_for_a_day_and_says_503_then(
    tokens, issuer, clock, answer
):
    tokens.caller_of(token(clock))
    issuer.document = answer
    clock.advance(3600)
    assert tokens.caller_of(token(clock)).name == "ann"
    with pytest.raises(UnavailableError):  # it may be a new key: who knows?
        tokens.caller_of(token(clock, STRANGER, header={"kid": "new"}))
    reads = issuer.reads
    for _ in range(20):
        tokens.caller_of(token(clock))
    assert issuer.reads == reads
    clock.advance(86_400)
    with pytest.raises(UnavailableError):
        tokens.caller_of(token(clock))
    issuer.document = JWKS
    clock.advance(11)
    assert tokens.caller_of(token(clock)).name == "ann"


def test_issuer_that_is_down_from_the_start_is_a_503(tokens, issuer, clock):
    issuer.document = None
    with pytest.raises(UnavailableError):
        tokens.caller_of(token(clock))


def test_callers_with_a_known_key_do_not_wait_for_a_slow_issuer(clock):
    asked, go_on = threading.Event(), threading.Event()
    documents = iter([lambda: JWKS])

    def read():
        first = next(documents, None)
        if first is not None:
            return first()
        asked.set()
        assert go_on.wait(PATIENCE_S)
        return JWKS

    keys = IssuerKeys(read, clock, JsonLogger(NoLog(), clock))
    assert keys.keys_for("ec")
    clock.advance(301)
    slow = threading.Thread(target=keys.keys_for, args=("ec",))
    slow.start()
    assert asked.wait(PATIENCE_S)
    assert keys.keys_for("ec")
    with pytest.raises(UnavailableError):
        keys.keys_for("unknown")
    go_on.set()
    slow.join(PATIENCE_S)
    assert keys.keys_for("ec")


def test_service_takes_tokens_beside_keys_and_nobody_without_either(keys, tmp_path):
    path = tmp_path / "jwks.json"
    path.write_bytes(JWKS)
    caller = Caller(SmallIndex(), keys=keys, **{**SETTINGS, "jwt_jwks": path.as_uri()})
    clock = caller.app.state.service.clock
    mine = token(clock, scope="tierdex:read:orders")
    assert_problem(caller.get("/v1/topics"), 401, "authentication")  # there is no key yet
    assert caller.get("/v1/entries?topic=orders&key=k", key=mine).status_code == 200
    assert_problem(caller.get("/v1/entries?topic=pay&key=k", key=mine), 403, "permission-denied")
    assert caller.get("/v1/topics", key=keys.create(Scope.READ)).status_code == 200
    assert caller.get("/v1/topics", key=token(clock, scope="")).status_code == 403
    expired = assert_problem(
        caller.get("/v1/topics", key=token(clock, exp=5)), 401, "authentication"
    )
    assert "expired" in expired["detail"]
    line = caller.log_lines()[1]
    assert (line["status"], line["subject"]) == (200, "ann")
    assert mine not in caller.log.getvalue().decode()


def test_without_the_setting_a_token_is_a_wrong_key(keys, clock):
    caller = Caller(SmallIndex(), keys=keys)
    keys.create(Scope.READ)
    assert_problem(caller.get("/v1/topics", key=token(clock)), 401, "authentication")


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"jwt_issuer": None}, "jwt_issuer"), ({"jwt_audience": None}, "jwt_audience"),
        ({"jwt_audience": ""}, "jwt_audience"), ({"jwt_algorithms": []}, "jwt_algorithms"),
        ({"jwt_algorithms": ["none"]}, "jwt_algorithms"), ({"jwt_algorithms": ["HS256"]}, "jwt_algorithms"),
        ({"jwt_jwks": "http://issuer.example/keys"}, "jwt_jwks"), ({"jwt_jwks": "ftp://x/"}, "jwt_jwks"),
        ({"jwt_jwks": "http://127.0.0.1.evil.example/"}, "jwt_jwks"),
    ],
)  # fmt: skip
def test_settings_that_would_believe_too_much_are_refused(wrong, said):
    with pytest.raises(InvalidRequestError, match=said):
        load_server_settings(**{**SETTINGS, **wrong})


def test_wrong_grants_are_refused_at_the_start(issuer, clock):
    settings = ServerSettings(**SETTINGS, jwt_grants={"a": ["root"]})
    with pytest.raises(InvalidRequestError):
        Tokens(settings, clock, JsonLogger(NoLog(), clock), issuer)


def test_document_is_read_over_http_without_redirects_and_not_without_end(issuer_server):
    url, answers = issuer_server
    answers["/keys"] = (200, JWKS, {})
    assert reader_of(f"{url}/keys")() == JWKS
    answers["/keys"] = (302, b"", {"location": f"{url}/other"})
    answers["/other"] = (200, JWKS, {})
    with pytest.raises(ValueError, match="302"):
        reader_of(f"{url}/keys")()
    answers["/keys"] = (200, b" " * (2 << 20), {})
    with pytest.raises(ValueError, match="more than"):
        reader_of(f"{url}/keys")()


@pytest.fixture
def issuer_server():
    """A real server of documents: its URL, and what it answers by path: (status, body, headers)."""
    from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

    answers = {}

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            status, body, headers = answers[self.path]
            self.send_response(status)
            for name, value in {**headers, "content-length": str(len(body))}.items():
                self.send_header(name, value)
            self.end_headers()
            try:
                self.wfile.write(body)
            except OSError:
                self.close_connection = True  # the caller has read enough

        def log_message(self, *_):
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}", answers
        server.shutdown()
        thread.join()
