"""The verbs that clients have in common with `Index`, and with `MessageLog`, take the same arguments."""

from __future__ import annotations

import inspect

import pytest

import tierdex
from tests.test_package import public_verbs
from tierdex.client import calls

OF_CLIENT = public_verbs(tierdex.Client) - {"close"}
OF_INDEX = OF_CLIENT & public_verbs(tierdex.Index)
OF_LOG = OF_CLIENT & public_verbs(tierdex.MessageLog) - OF_INDEX
COMMON = [(tierdex.Index, verb) for verb in sorted(OF_INDEX)]
COMMON += [(tierdex.MessageLog, verb) for verb in sorted(OF_LOG)]
# What parts them on purpose: (verb, argument) -> why.
DIFFERENCES = {
    ("query", "max_count"): "none: the service's own default",
    ("query", "message"): "a service knows where messages are; in a program: `MessageFetcher`",
    ("query", "max_message_bytes"): "the same",
    ("query", "message_timeout"): "the same",
    **{
        ("query_batch", name): "as in `query`"
        for name in ("message", "max_message_bytes", "message_timeout")
    },
    ("put_batch", "schema"): "a service takes messages only",
    ("put_batch", "location"): "a service takes messages only",
    ("put_batch", "queue_id"): "of a message: `location` of the index",
    ("put_batch", "offset"): "of a message: `location` of the index",
    ("put_batch", "size"): "of a message: `location` of the index",
    ("run_compaction", "yes"): "an operator at the folder confirms",
    ("offset_at", "visible"): "a service tells it at `disk`",
    ("queues", "first"): "a client goes through the pages itself",
    ("queues", "max_count"): "the same",
    **{
        ("read_arrow", name): "those of `read`, which the log passes on"
        for name in ("limits", "max_count", "max_bytes", "wait", "visible", "policy", "group")
    },
}


def arguments_of(owner, verb):
    parameters = dict(inspect.signature(getattr(owner, verb)).parameters)
    parameters.pop("self", None)
    return parameters


@pytest.mark.parametrize(("owner", "verb"), COMMON, ids=[verb for _, verb in COMMON])
def test_client_takes_the_arguments_of_what_is_embedded(owner, verb):
    index, client = arguments_of(owner, verb), arguments_of(tierdex.Client, verb)
    parted = {name for name in index.keys() | client.keys() if index.get(name) != client.get(name)}
    allowed = {name for known, name in DIFFERENCES if known == verb}
    assert parted <= allowed, "make them alike, or say above why not"


@pytest.mark.parametrize("verb", sorted(public_verbs(tierdex.Client)))
def test_both_clients_take_the_same_arguments(verb):
    assert arguments_of(tierdex.Client, verb) == arguments_of(tierdex.AsyncClient, verb)


@pytest.mark.parametrize("client", [tierdex.Client, tierdex.AsyncClient])
def test_verb_is_a_method_for_help_and_tools(client):
    assert client.query.__doc__ == calls.query.__doc__
    assert client.query.__name__ == "query"
    assert inspect.isfunction(client.query)
    assert inspect.iscoroutinefunction(client.query) is (client is tierdex.AsyncClient)
    told = str(inspect.signature(client("http://localhost").query))
    assert told.startswith("(topic: 'str | None' = None, *, key:")
    assert told.endswith("-> 'Answer'")


def test_every_difference_is_one():
    for verb, name in DIFFERENCES:
        embedded = tierdex.Index if verb in OF_INDEX else tierdex.MessageLog
        pair = [arguments_of(owner, verb).get(name) for owner in (embedded, tierdex.Client)]
        assert pair[0] != pair[1], (verb, name)
