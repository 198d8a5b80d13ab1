"""Messages in the wire format of schema registries: a zero byte, the schema's ID, the payload.

::

    | 0 | schema ID, 4 bytes, big-endian | Avro, or JSON                                  |
    | 0 | schema ID                      | path to the message type: count, numbers | Protobuf |

The decoders (fastavro, protobuf) are imported when the first such message is read: they are an extra.

Depends on errors, json_text, registry, resolver, avro_body and protobuf_body.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from tierdex.errors import TierdexError
from tierdex.resolving.json_text import parse_body
from tierdex.resolving.resolver import UndecodedError

if TYPE_CHECKING:
    from collections.abc import Callable

    from tierdex.resolving.registry import Registry, Schema

    _Decode = Callable[[bytes], tuple[Any, list[str]]]

_HEAD = 5


class BySchema(NamedTuple):
    """What came of a body: `tree` where `has_tree`, with `notes` about fields that are shown otherwise.

    `payload` is what stands behind the head.
    """

    step: str | None = None
    tree: Any = None
    has_tree: bool = False
    payload: bytes | None = None
    problem: str | None = None
    notes: tuple[str, ...] = ()


class Schemas:
    """Decodes bodies by the schemas of one registry. Safe to share between threads."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        self._decoders: dict[int, _Decode] = {}

    def read(self, body: bytes) -> BySchema:
        """Return the body decoded; one that is in no wire format as nothing, a bad one as a problem."""
        if len(body) < _HEAD or body[0] != 0:
            return BySchema()
        number = int.from_bytes(body[1:_HEAD], "big")
        payload = body[_HEAD:]
        try:
            schema = self._registry.schema(number)
        except TierdexError as error:
            return BySchema(problem=f"schema {number} is not known: {error}")
        step = f"{schema.kind.lower()} schema {number}"
        try:
            decode = self._decoders.get(number)
            if decode is None:
                decode = self._decoders[number] = _decoder(schema)
        except ImportError as error:
            return BySchema(problem=f"{step}: pip install 'tierdex[schemas]' ({error.name})")
        except Exception as error:  # noqa: BLE001 - a schema of any kind of wrongness
            return BySchema(problem=f"{step} cannot be used: {type(error).__name__}")
        try:
            tree, notes = decode(payload)
            return BySchema(step, tree, has_tree=True, notes=tuple(notes))
        except UndecodedError as error:
            return BySchema(problem=f"not what {step} says: {error}")
        except Exception as error:  # noqa: BLE001 - bytes of any kind of wrongness
            return BySchema(problem=f"not what {step} says: {type(error).__name__}")


def _decoder(schema: Schema) -> _Decode:
    """Return what makes a tree of a payload, and notes about it."""
    if schema.kind == "AVRO":
        from tierdex.resolving.avro_body import avro_reader

        return avro_reader(schema)
    if schema.kind == "PROTOBUF":
        from tierdex.resolving.protobuf_body import protobuf_reader

        return protobuf_reader(schema)
    return lambda payload: (parse_body(payload), [])
