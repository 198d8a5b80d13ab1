"""Every setting: its meaning, unit, default, and when to change it.

A value comes from the first that has it: a keyword of `Index.open` (or a flag of the command line),
a variable `TIERDEX_<NAME>`, the default below. Settings are values; components (clock, store, file
system, ids) are arguments. The table in docs/reference.md is generated from this module.

Depends on errors, pydantic and pydantic_settings.
"""

from __future__ import annotations

import json
import os
import re
import socket
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeVar

from pydantic import BeforeValidator, Field, ValidationError
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict, SettingsError

from tierdex.errors import InvalidRequestError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pydantic_settings import PydanticBaseSettingsSource

M = TypeVar("M", bound=BaseSettings)
NODE_PATTERN = r"^[a-z0-9][a-z0-9._-]{0,62}$"
MIB = 1 << 20
GIB = 1 << 30


def node_of_host(name: str) -> str:
    """Return the node name of a host: lower case, with `-` for each illegal character.

    Illegal first characters and characters beyond 63 are cut off; `local` when nothing is left.
    """
    mapped = re.sub(r"[^a-z0-9._-]", "-", name.lower())
    return mapped.lstrip("._-")[:63] or "local"


def _own_node() -> str:
    return node_of_host(socket.gethostname())


IdForm = Annotated[str, Field(pattern=r"^(off|uuidv7|ulid|snowflake:(0|[1-9][0-9]{0,14}))$")]


def _texts(value: Any) -> Any:
    """Return a list of texts that is written as one: as JSON, or with commas between them."""
    if not isinstance(value, str):
        return value
    if value.lstrip().startswith("["):
        try:
            return json.loads(value)
        except ValueError as error:
            raise ValueError(f"must be texts with commas between them, or JSON: {error}") from error
    return [each.strip() for each in value.split(",") if each.strip()]


def _peers(value: Any) -> Any:
    return value if value in ("off", "auto") else _texts(value)


# NoDecode: a variable is not read as JSON before it is looked at here.
Texts = Annotated[list[str], NoDecode, BeforeValidator(_texts)]
Peers = Annotated[Literal["off", "auto"] | list[str], NoDecode, BeforeValidator(_peers)]


