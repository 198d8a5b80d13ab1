"""The console at `/`: static files, read once, and the headers that keep them strict.

::

    GET /                    index.html
    GET /console/<name>      console.css, icon.svg, *.js  (ES modules, no build step)

The page asks the same `/v1/...` routes as every other client, with relative addresses, so that it works
behind a proxy that adds a path prefix. Nothing is fetched from another host. The assets hold no
secrets and are open without a key; the key that a user types stays in the tab's session storage.

Depends on routes; imports nothing else of tierdex.
"""

from tierdex.app.console.routes import CONTENT_SECURITY_POLICY, console_router

__all__ = ["CONTENT_SECURITY_POLICY", "console_router"]
