"""`tierdex mcp`: lookups for an assistant that speaks the Model Context Protocol over stdin and stdout.

Depends on errors, app.http, app.logs, app.mcp and the rest of app.cli.
"""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any

import anyio

from tierdex import __version__
from tierdex.app.cli.commands.serve import Served
from tierdex.app.cli.inputs.opening import (
    Target,
    opened_messages,
    show_settings,
)
from tierdex.errors import InvalidRequestError, NotFoundError


def mcp(*, target: Target) -> None:
    """Answer an assistant's lookups over stdin and stdout (Model Context Protocol).

    Of a service (--url, with its key), or of a data folder or store, which is only read. A service answers
    the same at /mcp with `--set mcp=true`.
    """
    try:
        import httpx2

        from tierdex.app.mcp.server import TIMEOUT_S, asking, make_server
    except ModuleNotFoundError as error:
        raise InvalidRequestError(f"pip install 'tierdex[mcp]' ({error})", field="mcp") from error

    async def answer(**reach: Any) -> None:
        async with httpx2.AsyncClient(timeout=TIMEOUT_S, **reach) as client:
            await make_server(asking(client), __version__).run_stdio_async()

    if target.url is not None:
        headers = {} if target.api_key is None else {"authorization": f"Bearer {target.api_key}"}
        anyio.run(lambda: answer(base_url=target.url, headers=headers))
        return
    with ExitStack() as opened:
        anyio.run(
            lambda: answer(base_url="http://localhost", transport=_in_process(target, opened))
        )


def _in_process(target: Target, opened: ExitStack) -> Any:
    """Return a transport to a service of this process, which reads the folder or store."""
    import httpx2

    from tierdex.app.http.application import create_app
    from tierdex.app.http.server_settings import load_server_settings
    from tierdex.app.logs import make_logger

    settings = target.settings
    showing = show_settings(settings)
    if target.folder is not None and not target.folder.is_dir():
        raise NotFoundError(f"there is no data folder {target.folder}")
    served = Served(target.folder, target.store, {**settings, "read_only": True})
    index, log = served.open()
    for each in (index, log):
        if each is not None:
            opened.callback(each.close)
    messages = opened.enter_context(opened_messages(target, showing, log))
    server = load_server_settings(log_requests=False)
    app = create_app(index, server, log=log, messages=messages, logger=make_logger())
    return httpx2.ASGITransport(app=app)
