"""How settings are given, and what a refusal says."""

from __future__ import annotations

import pytest

from tierdex.errors import InvalidRequestError
from tierdex.settings import load_settings


@pytest.mark.parametrize(
    ("given", "peers"),
    [
        ("off", "off"), ("auto", "auto"), ("http://a:1", ["http://a:1"]),
        ("http://a:1, http://b:2", ["http://a:1", "http://b:2"]),
        ('["http://a:1","http://b:2"]', ["http://a:1", "http://b:2"]),
    ],
)  # fmt: skip
@pytest.mark.parametrize("is_variable", [False, True], ids=["keyword", "variable"])
def test_list_is_one_text_or_several_with_commas_or_json(monkeypatch, given, peers, is_variable):
    if is_variable:
        monkeypatch.setenv("TIERDEX_PEERS", given)
    assert load_settings(**({} if is_variable else {"peers": given})).peers == peers


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"peers": 7}, "peers: must be 'off' or 'auto' or must be a valid list"),
        ({"peers": "[http"}, "peers: must be texts with commas between them, or JSON"),
        ({"roll_after": "soon"}, "roll_after: must be a valid number"),
        ({"pears": "off"}, "pears: there is no such setting"),
    ],
)
def test_refusal_says_what_the_setting_takes(given, said):
    with pytest.raises(InvalidRequestError) as caught:
        load_settings(**given)
    assert str(caught.value).startswith(said)
