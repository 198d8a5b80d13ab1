"""`python -m tools.network_relay LISTEN CONNECT [LISTEN CONNECT]...`: passes connections on, until it ends.

An address is HOST:PORT or the path of a socket. Two of them make a server that runs in a network of its own
(`tools.own_network`) reachable at its own address on this machine's loopback::

    client -> 127.0.0.1:9876 -> [relay outside] -> DIR/9876.socket -> [relay inside] -> 127.0.0.1:9876

It prints "ready" when it listens.
"""

from __future__ import annotations

import asyncio
import sys
from contextlib import suppress
from functools import partial

_PIECE = 1 << 16


async def _pass_on(target: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        further = await _connected(target)
    except OSError:
        writer.close()
        return
    await asyncio.gather(_pump(reader, further[1]), _pump(further[0], writer))


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(OSError):
        while piece := await reader.read(_PIECE):
            writer.write(piece)
            await writer.drain()
    writer.close()


async def _connected(target: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    if "/" in target:
        return await asyncio.open_unix_connection(target)
    host, _, port = target.rpartition(":")
    return await asyncio.open_connection(host, int(port))


async def _relay(pairs: list[tuple[str, str]]) -> None:
    for listening, target in pairs:
        if "/" in listening:
            await asyncio.start_unix_server(partial(_pass_on, target), listening)
        else:
            host, _, port = listening.rpartition(":")
            await asyncio.start_server(partial(_pass_on, target), host, int(port))
    print("ready", flush=True)
    await asyncio.Event().wait()


def main() -> None:
    """Relay between the addresses of the command line."""
    given = sys.argv[1:]
    asyncio.run(_relay(list(zip(given[::2], given[1::2], strict=True))))


if __name__ == "__main__":
    main()
