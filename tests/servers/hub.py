"""A server that answers as the Hugging Face Hub does, for datasets: a few of its endpoints."""

import hashlib
import json
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

Files = dict[str, bytes]


class HubServer:
    """Serves a folder as a dataset; every state of it that was asked for is a commit."""

    def __init__(self, repo: str, folder: Path, token: str | None) -> None:
        self.repo, self.folder, self.token = repo, folder, token
        self.url = ""
        self.failures: list[int] = []
        """Statuses that the next requests for content get."""
        self.requests: list[str] = []
        """Method and path of each request."""
        self.commits: dict[str, Files] = {}

    def commit(self) -> str:
        """Take what is in the folder as a commit: its hash."""
        paths = sorted(path for path in self.folder.rglob("*") if path.is_file())
        files = {path.relative_to(self.folder).as_posix(): path.read_bytes() for path in paths}
        name = hashlib.sha1(repr(sorted(files.items())).encode()).hexdigest()
        self.commits[name] = files
        return name


def _describe(path: str, data: bytes) -> dict[str, Any]:
    blob = hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest()
    return {"type": "file", "path": path, "size": len(data), "oid": blob}


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    hub: HubServer

    def log_message(self, *_: object) -> None:
        """Keep quiet."""

    def do_GET(self) -> None:
        """Answer a request for a commit, a list of files, or content."""
        url = urlsplit(self.path)
        api = f"/api/datasets/{self.hub.repo}"
        self.hub.requests.append(f"GET {unquote(url.path)}")
        if self.hub.token and self.headers.get("Authorization") != f"Bearer {self.hub.token}":
            self._answer(401, b"{}", {"X-Error-Code": "RepoNotFound"})
        elif url.path == api or re.fullmatch(rf"{api}/revision/(main|v1|refs%2Fpr%2F7)", url.path):
            self._send({"id": self.hub.repo, "sha": self.hub.commit()})
        elif url.path.startswith(f"{api}/revision/"):
            self._answer(404, b"{}", {"X-Error-Code": "RevisionNotFound"})
        elif url.path.startswith(f"{api}/tree/"):
            self._list(url.path[len(f"{api}/tree/") :], parse_qs(url.query))
        elif url.path.startswith(f"/datasets/{self.hub.repo}/resolve/"):
            commit, _, path = url.path.split("/resolve/")[1].partition("/")
            self._answer(302, b"", {"Location": f"{self.hub.url}/content/{commit}/{path}"})
        elif url.path.startswith("/content/"):
            commit, _, path = url.path.removeprefix("/content/").partition("/")
            self._send_range(self.hub.commits[commit].get(unquote(path)))
        else:
            self._answer(404, b"{}", {"X-Error-Code": "RepoNotFound"})

    def do_POST(self) -> None:
        """Answer a question about paths."""
        form = parse_qs(self.rfile.read(int(self.headers["Content-Length"])).decode())
        self.hub.requests.append(f"POST {self.path}")
        files = self.hub.commits[self.path.rpartition("/")[2]]
        self._send([_describe(path, files[path]) for path in form["paths"] if path in files])

    def _list(self, place: str, query: dict[str, list[str]]) -> None:
        commit, _, folder = unquote(place).partition("/")
        prefix = f"{folder}/" if folder else ""
        files = self.hub.commits[commit].items()
        inside = {path: data for path, data in files if path.startswith(prefix)}
        if not inside:
            self._answer(404, b"{}", {"X-Error-Code": "EntryNotFound"})
            return
        deep = query.get("recursive", ["false"])[0].lower() == "true"
        names = {path: path[len(prefix) :].split("/") for path in inside}
        folders = {prefix + parts[0] for parts in names.values() if len(parts) > 1}
        entries = [{"type": "directory", "path": path, "oid": "0" * 40} for path in sorted(folders)]
        shown = [path for path, parts in names.items() if deep or len(parts) == 1]
        self._send([*entries, *(_describe(path, inside[path]) for path in shown)])

    def _send_range(self, data: bytes | None) -> None:
        if self.hub.failures:
            self._answer(self.hub.failures.pop(0), b"")
        elif data is None:
            self._answer(404, b"", {"X-Error-Code": "EntryNotFound"})
        else:
            match = re.fullmatch(r"bytes=(\d+)-(\d*)", self.headers["Range"])
            assert match is not None
            stop = int(match[2]) + 1 if match[2] else len(data)
            self._answer(206, data[int(match[1]) : stop])

    def _send(self, content: Any) -> None:
        self._answer(200, json.dumps(content).encode(), {"Content-Type": "application/json"})

    def _answer(self, status: int, body: bytes, headers: dict[str, str] | None = None) -> None:
        self.send_response(status)
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


@contextmanager
def run_hub_server(repo: str, folder: Path, token: str | None = None) -> Iterator[HubServer]:
    """Serve a folder as a dataset for a `with` block; with a `token`, only to who knows it."""
    hub = HubServer(repo, folder, token)
    server = ThreadingHTTPServer(("127.0.0.1", 0), type("Handler", (_Handler,), {"hub": hub}))
    hub.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    try:
        yield hub
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
