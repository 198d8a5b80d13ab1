"""`resolvers.toml`: where the messages of each topic are, and which parts are masked.

::

    [topics.orders]
    source = "kafka://127.0.0.1:9092/orders"    # as `tierdex follow` takes it
    config = "kafka.conf"                       # name=value lines beside this file: the place for passwords
    keys = ["key", "$.order.id"]                # by what it was indexed
    mask = ["$.card.number"]

    [default]                                   # of every topic: `mask` is added to the topic's own
    registry = "http://127.0.0.1:8081"

Depends on errors, filesystem, following, compression, rule, whole_file and pydantic.
"""

from __future__ import annotations

import tomllib
from typing import TYPE_CHECKING, Any, Final

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from tierdex.errors import InvalidRequestError
from tierdex.following.selectors import Selector
from tierdex.following.sources.options import read_options
from tierdex.resolving.compression import Compression  # noqa: TC001 - read by pydantic
from tierdex.resolving.rule import Rule
from tierdex.whole_file import read_file

if TYPE_CHECKING:
    from pathlib import Path

    from tierdex.filesystem import FileSystem

FILE_NAME: Final = "resolvers.toml"


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


class Showing(_Strict):
    """What is done to a topic's messages before they are shown."""

    compression: Compression = Field(default="auto", description="how producers compress bodies")
    registry: str | None = Field(
        default=None, description="schema registry of Confluent's wire format"
    )
    registry_config: str | None = Field(
        default=None, description="file with `username` and `password`, or `token`, of the registry"
    )
    mask: list[str] = Field(
        default_factory=list, description="masked places: $.json.path, header:NAME, key"
    )


class TopicPlan(Showing):
    """Where a topic's messages are."""

    source: str | None = Field(
        default=None, description="address as of `tierdex follow`, or files:ROOT"
    )
    options: dict[str, str] = Field(default_factory=dict, description="of the source")
    config: str | None = Field(default=None, description="file of name=value lines: more options")
    keys: list[str] = Field(default_factory=list, description="by what messages were indexed")
    message_id: str | None = Field(default=None, description="the same for message IDs")

    @property
    def rule(self) -> Rule:
        return Rule.parse(self.keys, self.message_id)


class ResolverFile(_Strict):
    """The whole file, checked."""

    default: Showing = Showing()
    topics: dict[str, TopicPlan] = Field(default_factory=dict)

    def showing(self, topic: str) -> Showing:
        """Return what is done to a topic's messages: its own, then the default's; masks of both."""
        own = self.topics.get(topic)
        if own is None:
            return self.default
        return Showing(
            compression=own.compression if own.compression != "auto" else self.default.compression,
            registry=own.registry or self.default.registry,
            registry_config=own.registry_config if own.registry else self.default.registry_config,
            mask=[
                *self.default.mask,
                *(each for each in own.mask if each not in self.default.mask),
            ],
        )


def read_resolver_file(filesystem: FileSystem, path: Path) -> ResolverFile:
    """Return the file; an empty one where there is none. Raises InvalidRequestError, OSError.

    What is wrong is named by its place in the file; no value of it is told.
    """
    if not filesystem.exists(path):
        return ResolverFile()
    text = read_file(filesystem, path)
    try:
        found = ResolverFile.model_validate(tomllib.loads(text.decode()))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InvalidRequestError(f"is not TOML: {error}", field=str(path)) from None
    except ValidationError as error:
        wrong = error.errors(include_input=False, include_url=False)[0]
        place = ".".join(map(str, wrong["loc"]))
        raise InvalidRequestError(f"{place}: {wrong['msg']}", field=str(path)) from None
    for topic, plan in found.topics.items():
        _check(f"{path}: topics.{topic}", plan, plan.rule)
    _check(f"{path}: default", found.default, None)
    return found


def options_of(filesystem: FileSystem, folder: Path, plan: TopicPlan) -> dict[str, str]:
    """Return the options of a topic's source, with those of its file. Raises OSError."""
    read = {} if plan.config is None else read_options(filesystem, folder / plan.config)
    return {**read, **plan.options}


def _check(place: str, showing: Showing, _rule: Any) -> None:
    for each in showing.mask:
        parts = Selector.parse(each, field=f"{place}.mask").parts
        if len(parts) != 1 or isinstance(parts[0], str):
            raise InvalidRequestError(
                f"{each!r}: must be one place, not a template", field=f"{place}.mask"
            )
