"""Avro, Protobuf and JSON in the wire format of registries, by a stand-in that speaks the same HTTP."""

from __future__ import annotations

import datetime
import io
import json
from base64 import b64encode

import fastavro
import pytest
from google.protobuf import descriptor_pb2, timestamp_pb2

from tests.servers.schema_registry import running_registry
from tierdex.clock import ManualClock
from tierdex.errors import InvalidRequestError
from tierdex.following.records import Record
from tierdex.resolving.decoding import Decoder
from tierdex.resolving.registry import Registry
from tierdex.resolving.resolver_file import Showing
from tierdex.resolving.schemas import Schemas

BIG = (1 << 63) - 1
ITEM = {"type": "record", "name": "Item", "fields": [{"name": "sku", "type": "string"}]}
ORDER = {
    "type": "record", "name": "Order",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "raw", "type": "bytes"},
        {"name": "items", "type": {"type": "array", "items": "Item"}},
    ],
}  # fmt: skip
VALUE = {
    "id": BIG, "at": datetime.datetime(2024, 1, 1, tzinfo=datetime.UTC), "raw": b"\xff",
    "items": [{"sku": "TEA"}],
}  # fmt: skip


@pytest.fixture(scope="module")
def running():
    with running_registry() as found:
        yield found


@pytest.fixture
def registry(running):
    registry, _ = running
    registry.schemas, registry.subjects, registry.requests = {}, {}, []
    registry.login, registry.status = None, 200
    return registry


@pytest.fixture
def clock():
    return ManualClock()


@pytest.fixture
def show(running, registry, clock):
    """Show a body by the registry."""
    opened = []

    def show(body, options=None, **showing):
        if not opened:
            opened.append(Registry(running[1], options or {}, clock))
        decoder = Decoder(Showing(**showing), Schemas(opened[0]))
        return decoder.shown(Record(0, 0, 5, None, body), decoder.read(body, 1 << 20), "here")

    yield show
    for each in opened:
        each.close()


def wire(number, payload):
    return b"\x00" + number.to_bytes(4, "big") + payload


def avro(value=VALUE):
    schema = json.loads(json.dumps(ORDER))
    schema["fields"][3]["type"]["items"] = ITEM
    stream = io.BytesIO()
    fastavro.schemaless_writer(stream, fastavro.parse_schema(schema), value)
    return stream.getvalue()


def add_avro(registry):
    references = [{"name": "Item", "subject": "item-value", "version": 3}]
    registry.schemas[7] = {"schema": json.dumps(ORDER), "references": references}
    registry.subjects[("item-value", 3)] = {"schema": json.dumps(ITEM)}


def test_avro_is_decoded_with_the_schemas_it_refers_to(registry, show):
    add_avro(registry)
    message = show(wire(7, avro()))
    assert json.loads(message.text) == {
        "id": BIG, "at": "2024-01-01 00:00:00+00:00", "raw": "/w==", "items": [{"sku": "TEA"}]
    }  # fmt: skip
    assert message.decoded == ("avro schema 7",)
    assert message.body == wire(7, avro())
    show(wire(7, avro()))
    assert registry.requests == ["/schemas/ids/7", "/subjects/item-value/versions/3"]


def test_avro_is_masked_and_its_bytes_are_not_told(registry, show):
    add_avro(registry)
    message = show(wire(7, avro()), mask=["$.items[*].sku"])
    assert b"TEA" not in message.body
    assert "TEA" not in message.text
    assert message.masked == ("$.items[*].sku",)


@pytest.mark.parametrize(
    "payload", [b"", b"\x01", avro()[:-3], avro() + b"x"], ids=["none", "cut", "cut more", "more"]
)
def test_bad_avro_is_shown_as_its_bytes_and_withheld_where_it_would_be_masked(
    registry, show, payload
):
    add_avro(registry)
    message = show(wire(7, payload))
    assert message.outcome == "shown"
    assert message.body == wire(7, payload)
    assert "avro schema 7" in message.reason
    assert show(wire(7, payload), mask=["$.id"]).outcome == "withheld"


def descriptor():
    """An order with an inner message: the second type of its file, and the first type within that."""
    file = descriptor_pb2.FileDescriptorProto(name="order.proto", package="shop", syntax="proto3")
    file.dependency.append("google/protobuf/timestamp.proto")
    file.message_type.add(name="Other")
    order = file.message_type.add(name="Order")
    line = order.nested_type.add(name="Line")
    field = descriptor_pb2.FieldDescriptorProto
    line.field.add(name="sku", number=1, type=field.TYPE_STRING, label=field.LABEL_OPTIONAL)
    order.field.add(name="order_id", number=1, type=field.TYPE_INT64, label=field.LABEL_OPTIONAL)
    order.field.add(
        name="at", number=2, type=field.TYPE_MESSAGE, label=field.LABEL_OPTIONAL,
        type_name=".google.protobuf.Timestamp",
    )  # fmt: skip
    return b64encode(file.SerializeToString()).decode()


def varint(number):
    out = b""
    while number > 0x7F:
        out += bytes([number & 0x7F | 0x80])
        number >>= 7
    return out + bytes([number])


def test_protobuf_is_decoded_by_the_path_to_its_type(registry, show):
    registry.schemas[9] = {"schemaType": "PROTOBUF", "serialized": descriptor()}
    stamp = timestamp_pb2.Timestamp(seconds=1).SerializeToString()
    order = b"\x08" + varint(BIG) + b"\x12" + bytes([len(stamp)]) + stamp
    message = show(wire(9, b"\x02\x02" + order))  # one number: 1
    assert json.loads(message.text) == {"order_id": str(BIG), "at": "1970-01-01T00:00:01Z"}
    line = show(wire(9, b"\x04\x02\x00" + b"\x0a\x03TEA"))  # two: 1, then 0 within it
    assert json.loads(line.text) == {"sku": "TEA"}
    assert json.loads(show(wire(9, b"\x00")).text) == {}
    for bad in (b"", b"\x02\x10", b"\x02\x02\xff", b"\xff\xff\xff\xff\xff\xff"):
        assert "not what protobuf schema 9 says" in show(wire(9, bad)).reason


def test_json_in_the_wire_format_is_read(registry, show):
    registry.schemas[1] = {"schemaType": "JSON", "schema": "{}"}
    message = show(wire(1, b'{"id": 1.50}'))
    assert (message.form, message.text) == ("json", '{\n  "id": 1.50\n}')


def test_registry_that_is_down_is_said_and_asked_again_after_a_pause(registry, show, clock):
    add_avro(registry)
    registry.status = 500
    for _ in range(3):
        message = show(wire(7, avro()))
        assert message.outcome == "shown"
        assert "answers 500" in message.reason
    assert len(registry.requests) == 1
    registry.status = 200
    clock.advance(6)
    assert show(wire(7, avro())).form == "json"


def test_login_is_sent_and_told_to_nobody(registry, show):
    add_avro(registry)
    registry.login = ("reader", "hunter2")
    message = show(wire(7, avro()), {"username": "reader", "password": "hunter2"})
    assert message.form == "json"
    registry.login = ("reader", "other")
    refused = show(wire(8, avro()))
    assert "refuses us (401)" in refused.reason
    assert "hunter2" not in repr(refused)


@pytest.mark.parametrize(
    "url",
    ["registry:8081", "http://user:hunter2@h/", "file:///etc/passwd", "http://", "http://h:x"],
)
def test_address_that_cannot_be_is_refused_without_telling_it(url, clock):
    with pytest.raises(InvalidRequestError) as raised:
        Registry(url, {}, clock)
    assert "hunter2" not in str(raised.value)
