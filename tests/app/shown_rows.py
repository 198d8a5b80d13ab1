"""The row of a loaded file that an entry points at."""

from tierdex.app.show import LoadedRows
from tierdex.filesystem import LocalFileSystem
from tierdex.index_service.answer import Answer
from tierdex.resolving.message_fetcher import MessageFetcher


def shown_row(register, entry, **wanted):
    """Return the `ShownMessage` of an entry that was found by `wanted`."""
    rows = LoadedRows(LocalFileSystem(), register, named=True)
    with MessageFetcher(None, others=rows) as messages:
        return messages.with_messages(Answer([entry]), **wanted).entries[0].message
