"""How long a command waits for messages that it shows."""

from __future__ import annotations

import pytest

from tierdex.app.cli.inputs.opening import show_settings
from tierdex.resolving.show_settings import load_show_settings


@pytest.fixture(autouse=True)
def no_environment(monkeypatch):
    monkeypatch.delenv("TIERDEX_MESSAGE_TIMEOUT", raising=False)


def test_command_waits_longer_than_a_service_unless_somebody_said_how_long(monkeypatch):
    assert show_settings({}).message_timeout > load_show_settings().message_timeout
    asked = {"message_timeout": 5.0, "node": "n"}
    assert show_settings(asked).message_timeout == 5.0
    assert asked == {"node": "n"}
    monkeypatch.setenv("TIERDEX_MESSAGE_TIMEOUT", "0.5")
    assert show_settings({}).message_timeout == 0.5
