"""A page of another site makes the user's browser POST to a service that asks for no key."""

from __future__ import annotations

import pytest

from tests.app.conftest import ENTRY, assert_problem
from tierdex.app.http.same_origin import is_own_host
from tierdex.app.rights import Scope

JSON = {"content-type": "application/json"}
POSTS = (
    "/v1/entries", "/v1/entries:batchGet", "/v1/admin/roll", "/v1/admin/refresh",
    "/v1/admin/compaction:run", "/v1/admin/expire", "/v1/admin/files/none:verify",
)  # fmt: skip
FORM_TYPES = ("", "text/plain", "application/x-www-form-urlencoded", "multipart/form-data; b=x")


@pytest.mark.parametrize("path", POSTS)
@pytest.mark.parametrize("kind", FORM_TYPES)
def test_what_a_form_can_send_is_refused_by_every_post(make_caller, path, kind):
    headers = {"content-type": kind} if kind else {}
    for body in (b"", b"{}"):
        response = make_caller().post(path, content=body, headers=headers)
        assert_problem(response, 415, "unsupported-media-type")


@pytest.mark.parametrize("path", POSTS)
@pytest.mark.parametrize(
    "headers",
    [
        {"origin": "https://evil.example"},
        {"origin": "null"},
        {"origin": "http://localhost:3000"},  # another program on this machine
        {"origin": "https://evil.example", "sec-fetch-site": "same-origin"},
        {"sec-fetch-site": "cross-site"},
    ],
)
def test_foreign_page_is_refused_whatever_it_sends(make_caller, path, headers):
    caller = make_caller()
    response = caller.post(path, content=b"{}", headers={**JSON, **headers})
    document = assert_problem(response, 403, "permission-denied")
    assert "TIERDEX_ALLOWED_ORIGINS" in document["detail"]


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"origin": "http://localhost"},
        {"origin": "http://localhost", "sec-fetch-site": "same-origin"},
        {"origin": "https://ui.example", "sec-fetch-site": "cross-site"},
        {"sec-fetch-site": "none"},
    ],
)
def test_own_page_allowed_origins_and_programs_are_served(make_caller, headers):
    caller = make_caller(allowed_origins=["https://ui.example"])
    assert caller.post("/v1/admin/roll", headers={**JSON, **headers}).status_code == 200
    assert caller.post("/v1/entries", json={"entries": [ENTRY]}, headers=headers).status_code == 200


def test_links_from_other_sites_still_open_the_console(make_caller):
    assert make_caller().get("/", headers={"sec-fetch-site": "cross-site"}).status_code == 200


def test_key_is_enough_since_no_page_can_add_one(make_caller, keys):
    key = keys.create(Scope.ADMIN)
    caller = make_caller(keys=keys)
    headers = {**JSON, "origin": "https://ui.example", "sec-fetch-site": "cross-site"}
    assert caller.post("/v1/admin/roll", headers=headers, key=key).status_code == 200
    assert_problem(caller.post("/v1/admin/roll", headers=headers), 403, "permission-denied")


@pytest.mark.parametrize(
    ("host", "is_own"),
    [
        ("localhost", True), ("LOCALHOST:8080", True), ("127.0.0.1:8080", True), ("[::1]:8080", True),
        ("[::1]", True), ("127.9.9.9", True), ("ui.example:443", True),
        ("localhost:1.evil.com", False), ("localhost:80:80", False), ("127.0.0.1.evil.com", False),
        ("localhost:", False), ("localhost@evil.com", False), ("[::1].evil.com", False), ("", False),
        ("[localhost]:80", False), ("localhost:123456", False), ("evil.com", False),
    ],
)  # fmt: skip
def test_host_is_looked_at_whole(host, is_own):
    assert is_own_host(host, {"ui.example"}) == is_own
