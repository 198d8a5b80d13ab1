"""Properties of AMQP messages as keys, by the rule for every value."""

import uuid

import pytest
from rstream import AMQPMessage

from tierdex.following.sources.rabbitmq_message import part


@pytest.mark.parametrize(
    ("value", "key"),
    [
        (1234567890123.0, b"1234567890123"), (1e-7, b"0.0000001"), (8841, b"8841"), (True, b"true"),
        (uuid.UUID(int=7), b"00000000-0000-0000-0000-000000000007"), ("x", b"x"), (b"y", b"y"),
    ],
    ids=repr,
)  # fmt: skip
def test_property_of_any_type_is_its_key(value, key):
    message = AMQPMessage(body=b"", application_properties={"k": value})
    assert part(bytes(message)).headers == [("k", key)]
