"""The settings of showing messages, for the HTTP service and the command line.

Depends on settings and pydantic.
"""

from __future__ import annotations

from pathlib import Path  # noqa: TC003 - read by pydantic

from pydantic import Field

from tierdex.settings import MIB, EnvironmentSettings, load


class ShowSettings(EnvironmentSettings):
    """The knobs of one fetcher of messages; durations are seconds, sizes bytes."""

    resolvers: Path | None = Field(
        None,
        description="file that names the sources of messages; none: `resolvers.toml` of the data folder",
    )
    max_message_bytes: int = Field(
        1 * MIB, gt=0, le=64 * MIB, description="longest message that is shown"
    )
    max_shown_bytes: int = Field(
        16 * MIB,
        gt=0,
        description="bytes of messages in one answer; further messages are `too_large`",
    )
    message_timeout: float = Field(
        5.0,
        gt=0,
        description="seconds that one answer waits for messages; the others are `unavailable`",
    )
    message_fetches: int = Field(
        4, gt=0, le=64, description="messages of one log that are fetched at the same time"
    )


def load_show_settings(**overrides: object) -> ShowSettings:
    """Return the settings with `overrides` on top. Raises InvalidRequestError naming the setting."""
    return load(ShowSettings, overrides)
