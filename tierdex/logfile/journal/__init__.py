"""The journal: messages in order of arrival, in batches; sealed, with a dense index."""
