"""A browser, and the console served by uvicorn on a free loopback port."""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import threading
from pathlib import Path
from typing import TYPE_CHECKING

import playwright
import pytest
import uvicorn
from playwright.sync_api import Browser, Page, expect, sync_playwright

from tests.patience import PATIENCE_S
from tools.debian import has_programs

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from fastapi import FastAPI

PATIENCE_MS = PATIENCE_S * 1000

expect.set_options(timeout=PATIENCE_MS)


@pytest.fixture(scope="session")
def chromium_path() -> str:
    """Return Debian's chromium without its windows, installing it where that is allowed; else skip."""
    if not has_programs(["chromium-headless-shell"], ["chromium-headless-shell"]):
        pytest.skip("chromium cannot be installed here")
    path = shutil.which("chromium-headless-shell")
    assert path is not None
    return path


@pytest.fixture(scope="session")
def driver() -> None:
    """Let the browser's driver run by the machine's Node.js where it was installed without one."""
    own = Path(playwright.__file__).parent / "driver" / "node"
    if not own.exists() and (node := shutil.which("node")) is not None:
        os.environ.setdefault("PLAYWRIGHT_NODEJS_PATH", node)


# Not for the session: while it lasts, its event loop keeps tests of other folders from running theirs.
@pytest.fixture(scope="package")
def browser(chromium_path: str, driver: None) -> Iterator[Browser]:
    with sync_playwright() as started:
        browser = started.chromium.launch(
            executable_path=chromium_path, headless=True, timeout=PATIENCE_MS
        )
        yield browser
        browser.close()


@pytest.fixture
def page(browser: Browser) -> Iterator[Page]:
    with checked_page(browser) as page:
        yield page


@contextlib.contextmanager
def checked_page(browser: Browser) -> Iterator[Page]:
    """Open a page on which no script error and no refused resource may happen."""
    page = browser.new_page(viewport={"width": 1440, "height": 900}, timezone_id="America/New_York")
    page.set_default_timeout(PATIENCE_MS)
    complaints: list[str] = []
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.on(
        "console",
        lambda message: (
            complaints.append(message.text)
            if "Content Security Policy" in message.text or "TrustedHTML" in message.text
            else None
        ),
    )
    yield page
    page.close()
    assert complaints == []


@pytest.fixture(scope="module")
def serve() -> Iterator[Callable[[FastAPI], str]]:
    """Yield a function that serves an application until the module ends and returns its address."""
    with contextlib.ExitStack() as running:
        yield lambda app: running.enter_context(served(app))


@contextlib.contextmanager
def served(app: FastAPI) -> Iterator[str]:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        server = uvicorn.Server(uvicorn.Config(app, log_level="error", lifespan="on"))
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
        thread.start()
        try:
            while not server.started and thread.is_alive():
                thread.join(0.01)
            yield f"http://127.0.0.1:{listener.getsockname()[1]}/"
        finally:
            server.should_exit = True
            thread.join()


def copied_commands(page: Page) -> list[str]:
    """Return the open lookup as the menu copies it: for curl, the command line, Python."""
    commands: list[str] = page.evaluate(
        """async () => {
          const { asCurl, asCommand, asPython } = await import("/console/copy_menu.js");
          const { readLink } = await import("/console/link.js");
          const { momentsOf } = await import("/console/time_field.js");
          const { parameters } = readLink(location.hash);
          const query = { ...parameters, ...momentsOf(parameters) };
          return [asCurl(query), asCommand(query), asPython(query)];
        }"""
    )
    return commands
