"""The console at `/`: static files, read once, with strict security headers.

::

    GET /                    index.html
    GET /console/<name>      console.css, icon.svg, *.js  (ES modules, no build step)

The page calls the `/v1/...` routes of every other client, with relative addresses, so that it works
behind a proxy that adds a path prefix. It fetches nothing from another host. The assets hold no
secrets and need no key; a key that a user types stays in the session storage of the tab.

Depends on routes; imports nothing else of tierdex.
"""

from tierdex.app.console.routes import CONTENT_SECURITY_POLICY, console_router

__all__ = ["CONTENT_SECURITY_POLICY", "console_router"]
