"""Opens a source by its address.

Depends on errors, seams, source and sources.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Final

from tierdex.errors import InvalidRequestError
from tierdex.following.sources.options import Address
from tierdex.seams import Seams

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tierdex.following.source import Source

# By the kind of address: module, class, what `pip install 'tierdex[...]'` brings its library.
KINDS: Final = {
    "folder": ("folder", "FolderSource", None),
    "kafka": ("kafka", "KafkaSource", "kafka"),
    "nats": ("jetstream", "JetStreamSource", "nats"),
    "rabbitmq": ("rabbitmq_stream", "RabbitStreamSource", "rabbitmq"),
    "rabbitmqs": ("rabbitmq_stream", "RabbitStreamSource", "rabbitmq"),
    "redis": ("redis_stream", "RedisSource", "redis"),
    "rediss": ("redis_stream", "RedisSource", "redis"),
    "rocketmq": ("rocketmq_topic", "RocketSource", None),
    "rocketmqs": ("rocketmq_topic", "RocketSource", None),
}


def open_source(
    text: str, options: Mapping[str, str] | None = None, seams: Seams | None = None
) -> Source:
    """Return the source at an address (see `Address`). It connects when it is first asked.

    Raises InvalidRequestError for an address or option that cannot be, or a library that is not here.
    """
    address = Address.parse(text, options)
    if address.kind not in KINDS:
        raise InvalidRequestError(f"{address.kind!r} is none of {', '.join(KINDS)}", field="source")
    module_name, class_name, extra = KINDS[address.kind]
    try:
        module = import_module(f"tierdex.following.sources.{module_name}")
    except ImportError as error:
        raise InvalidRequestError(
            f"pip install 'tierdex[{extra}]' ({error})", field="source"
        ) from error
    seams = seams or Seams.of()
    source: Source = getattr(module, class_name)(address, seams.filesystem, seams.clock)
    return source