class EnvironmentSettings(BaseSettings):
    """Settings of which each comes from the call, else from its variable. Unknown names are refused."""

    model_config = SettingsConfigDict(
        env_prefix="TIERDEX_", extra="forbid", frozen=True, allow_inf_nan=False
    )

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Read no files of variables or secrets; look at a hundred variables only if there is any."""
        prefix = str(cls.model_config["env_prefix"])
        named = any(name.upper().startswith(prefix) for name in os.environ)
        return (init_settings, env_settings) if named else (init_settings,)


class Settings(EnvironmentSettings):
    """The settings of one index; durations are seconds, sizes bytes."""

    # -- behaviour: what is kept, for how long, who may write -------------------------------------
    node: str = Field(
        default_factory=_own_node,
        pattern=NODE_PATTERN,
        description="name of this writer and of its prefix in the store; one writer a node. A folder "
        "keeps the name with which it was first opened",
        json_schema_extra={"default_in_words": "the host's name"},
    )
    read_only: bool = Field(False, description="open for queries only; works beside a live writer")
    background: bool = Field(
        True,
        description="run compaction, upload and refresh in threads; off: `run_compaction()` does it",
    )
    read_nodes: Texts | None = Field(
        None,
        description="answer only from these nodes of the store; none: from all. Add the shared nodes into "
        "which jobs merge them",
    )
    roll_after: float = Field(
        3600.0, gt=0, description="seconds after which a file that holds anything is rolled"
    )
    remote_interval: float = Field(
        10.0, ge=0, description="seconds between two rolls that `remote` acknowledgements may cause"
    )
    takeover_after: float = Field(
        3600.0,
        ge=0,
        description="seconds without a heartbeat of its owner after which a node is taken over unasked; "
        "before, `takeover=True` or `--take-over` does it",
    )
    live_interval: float = Field(
        60.0,
        gt=0,
        description="seconds between two owner records in the store: the heartbeat, and how far this owner "
        "has published; while no entry is put, the answers of other nodes are that old",
    )
    advertise_url: str | None = Field(
        None,
        max_length=2048,
        description="URL of this node's HTTP service for other nodes (`http://10.0.0.7:8080`); none: no node "
        "asks it",
    )
    peers: Peers = Field(
        "off",
        description="live owners that are asked for entries they have not published: `auto` those with an "
        "`advertise_url` that `peer_allow` matches; a list of URLs; `off`: none",
    )
    peer_allow: Texts = Field(
        default_factory=list,
        description="hosts, or `host:port`, to which `peers=auto` may send questions and its key; `*` as in "
        "file names",
    )
    peer_timeout: float = Field(
        1.0, gt=0, description="seconds that a query waits for the answers of peers"
    )
    peer_ca: str | None = Field(
        None,
        description="CA file (PEM) for TLS to peers; none: the system's",
    )
    peer_key: str | None = Field(
        None, repr=False, description="API key of scope `read` for requests to peers"
    )
    fresh_within: float | None = Field(
        None,
        gt=0,
        description="age in seconds (see `as_of`) above which an answer is incomplete and names the nodes; "
        "none: any age",
    )
    id_time: IdForm = Field(
        "off",
        description="form of message IDs that contain their time, which narrows the times of a lookup: "
        "`uuidv7`, `ulid`, `snowflake:EPOCH_MS`, or `off`",
    )
    topic_id_time: dict[str, IdForm] = Field(
        default_factory=dict, description="`id_time` of single topics, for lookups that name them"
    )
    id_time_slack: float = Field(
        300.0,
        ge=0,
        description="greatest difference in seconds between the time in an ID and its entry's time",
    )
    remote_timeout: float = Field(
        120.0, gt=0, description="seconds that a `remote` acknowledgement waits for the store"
    )
    retention: float | None = Field(
        None, gt=0, description="seconds that a sealed file is kept; none: for ever"
    )
    offsets: Literal["bytes", "sequence"] = Field(
        "bytes",
        description="meaning of the offsets of messages: positions in `bytes` (a message ends at offset + "
        "size), or a `sequence` of numbers as in Kafka (it ends at offset + 1). Watermarks count "
        "by it: set it before the first put of a topic",
    )
    topic_retention: dict[str, Annotated[float, Field(gt=0)]] = Field(
        default_factory=dict, description="seconds for single topics, above or below `retention`"
    )
    grace_time: float = Field(
        3600.0, ge=0, description="seconds between the commit that drops an object and its deletion"
    )
    max_staleness: float = Field(
        60.0,
        gt=0,
        description="age in seconds of a node's manifest above which an answer is incomplete",
    )
    read_policy: Literal["DISABLE", "NOT_IN_DISK", "NOT_IN_MEM", "FORCE"] = Field(
        "NOT_IN_DISK",
        description="source of published messages: `NOT_IN_DISK` kept local copies, else the store; "
        "`NOT_IN_MEM` copies only if in memory; `FORCE` the store; `DISABLE` copies only",
    )
    keep_local_bytes: int = Field(
        0,
        ge=0,
        description="disk for local copies of published log files; the oldest go first",
    )
    keep_local_s: float | None = Field(
        None,
        gt=0,
        description="seconds since the seal of a file for which its local copy is kept; none: any time",
    )
    disk_budget_bytes: int = Field(
        64 * GIB,
        gt=0,
        description="bytes of local files that wait for the store; above, puts are refused",
    )
    disk_reserve_bytes: int = Field(
        64 * MIB, ge=0, description="free bytes of the disk below which puts are refused"
    )
    max_key_bytes: int = Field(4096, gt=0, le=65535, description="longest key or message ID, UTF-8")
    max_batch_entries: int = Field(
        4_000_000, gt=0, description="largest number of entries in one put_batch"
    )
    max_message_bytes: int = Field(
        4 * MIB, gt=0, le=48 * MIB, description="longest body of a message"
    )
    journal_bytes: int = Field(
        GIB, ge=64 * 1024, le=16 * GIB, description="length of a journal, after which it is rolled"
    )
    max_count_limit: int = Field(10_000, gt=0, description="largest `max_count` of a query")
    max_lookups: int = Field(
        100_000, gt=0, description="largest number of lookups in one query_batch"
    )
    query_max_requests: int = Field(
        1_000,
        gt=0,
        description="store requests that one query may send before it answers incomplete",
    )
    query_max_items: int = Field(
        20_000_000,
        gt=0,
        description="items that one query, or one batch, may walk before it answers incomplete",
    )
    query_max_entries: int = Field(
        1_000_000,
        gt=0,
        description="entries that one batch of lookups may answer before it answers incomplete",
    )

    # -- performance: sizes, counts, intervals ----------------------------------------------------
    slot_count: int = Field(5_000_000, ge=1, le=1 << 31, description="hash slots of a new file")
    item_capacity: int = Field(
        20_000_000, ge=1, le=1 << 31, description="items after which a file is rolled"
    )
    filter_bits: Literal[0, 8, 16] = Field(
        16, description="bits of a filter's fingerprint; 0: none"
    )
    put_buffer_entries: int = Field(4096, ge=1, description="single puts gathered into one batch")
    put_buffer_delay: float = Field(
        0.005, gt=0, description="seconds after which gathered puts are written at the latest"
    )
    append_timeout: float = Field(
        30.0,
        gt=0,
        le=86_400,
        description="seconds that an append waits for room in a log's full stage while the disk is busy",
    )
    compact_interval: float = Field(1.0, gt=0, description="seconds between two scans for due work")
    backoff_max: float = Field(60.0, gt=0, description="longest pause (seconds) after failures")
    merge_below_items: int = Field(
        1_000_000, ge=0, description="neighbouring compacted files below this size are merged"
    )
    merge_min_files: int = Field(8, ge=2, description="small neighbours that are merged at least")
    merge_max_bytes: int = Field(
        8 * GIB, ge=MIB, description="bytes of log files that are merged into one file at most"
    )
    cold_codec: Literal["plain", "lz4", "zstd"] = Field(
        "zstd", description="compression of merged log files (others use lz4)"
    )
    checkpoint_every: int = Field(32, ge=1, description="manifest commits between two checkpoints")
    refresh_interval: float = Field(
        5.0, gt=0, description="seconds between two reads of the manifests"
    )
    sidecar_cache_bytes: int = Field(
        8 * GIB, ge=0, description="disk for filters and directories of published files"
    )
    sidecar_memory_bytes: int = Field(
        256 * MIB,
        ge=0,
        description="memory for filters and directories of a reader without `cache_dir`",
    )
    cache_dir: str | None = Field(
        None,
        description="folder in which a reader keeps filters and directories over restarts; processes of one "
        "machine may share it; none: memory",
    )
    cache_bytes: int = Field(8 * GIB, ge=0, description="disk that `cache_dir` may take")
    warm_up: bool = Field(
        False,
        description="fetch filters and directories of the newest files before queries need them, up to the "
        "budget (readers; `tierdex serve --read-only` does)",
    )
    page_cache_bytes: int = Field(
        64 * MIB, ge=0, description="memory for pages read from the store"
    )
    page_arena_bytes: int = Field(
        256 * MIB, ge=0, description="memory for decoded pages of log files"
    )
    read_ahead_bytes: int = Field(
        64 * MIB,
        ge=0,
        description="memory for messages of published log files that are fetched ahead of their readers",
    )
    look_ahead: int = Field(
        4, ge=1, description="published files that one query reads at the same time"
    )
    scrub_interval: float = Field(
        86_400.0, gt=0, description="seconds within which every local block is verified once"
    )
    kernel_cache_dir: str | None = Field(
        None,
        description="folder for compiled kernels; none: beside the package, else a temporary one",
    )
    cost_per_get_usd: float = Field(
        0.0000004, ge=0, description="price of one GET, for explain and `tierdex cost`"
    )
    cost_per_gib_usd: float = Field(0.0, ge=0, description="price of one GiB read from the store")

    # -- the store --------------------------------------------------------------------------------
    store_timeout: float = Field(10.0, gt=0, description="seconds that one store request may take")
    store_attempts: int = Field(
        4, ge=1, description="attempts of a store request, with pauses in between"
    )
    store_kms_key: str | None = Field(
        None,
        min_length=1,
        description="key of S3's KMS that encrypts new objects (`aws:kms`); none: as the bucket does",
    )
    store_checksum: Literal["when_supported", "when_required"] = Field(
        "when_required", description="S3 checksum headers; older servers want `when_required`"
    )
    multipart_bytes: int = Field(
        64 * MIB, ge=5 * MIB, description="objects above this size are uploaded in parts"
    )


def load_settings(**overrides: object) -> Settings:
    """Return the settings with `overrides` on top. Raises InvalidRequestError naming the setting."""
    return load(Settings, overrides)


def load(model: type[M], overrides: Mapping[str, Any]) -> M:
    """Return the settings of `model` with `overrides` on top. Raises InvalidRequestError."""
    for name, value in overrides.items():
        _check_text(value, str(name))
    try:
        return model(**overrides)
    except ValidationError as error:
        found = error.errors()
        name = str(found[0]["loc"][0]) if found[0]["loc"] else ""  # of a rule over several
        if found[0]["type"] == "extra_forbidden":
            raise InvalidRequestError("there is no such setting", field=name) from error
        # Of a setting with alternatives there is an error for each.
        told = [_told(each["msg"]) for each in found if each["loc"][:1] == found[0]["loc"][:1]]
        raise InvalidRequestError(" or ".join(dict.fromkeys(told)), field=name or None) from error
    except SettingsError as error:  # a variable of a mapping that is not JSON
        raise InvalidRequestError(f"{error}: the variable takes JSON") from error


def _check_text(value: object, name: str) -> None:
    """Raise InvalidRequestError for a text that cannot be encoded, also within a mapping or a list."""
    if isinstance(value, str):
        if not value.isascii():
            try:
                (name + value).encode()
            except UnicodeEncodeError:
                raise InvalidRequestError(
                    "is no text: it holds one half of a surrogate pair", field=ascii(name)[1:-1]
                ) from None
    elif isinstance(value, dict):
        for key, inner in value.items():
            _check_text(key, name)
            _check_text(inner, name)
    elif isinstance(value, list | tuple):
        for inner in value:
            _check_text(inner, name)


def _told(message: str) -> str:
    return message.replace("Input should be", "must be").removeprefix("Value error, ")
