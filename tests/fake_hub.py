"""As much of the Hugging Face hub as its client needs to push a model and to fetch it again."""

from __future__ import annotations

import base64
import hashlib
import json
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import unquote, urlsplit


class FakeHub:
    """Keeps repositories in memory.

    Attributes:
        address: where it listens.
        repositories: by name, then branch, the content of each file.
        created: what was asked for when repositories were made.
        commits: (repository, branch, summary) of each commit.
        tokens: the Authorization of the last request to each path.
        refuses: status of every answer from now on, if any.
    """

    def __init__(self, address: str) -> None:
        self.address = address
        self.repositories: dict[str, dict[str, dict[str, bytes]]] = {}
        self.created: list[dict[str, Any]] = []
        self.commits: list[tuple[str, str, str]] = []
        self.tokens: dict[str, str | None] = {}
        self.refuses: int | None = None

    def answer(self, method: str, path: str, body: bytes) -> tuple[int, Any, dict[str, str]]:
        """Give status, JSON or bytes, and headers."""
        if path == "/api/repos/create":
            asked = json.loads(body)
            self.created.append(asked)
            name = f"{asked['organization']}/{asked['name']}"
            if name in self.repositories:
                return 409, {"error": "exists", "url": f"{self.address}/{name}"}, {}
            self.repositories[name] = {"main": {".gitattributes": b""}}
            return 200, {"url": f"{self.address}/{name}", "name": name}, {}
        if path == "/api/validate-yaml":
            return 200, {"errors": [], "warnings": []}, {}
        if match := re.fullmatch(r"/api/models/([^/]+/[^/]+)/(\w+)/([^/]+)", path):
            name, what, branch = match.groups()
            return self._api(name, what, branch, body)
        if match := re.fullmatch(r"/([^/]+/[^/]+)/resolve/([^/]+)/(.+)", path):
            name, revision, file = match.groups()
            for branch, files in self.repositories.get(name, {}).items():
                if revision in (branch, self._sha(branch, files)) and file in files:
                    digest = hashlib.sha256(files[file]).hexdigest()
                    headers = {"ETag": f'"{digest}"', "X-Repo-Commit": self._sha(branch, files)}
                    return 200, files[file], headers
        return 404, {"error": "nothing here"}, {"X-Error-Code": "EntryNotFound"}

    def _api(
        self, name: str, what: str, branch: str, body: bytes
    ) -> tuple[int, Any, dict[str, str]]:
        branches = self.repositories.get(name)
        if branches is None:
            return 404, {"error": "no repository"}, {"X-Error-Code": "RepoNotFound"}
        if what == "branch":
            branches[branch] = dict(branches["main"])
            return 200, {}, {}
        # Branches may be named by what they hold, too.
        shas = {self._sha(one, held): held for one, held in branches.items()}
        files = branches[branch] if branch in branches else shas[branch]
        if what == "preupload":
            paths = [file["path"] for file in json.loads(body)["files"]]
            kinds = [
                {"path": path, "uploadMode": "regular", "shouldIgnore": False} for path in paths
            ]
            return 200, {"files": kinds}, {}
        if what == "commit":
            for line in body.splitlines():
                entry = json.loads(line)
                value = entry["value"]
                if entry["key"] == "header":
                    self.commits.append((name, branch, value["summary"]))
                elif entry["key"] == "file":
                    files[value["path"]] = base64.b64decode(value["content"])
                elif entry["key"] == "deletedFile":
                    del files[value["path"]]
            sha = self._sha(branch, files)
            url = f"{self.address}/{name}/commit/{sha}"
            return 200, {"commitUrl": url, "commitOid": sha, "success": True}, {}
        listed = [
            {"type": "file", "path": path, "rfilename": path, "size": len(data), "oid": "0" * 40}
            for path, data in sorted(files.items())
        ]
        if what == "tree":
            return 200, listed, {}
        return 200, {"id": name, "sha": self._sha(branch, files), "siblings": listed}, {}

    @staticmethod
    def _sha(branch: str, files: dict[str, bytes]) -> str:
        digest = hashlib.sha1(branch.encode())
        for path, data in sorted(files.items()):
            digest.update(path.encode() + hashlib.sha1(data).digest())
        return digest.hexdigest()


@contextmanager
def serve_hub() -> Iterator[FakeHub]:
    """Run a hub until the block ends."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def _do(self) -> None:
            if self.headers.get("Transfer-Encoding") == "chunked":
                body = b""
                while size := int(self.rfile.readline(), 16):
                    body += self.rfile.read(size)
                    self.rfile.readline()
                self.rfile.readline()
            else:
                body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            hub.tokens[self.path] = self.headers.get("Authorization")
            path = unquote(urlsplit(self.path).path)
            status, data, headers = hub.answer(self.command, path, body)
            if hub.refuses is not None:
                status, data, headers = hub.refuses, {"error": "not you"}, {}
            data = data if isinstance(data, bytes) else json.dumps(data).encode()
            self.send_response(status)
            for name, value in {**headers, "Content-Length": str(len(data))}.items():
                self.send_header(name, value)
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(data)

        do_GET = do_POST = do_HEAD = _do

        def log_message(self, *_: object) -> None:
            pass

    http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    http.daemon_threads = True
    hub = FakeHub(f"http://127.0.0.1:{http.server_address[1]}")
    thread = threading.Thread(target=http.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    try:
        yield hub
    finally:
        http.shutdown()
        http.server_close()
        thread.join()
