"""A small HTTP server on this machine that misbehaves as it is told."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class Server:
    """Serves files, and keeps what it was asked.

    Attributes:
        files: path to content.
        requests: (path, headers in lower case) of each request.
        ranges: whether it knows Range.
        etag: what it calls the version of its files; None for no mark at all.
        lengths: whether it tells Content-Length.
        cuts: after how many bytes the next answers break off.
        delay: seconds of silence in the middle of the next answers, one each.
        answers: status codes of the next answers, before files are given.
        redirects: path to another address.
    """

    def __init__(self, address: str) -> None:
        self.address = address
        self.files: dict[str, bytes] = {}
        self.requests: list[tuple[str, dict[str, str]]] = []
        self.ranges = True
        self.etag: str | None = '"one"'
        self.lengths = True
        self.cuts: list[int] = []
        self.delay: list[float] = []
        self.answers: list[int] = []
        self.redirects: dict[str, str] = {}

    def url(self, path: str) -> str:
        return self.address + path

    def asked(self) -> list[str | None]:
        """The Range of each request."""
        return [headers.get("range") for _, headers in self.requests]


def _handler(server: Callable[[], Server]) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            state = server()
            state.requests.append((self.path, {k.lower(): v for k, v in self.headers.items()}))
            if self.path in state.redirects:
                self._head(302, {"Location": state.redirects[self.path], "Content-Length": "0"})
            elif state.answers:
                self._head(state.answers.pop(0), {"Content-Length": "0"})
            elif self.path not in state.files:
                self._head(404, {"Content-Length": "0"})
            else:
                self._give(state, state.files[self.path])

        def _give(self, state: Server, data: bytes) -> None:
            headers = {} if state.etag is None else {"ETag": state.etag}
            start, status = 0, 200
            found = re.fullmatch(r"bytes=(\d+)-", self.headers.get("Range", ""))
            same = self.headers.get("If-Range") in (None, state.etag)
            if state.ranges and found and same:
                start, status = int(found[1]), 206
                if start >= len(data):
                    self._head(416, {"Content-Range": f"bytes */{len(data)}", **headers})
                    return
                headers["Content-Range"] = f"bytes {start}-{len(data) - 1}/{len(data)}"
            body = data[start:]
            if state.lengths:
                headers["Content-Length"] = str(len(body))
            self._head(status, headers)
            cut = state.cuts.pop(0) if state.cuts else len(body)
            self.wfile.write(body[:cut])
            self.wfile.flush()
            if state.delay:
                time.sleep(state.delay.pop(0))
            self.close_connection = True

        def _head(self, status: int, headers: dict[str, str]) -> None:
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name, value)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    return Handler


@contextmanager
def serve() -> Iterator[Server]:
    """Run a server until the block ends."""
    holder: list[Server] = []
    http = ThreadingHTTPServer(("127.0.0.1", 0), _handler(lambda: holder[0]))
    http.daemon_threads = True
    holder.append(Server(f"http://127.0.0.1:{http.server_address[1]}"))
    thread = threading.Thread(target=http.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    try:
        yield holder[0]
    finally:
        http.shutdown()
        http.server_close()
        thread.join()
