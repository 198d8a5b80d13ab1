"""The settings as keywords of `Index.open` and `MessageLog.open`, for type checkers.

Generated from settings.py, which has their meanings: run `make docs` after a change there.

Depends on nothing.
"""

from __future__ import annotations

from typing import Literal, TypedDict


class SettingKeywords(TypedDict, total=False):
    """Every setting by name, none of them required."""

    node: str
    read_only: bool
    background: bool
    read_nodes: list[str] | None
    roll_after: float
    remote_interval: float
    takeover_after: float
    live_interval: float
    advertise_url: str | None
    peers: Literal["off", "auto"] | list[str]
    peer_allow: list[str]
    peer_timeout: float
    peer_ca: str | None
    peer_key: str | None
    fresh_within: float | None
    id_time: str
    topic_id_time: dict[str, str]
    id_time_slack: float
    remote_timeout: float
    retention: float | None
    offsets: Literal["bytes", "sequence"]
    topic_retention: dict[str, float]
    grace_time: float
    max_staleness: float
    read_policy: Literal["DISABLE", "NOT_IN_DISK", "NOT_IN_MEM", "FORCE"]
    keep_local_bytes: int
    keep_local_s: float | None
    disk_budget_bytes: int
    disk_reserve_bytes: int
    max_key_bytes: int
    max_batch_entries: int
    max_message_bytes: int
    journal_bytes: int
    max_count_limit: int
    max_lookups: int
    query_max_requests: int
    query_max_items: int
    query_max_entries: int
    slot_count: int
    item_capacity: int
    filter_bits: Literal[0, 8, 16]
    put_buffer_entries: int
    put_buffer_delay: float
    append_timeout: float
    compact_interval: float
    backoff_max: float
    merge_below_items: int
    merge_min_files: int
    merge_max_bytes: int
    cold_codec: Literal["plain", "lz4", "zstd"]
    checkpoint_every: int
    refresh_interval: float
    sidecar_cache_bytes: int
    sidecar_memory_bytes: int
    cache_dir: str | None
    cache_bytes: int
    warm_up: bool
    page_cache_bytes: int
    page_arena_bytes: int
    read_ahead_bytes: int
    look_ahead: int
    scrub_interval: float
    kernel_cache_dir: str | None
    cost_per_get_usd: float
    cost_per_gib_usd: float
    store_timeout: float
    store_attempts: int
    store_kms_key: str | None
    store_checksum: Literal["when_supported", "when_required"]
    multipart_bytes: int
