"""The server of the Model Context Protocol, over a service: by its URL, or in the same process.

::

    assistant -- stdio ----------> tierdex mcp --url URL ---> HTTP API    with the key of the command
    assistant -- HTTP POST /mcp -> the service itself ------> HTTP API    with the key of the request

Either way a tool is one request of the HTTP API, so that rights, masks, rate limits and audit lines are
those of the API. Depends on tools, httpx2 and mcp.
"""

from __future__ import annotations

from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Final

import httpx2
from mcp.server import MCPServer
from mcp.server.mcpserver.exceptions import ToolError

from tierdex.app.mcp.tools import INSTRUCTIONS, Tools

if TYPE_CHECKING:
    from tierdex.app.mcp.tools import Ask

# What the caller of the request under way sent as its key: tools run in tasks that inherit it.
authorization: ContextVar[str | None] = ContextVar("authorization", default=None)
TIMEOUT_S: Final = 60.0


def make_server(ask: Ask, version: str) -> MCPServer:
    """Return a server with the tools over `ask`."""
    server = MCPServer("tierdex", instructions=INSTRUCTIONS, version=version, log_level="WARNING")
    tools = Tools(ask)
    for each in (tools.find_message, tools.journey, tools.read_queue, tools.explain, tools.topics):
        server.add_tool(each)
    return server


def asking(client: httpx2.AsyncClient) -> Ask:
    """Return what asks a service through `client`, with the key of the request under way if it has one.

    A refusal is an error of the tool, in the words of the service.
    """

    async def ask(path: str, parameters: dict[str, Any]) -> dict[str, Any]:
        given = {name: value for name, value in parameters.items() if value is not None}
        key = authorization.get()
        headers = {} if key is None else {"authorization": key}
        try:
            answer = await client.get(path, params=given, headers=headers)
        except httpx2.HTTPError as error:
            raise ToolError(f"the service cannot be reached: {error}") from error
        found: dict[str, Any] = answer.json()
        if answer.status_code != 200:
            field = f" ({found['field']})" if found.get("field") else ""
            raise ToolError(f"refused{field}: {found.get('detail') or found.get('title')}")
        return found

    return ask
