"""The remote client: the verbs of `Index` over HTTP, synchronous and asynchronous."""
