"""The doors of the product: HTTP service, command line, console. The only place that wires parts."""
