"""Avro, Protobuf and JSON in the wire format of registries, by a stand-in that speaks the same HTTP."""

from __future__ import annotations

import datetime
import io
import json
from base64 import b64encode

import fastavro
import pytest
from google.protobuf import (
    descriptor_pb2,
    descriptor_pool,
    json_format,
    message_factory,
    struct_pb2,
    timestamp_pb2,
    wrappers_pb2,
)

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


def number(value):
    """Return an Avro number: zigzag."""
    return varint((value << 1) ^ (value >> 63))


def record(**types):
    fields = [{"name": name, "type": kind} for name, kind in types.items()]
    return {"schema": json.dumps({"type": "record", "name": "R", "fields": fields})}


def logical(kind, name, **more):
    return {"type": kind, "logicalType": name, **more}


def sized(data):
    return number(len(data)) + data


@pytest.mark.parametrize(
    ("kind", "payload", "shown", "note"),
    [
        (logical("bytes", "decimal", precision=4, scale=2), sized((1234567).to_bytes(3)),
         "12345.67", None),
        (logical("bytes", "decimal", precision=10, scale=2), sized((-5).to_bytes(8, signed=True)),
         "-0.05", None),
        ({"type": "fixed", "name": "F", "size": 20, **logical("fixed", "decimal", precision=4)},
         (10**40).to_bytes(20), "1" + "0" * 40, None),
        (logical("bytes", "decimal", precision=4, scale="x"), sized(b"\x01"), "AQ==", "no decimal"),
        (logical("string", "uuid"), sized(b"7ED4BFFC-F189-40B0-9090-C58E1CBA14B8"),
         "7ED4BFFC-F189-40B0-9090-C58E1CBA14B8", None),
        (logical("string", "uuid"), sized(b"A-1"), "A-1", None),
        (logical("long", "timestamp-millis"), number(BIG), BIG, "$.x is beyond the years"),
        (logical("long", "timestamp-micros"), number(253402300800000000), 253402300800000000,
         "beyond"),
        (logical("long", "timestamp-nanos"), number(1), "1970-01-01 00:00:00.000000001+00:00", None),
        (logical("long", "local-timestamp-millis"), number(-62135596800001), -62135596800001,
         "beyond"),
        (logical("int", "date"), number(2932896), "9999-12-31", None),
        (logical("int", "date"), number(2932897), 2932897, "beyond"),
        (logical("int", "time-millis"), number(-1), "-1 ms", None),
        ("float", b"\xcd\xcc\xcc\x3d", 0.1, None),
        (["null", "float"], b"\x02\xcd\xcc\xcc\x3d", 0.1, None),
        ("string", sized(b"a\xff"), "a\\xff", "not UTF-8"),
    ],
    ids=lambda value: json.dumps(value) if isinstance(value, dict | list) else None,
)  # fmt: skip
def test_avro_is_shown_as_it_is_stored(registry, show, kind, payload, shown, note):
    registry.schemas[1] = record(id="string", x=kind)
    message = show(wire(1, sized(b"A-1") + payload))
    assert json.loads(message.text) == {"id": "A-1", "x": shown}
    assert message.decoded == ("avro schema 1",)
    assert note in message.reason if note else message.reason is None


def test_avro_numbers_that_json_lacks_are_named_as_parsers_know_them(registry, show):
    registry.schemas[1] = record(x="double", y="double")
    message = show(wire(1, b"\x00" * 6 + b"\xf8\x7f" + b"\x00" * 6 + b"\xf0\xff"))
    assert message.text == '{\n  "x": NaN,\n  "y": -Infinity\n}'


def test_reason_of_a_masked_message_tells_no_place_in_it(registry, show):
    registry.schemas[1] = record(id="string", x={"type": "map", "values": logical("int", "date")})
    body = wire(1, sized(b"A-1") + number(1) + sized(b"secret") + number(2932897) + number(0))
    assert "$.x.secret" in show(body).reason
    masked = show(body, mask=["$.x"])
    assert json.loads(masked.text) == {"id": "A-1", "x": "***"}
    assert "secret" not in repr(masked)
    assert "not shown as their schema says" in masked.reason


def proto(build, *dependencies):
    file = descriptor_pb2.FileDescriptorProto(name="x.proto", package="shop", syntax="proto3")
    file.dependency.extend(f"google/protobuf/{each}.proto" for each in dependencies)
    build(file)
    return {"schemaType": "PROTOBUF", "serialized": b64encode(file.SerializeToString()).decode()}


def add_field(kind, name, number, of_type=9, **more):
    kind.field.add(name=name, number=number, type=of_type, label=1, **more)


def two_types(file):
    order, payment = file.message_type.add(name="Order"), file.message_type.add(name="Payment")
    for kind, names in ((order, ("order_id", "state")), (payment, ("payment_id", "card"))):
        add_field(kind, names[0], 1)
        add_field(kind, names[1], 2)


def test_message_index_that_the_schema_lacks_decodes_by_no_type(registry, show):
    registry.schemas[1] = proto(two_types)
    body = b"\x0a\x03A-1\x12\x044111"
    for index in (-1, -2, 2, 1 << 31):
        bad = wire(1, number(1) + number(index) + body)
        message = show(bad)
        assert (message.decoded, f"index {index} is none" in message.reason) == ((), True)
        assert show(bad, mask=["$.card"]).outcome == "withheld"
    nested = wire(1, number(2) + number(0) + number(-1) + body)
    assert "index -1" in show(nested).reason
    assert show(wire(1, number(-1) + body)).decoded == ()
    good = wire(1, number(1) + number(1) + body)
    assert json.loads(show(good, mask=["$.card"]).text) == {"payment_id": "A-1", "card": "***"}


