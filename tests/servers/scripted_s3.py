"""A tiny S3 server of ours that misbehaves on demand, over a real socket: one behaviour a request.

It keeps objects in a dict and knows GET with a range, PUT with If-None-Match and DELETE: enough for what
a store does when an answer is lost, cut, late or a refusal. `then` queues what happens to coming requests;
`seen` lists those that arrived.
"""

from __future__ import annotations

import contextlib
import re
import socket
import threading
from collections import deque
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from tests.patience import PATIENCE_S


class ScriptedS3:
    """The server; `endpoint_url` is where it is. End it with `close`."""

    def __init__(self):
        self.objects: dict[str, bytes] = {}
        self.seen: list[tuple[str, str]] = []
        self.headers: list[dict[str, str]] = []
        self._behaviours: deque = deque()
        self._ended = threading.Event()
        server = self

        class Handler(_Handler):
            script = server

        self._http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._http.daemon_threads = True
        self.endpoint_url = f"http://127.0.0.1:{self._http.server_port}"
        self._thread = threading.Thread(target=self._http.serve_forever, args=(0.02,), daemon=True)
        self._thread.start()

    def then(self, *behaviours):
        """Queue what happens to the next requests: a name, (status, code[, headers]), or the body
        of a 200."""
        self._behaviours.extend(behaviours)

    def reset(self):
        """Forget objects, requests and what was queued."""
        self.objects.clear()
        self.seen.clear()
        self.headers.clear()
        self._behaviours.clear()

    def next_behaviour(self):
        return self._behaviours.popleft() if self._behaviours else "well"

    def wait_until_closed(self):
        self._ended.wait(PATIENCE_S)

    def close(self):
        self._ended.set()
        self._http.shutdown()
        self._http.server_close()
        self._thread.join()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    script: ScriptedS3

    def log_message(self, *arguments):
        """Nothing: the tests look at `seen`."""

    def _handle(self):
        key = self.path.partition("?")[0]
        body = self.rfile.read(int(self.headers.get("content-length") or 0))
        self.script.seen.append((self.command, key))
        self.script.headers.append({name.lower(): value for name, value in self.headers.items()})
        behaviour = self.script.next_behaviour()
        if behaviour == "hang up":
            return self._hang_up()
        if behaviour == "say nothing":
            self.script.wait_until_closed()
            return self._hang_up()
        if isinstance(behaviour, tuple):
            return self._refuse(*behaviour)
        if isinstance(behaviour, bytes):
            return self._answer(200, {}, behaviour, "well")
        status, headers, answer = self._serve(key, body)
        if behaviour == "hang up after":
            return self._hang_up()
        return self._answer(status, headers, answer, behaviour)

    do_GET = do_PUT = do_DELETE = do_POST = _handle

    def _serve(self, key, body):
        objects = self.script.objects
        if self.command == "PUT":
            if self.headers.get("if-none-match") == "*" and key in objects:
                return 412, {}, _error("PreconditionFailed")
            objects[key] = body
            return 200, {"ETag": '"tag"'}, b""
        if self.command == "DELETE":
            objects.pop(key, None)
            return 204, {}, b""
        if key not in objects:
            return 404, {}, _error("NoSuchKey")
        data = objects[key]
        asked = re.fullmatch(r"bytes=(\d+)-(\d*)", self.headers.get("range") or "")
        if asked is None:
            return 200, {}, data
        first, last = int(asked[1]), min(int(asked[2] or len(data)), len(data) - 1)
        return 206, {"Content-Range": f"bytes {first}-{last}/{len(data)}"}, data[first : last + 1]

    def _answer(self, status, headers, body, behaviour):
        if behaviour == "wrong range":
            headers["Content-Range"] = f"bytes 0-{len(body) - 1}/{10 * len(body)}"
        if behaviour == "ignore range":
            status, headers, body = 200, {}, self.script.objects[self.path.partition("?")[0]]
        length = len(body)
        if behaviour == "short range":
            body = body[:-1]
            length = len(body)
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        if status != 204:
            self.send_header("Content-Length", str(length))
        if behaviour == "two lengths":
            self.send_header("Content-Length", str(length))
        self.end_headers()
        if behaviour == "cut":
            self.wfile.write(body[: len(body) // 2])
            return self._hang_up()
        if behaviour == "stall":
            self.wfile.write(body[: len(body) // 2])
            self.script.wait_until_closed()
            return self._hang_up()
        self.wfile.write(body)
        return None

    def _refuse(self, status, code="", headers=None):
        body = _error(code)
        self.send_response(status)
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def _hang_up(self):
        self.close_connection = True
        with contextlib.suppress(OSError):
            self.connection.shutdown(socket.SHUT_RDWR)


def _error(code):
    return f"<Error><Code>{code}</Code><Message>because</Message></Error>".encode()
