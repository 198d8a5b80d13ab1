"""The certificate authorities that a TLS client trusts: a PEM file, or the system's.

Depends on errors.
"""

from __future__ import annotations

import ssl

from tierdex.errors import InvalidRequestError


def trusting(path: str | None, *, field: str) -> ssl.SSLContext:
    """Return what believes the authorities in the file at `path`; None: the system's.

    Raises InvalidRequestError, which names the argument or setting `field`, for a file that cannot be used.
    """
    try:
        return ssl.create_default_context(cafile=path)
    except OSError as error:
        raise InvalidRequestError(f"{path} cannot be used: {error}", field=field) from error
