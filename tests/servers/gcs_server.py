"""fake-gcs-server on loopback, behind what turns the XML verbs of a client into those that it takes.

It takes uploads of the JSON API only, and knows no conditions on a GET. So a test shows that our verbs fit
Google's conditions, not what Google's own servers do.
"""

from __future__ import annotations

import http.client
import json
import re
import tempfile
import threading
import urllib.request
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import parse_qs, quote, unquote, urlsplit

from tools.free_port import find_free_port
from tools.server_process import ServerProcess

PROGRAM = Path(__file__).parents[2] / ".cache" / "gcs" / "fake-gcs-server"
_PASSED_ON = ("range", "if-match")


class Adapter(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def handle_verb(self):
        url = urlsplit(self.path)
        asked = {
            name: values[0] for name, values in parse_qs(url.query, keep_blank_values=True).items()
        }
        bucket, _, name = url.path[1:].partition("/")
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        parts = self.server.parts
        if self.command == "PUT" and "uploadId" in asked:
            parts[asked["uploadId"]][int(asked["partNumber"])] = body
            self.answer(200, b"", {"ETag": f'"p{asked["partNumber"]}"'})
        elif self.command == "PUT":
            status, text, headers = self.upload(bucket, unquote(name), body)
            self.answer(status, b"" if status == 200 else text, headers)
        elif self.command == "POST" and "uploads" in asked:
            with self.server.lock:
                number = f"u{len(parts)}"
                parts[number] = {}
            made = f"<InitiateMultipartUploadResult><Bucket>{bucket}</Bucket><Key>{name}</Key>" \
                f"<UploadId>{number}</UploadId></InitiateMultipartUploadResult>"  # fmt: skip
            self.answer(200, made.encode())
        elif self.command == "POST" and "uploadId" in asked:
            got = parts[asked["uploadId"]]
            whole = b"".join(got[number] for number in sorted(got))
            status, text, headers = self.upload(bucket, unquote(name), whole)
            etag = f"<ETag>{headers['ETag']}</ETag>"
            done = f"<CompleteMultipartUploadResult>{etag}</CompleteMultipartUploadResult>"
            self.answer(status, done.encode() if status == 200 else text, headers)
        elif self.command == "DELETE" and "uploadId" in asked:
            self.answer(204)
        else:
            self.pass_on()

    do_GET = do_PUT = do_POST = do_DELETE = do_HEAD = handle_verb

    def upload(self, bucket, name, body):
        generation = self.headers.get("x-goog-if-generation-match")
        condition = "" if generation is None else f"&ifGenerationMatch={generation}"
        path = f"/upload/storage/v1/b/{bucket}/o?uploadType=media&name={quote(name, safe='')}{condition}"
        answer, text = self.ask("POST", path, body, {"Content-Type": "application/octet-stream"})
        etag = re.search(rb'"etag":\s*"([^"]+)","storageClass', text)
        made = re.search(rb'"generation":\s*"(\d+)"', text)
        headers = {
            "ETag": f'"{etag[1].decode() if etag else "x"}"',
            "x-goog-generation": made[1].decode() if made else "0",
        }
        return answer.status, text, headers

    def pass_on(self):
        headers = {
            name: value for name, value in self.headers.items() if name.lower() in _PASSED_ON
        }
        answer, text = self.ask(self.command, self.path, None, headers)
        left_out = ("transfer-encoding", "connection", "date", "server")
        self.answer(
            answer.status,
            text,
            {name: value for name, value in answer.getheaders() if name.lower() not in left_out},
        )

    def ask(self, method, path, body, headers):
        connection = http.client.HTTPConnection("127.0.0.1", self.server.behind, timeout=60)
        try:
            connection.request(method, path, body, headers)
            answer = connection.getresponse()
            return answer, answer.read()
        finally:
            connection.close()

    def answer(self, status, body=b"", headers=None):
        headers = headers or {}
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        if "Content-Length" not in headers:
            self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def log_message(self, *_):
        pass


class GcsServer(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128

    def __init__(self, behind):
        super().__init__(("127.0.0.1", 0), Adapter)
        self.behind, self.parts, self.lock = behind, {}, threading.Lock()
        self.url = f"http://127.0.0.1:{self.server_port}"

    def make_bucket(self, name):
        request = urllib.request.Request(
            f"http://127.0.0.1:{self.behind}/storage/v1/b?project=p",
            json.dumps({"name": name}).encode(),
            {"Content-Type": "application/json"},
        )
        urllib.request.urlopen(request).close()


@contextmanager
def running_gcs():
    """Start both, yield the GcsServer, end them; yields None where the program is not installed."""
    if not PROGRAM.exists():
        yield None
        return
    port = find_free_port()
    with tempfile.TemporaryDirectory(prefix="gcs-") as folder:
        command = [
            str(PROGRAM), "-scheme", "http", "-host", "127.0.0.1", "-port", str(port), "-backend", "memory",
            "-public-host", f"127.0.0.1:{port}", "-log-level", "error",
        ]  # fmt: skip
        process = ServerProcess(command, Path(folder), port)
        process.start()
        server = GcsServer(port)
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            server.server_close()
            thread.join()
            process.kill()
