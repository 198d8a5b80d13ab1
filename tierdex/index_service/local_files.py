"""Local files as a query sees them: the chained form (unsealed, sealed) and the compacted one.

Thin: the form does the work, this charges the meter and decodes. Depends on indexfile.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tierdex.index_service.rows import RowDecoder

if TYPE_CHECKING:
    from collections.abc import Iterator

    import numpy as np

    from tierdex.index_service.reader import Candidate, FileMeter
    from tierdex.index_service.request import QueryRequest
    from tierdex.indexfile.chained import ChainedFile
    from tierdex.indexfile.compacted import CompactedFile