@pytest.mark.parametrize(
    ("type_name", "inner", "shown"),
    [
        ("Any", b"\x0a\x05a.b/C\x12\x02\x08\x01", {"type_url": "a.b/C", "value": "CAE="}),
        ("Timestamp", b"\x08" + varint(253402300800), {"seconds": "253402300800"}),
        ("Duration", b"\x08" + varint(1 << 62), {"seconds": str(1 << 62)}),
        ("Value", b"\x11" + b"\x00" * 6 + b"\xf8\x7f", {"number_value": "NaN"}),
    ],
    ids=lambda value: value if isinstance(value, str) else None,
)
def test_odd_field_of_protobuf_hides_no_other(registry, show, type_name, inner, shown):
    def build(file):
        order = file.message_type.add(name="Order")
        add_field(order, "order_id", 1)
        add_field(order, "x", 2, 11, type_name=f".google.protobuf.{type_name}")

    registry.schemas[1] = proto(build, "any", "timestamp", "duration", "struct")
    body = wire(1, b"\0\x0a\x03A-1\x12" + bytes([len(inner)]) + inner)
    message = show(body)
    assert json.loads(message.text) == {"order_id": "A-1", "x": shown}
    assert f"$.x: google.protobuf.{type_name}" in message.reason
    masked = show(body, mask=["$.x.card"])  # where the card would be, had the field its JSON form
    assert json.loads(masked.text) == {"order_id": "A-1", "x": "***"}


def test_fields_and_texts_that_protobuf_would_leave_out_are_told(registry, show):
    registry.schemas[1] = proto(two_types)
    message = show(wire(1, b"\0\x0a\x03A-1\x38\x01\x4a\x01x"))
    assert json.loads(message.text) == {"order_id": "A-1"}
    assert message.reason == "$ has fields that the schema does not know: 7, 9"
    message = show(wire(1, b"\0\x0a\x03A-1\x12\x02a\xff"))
    assert json.loads(message.text) == {"order_id": "A-1", "state": "a\\xff"}
    assert "$.state is not UTF-8" in message.reason


def test_protobuf_is_shown_as_its_own_library_shows_it(registry, show):
    registry.schemas[1] = {
        "schemaType": "PROTOBUF",
        "serialized": b64encode(unittest_file().SerializeToString()).decode(),
    }
    pool = descriptor_pool.DescriptorPool()
    for module in (timestamp_pb2, wrappers_pb2, struct_pb2):
        pool.AddSerializedFile(module.DESCRIPTOR.serialized_pb)
    pool.Add(unittest_file())
    kind = message_factory.GetMessageClass(pool.FindMessageTypeByName("shop.All"))
    for text in (
        {
            "f": 0.1,
            "d": 1e300,
            "i": "9007199254740993",
            "u": 7,
            "b": "/w==",
            "e": "PAID",
            "flag": True,
        },
        {"f": "NaN", "d": "-Infinity", "e": 9, "many": [0.1, 2.5], "inner": {"f": 1.0}},
        {"m": {"b": 1.5, "a": 2.0}, "k": {"true": {"f": 3.0}}, "at": "2024-03-01T10:00:00Z"},
        {"w": "5", "s": {"x": [1, None, "y"]}, "nothing": None},
    ):
        message = json_format.ParseDict(text, kind(), descriptor_pool=pool)
        expected = json_format.MessageToDict(
            message, preserving_proto_field_name=True, descriptor_pool=pool
        )
        shown = show(wire(1, b"\0" + message.SerializeToString()))
        assert json.loads(shown.text) == expected
        assert shown.reason is None


def unittest_file():
    """A type with a field of every kind."""
    file = descriptor_pb2.FileDescriptorProto(name="all.proto", package="shop", syntax="proto3")
    file.dependency.extend(
        f"google/protobuf/{n}.proto" for n in ("timestamp", "wrappers", "struct")
    )
    state = file.enum_type.add(name="State")
    for at, name in enumerate(("NEW", "PAID")):
        state.value.add(name=name, number=at)
    kind = file.message_type.add(name="All")
    for at, (name, of_type) in enumerate(
        [("f", 2), ("d", 1), ("i", 3), ("u", 13), ("b", 12), ("flag", 8)], 1
    ):
        add_field(kind, name, at, of_type)
    add_field(kind, "e", 7, 14, type_name=".shop.State")
    add_field(kind, "inner", 8, 11, type_name=".shop.All")
    kind.field.add(name="many", number=9, type=2, label=3)
    for at, (name, key, value) in enumerate((("m", 9, (2, "")), ("k", 8, (11, ".shop.All"))), 10):
        entry = kind.nested_type.add(name=f"{name.upper()}Entry")
        entry.options.map_entry = True
        add_field(entry, "key", 1, key)
        add_field(entry, "value", 2, value[0], **({"type_name": value[1]} if value[1] else {}))
        kind.field.add(
            name=name, number=at, type=11, label=3, type_name=f".shop.All.{entry.name}"
        )  # fmt: skip
    for at, (name, of_type) in enumerate(
        [("at", "Timestamp"), ("w", "Int64Value"), ("s", "Struct"), ("nothing", "Value")], 12
    ):
        add_field(kind, name, at, 11, type_name=f".google.protobuf.{of_type}")
    return file
