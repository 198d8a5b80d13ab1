"""A stand-in for a schema registry: it speaks the same HTTP as Confluent's, and is none.

It serves what tests put into it. It does not compile Protobuf: tests give the serialized descriptor.
"""

from __future__ import annotations

import contextlib
import json
import threading
from base64 import b64encode
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class SchemaRegistry:
    """`schemas` by ID, `subjects` by path; `requests` are the paths that were asked for, in order."""

    def __init__(self):
        self.schemas = {}
        self.subjects = {}
        self.requests = []
        self.login = None  # ("user", "password"): what callers must send
        self.status = 200

    def answer(self, path):
        path, _, query = path.partition("?")
        _, kind, *rest = path.split("/")
        found = None
        if kind == "schemas":
            found = self.schemas.get(int(rest[-1]))
        elif kind == "subjects":
            found = self.subjects.get((rest[0], int(rest[2])))
        if found is not None and "serialized" in found:
            serialized = found["serialized"] if query == "format=serialized" else "syntax = ..."
            return {**{n: v for n, v in found.items() if n != "serialized"}, "schema": serialized}
        return found


@contextlib.contextmanager
def running_registry():
    """Yield (the registry, its URL)."""
    registry = SchemaRegistry()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            registry.requests.append(self.path)
            found, status = registry.answer(self.path), registry.status
            if registry.login is not None:
                wanted = b64encode(":".join(registry.login).encode()).decode()
                if self.headers["authorization"] != f"Basic {wanted}":
                    status = 401
            if found is None and status == 200:
                status = 404
            body = json.dumps(found if status == 200 else {"error_code": status}).encode()
            self.send_response(status)
            self.send_header("content-type", "application/vnd.schemaregistry.v1+json")
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield registry, f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
