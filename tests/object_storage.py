"""A server like S3 on this machine, and what tests ask of it without lgbench."""

from __future__ import annotations

import logging
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.error import HTTPError
from urllib.parse import quote, unquote
from urllib.request import Request, urlopen

from moto.server import ThreadedMotoServer

DENIED = b"<Error><Code>AccessDenied</Code><Message>Access Denied</Message></Error>"
EMPTY = b"<ListBucketResult><Name>b</Name><KeyCount>0</KeyCount><IsTruncated>false</IsTruncated></ListBucketResult>"
SOMEBODY = "AWS4-HMAC-SHA256 Credential=mine/20260101/us-east-1/s3/aws4_request, SignedHeaders=host, Signature=0"
"""Objects are their owner's, and the server believes any signature."""


@contextmanager
def moto() -> Iterator[str]:
    """The URL of a server that keeps objects in memory."""
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    try:
        yield f"http://127.0.0.1:{server.get_host_and_port()[1]}"
    finally:
        server.stop()


def environ(url: str, cache: Path) -> dict[str, str]:
    """The environment variables with which a command uses a server."""
    return {"AWS_ENDPOINT_URL": url, "AWS_ACCESS_KEY_ID": "mine", "AWS_SECRET_ACCESS_KEY": "mine", "LGBENCH_CACHE": str(cache)}


@contextmanager
def read_only(readable: bool) -> Iterator[str]:
    """The URL of a server that lets nobody write, and lists an empty bucket only if it is `readable`."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            self._answer(*((200, EMPTY) if readable else (403, DENIED)))

        def do_PUT(self):
            self.rfile.read(int(self.headers["Content-Length"]))
            self._answer(403, DENIED)

        def _answer(self, status, content):
            self.send_response(status)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *arguments):
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


class Bucket:
    """A new bucket of a server."""

    def __init__(self, url: str, name: str) -> None:
        self.url = f"{url}/{name}"
        self._ask("PUT")

    def put(self, name: str, content: bytes) -> None:
        self._ask("PUT", name, content)

    def get(self, name: str) -> bytes:
        return self._ask("GET", name)

    def remove(self, name: str) -> None:
        self._ask("DELETE", name)

    def names(self, hidden: bool = False) -> list[str]:
        """Every object that is not hidden, or every one that is."""
        found = re.findall(r"<Key>(.*?)</Key>", self._ask("GET", "?list-type=2").decode())
        return sorted(name for name in map(unquote, found) if ("/." in f"/{name}") == hidden)

    def fetch(self, prefix: str, folder: Path) -> Path:
        """Every run file and tuning run below a prefix, in a new folder."""
        for name in [*self.names(), *self.names(hidden=True)]:
            if name.endswith(".parquet"):
                path = folder / name.removeprefix(prefix)
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(self.get(name))
        return folder

    def _ask(self, method: str, name: str = "", content: bytes | None = None) -> bytes:
        path = name if name.startswith("?") else quote(name)
        headers = {"Content-Type": "application/octet-stream", "Authorization": SOMEBODY}
        request = Request(f"{self.url}/{path}", content, headers, method=method)
        try:
            with urlopen(request, timeout=30) as answer:
                return answer.read()
        except HTTPError as error:
            with error:
                raise
