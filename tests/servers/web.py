"""A web server over a directory, or in front of another server, that fails on command."""

import http.client
import re
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import unquote, urlsplit

EXPIRED = (
    b"<Error><Code>ExpiredToken</Code><Message>expired</Message>"
    b"<AWSAccessKeyId>AKIDTESTING</AWSAccessKeyId></Error>"
)
_RANGE = re.compile(r"bytes=(\d+)-(\d*)$")
_ELSEWHERE = "/elsewhere"
_UPWARDS = ("garble", "clip")
"""Faults of what is sent: the request is answered as if it had been sent so."""
_AFTERWARDS = (*_UPWARDS, "flip", "short", "cut", "slow", "whole", "lose")
"""Faults of an answer; others keep a request from being answered, or from reaching upstream."""


class Request(NamedTuple):
    """A request that was answered: `status` is None where the connection was cut."""

    method: str
    key: str
    start: int | None
    stop: int | None
    status: int | None
    bytes: int
    time: float


@dataclass
class Fault:
    """What goes wrong with some requests; see `WebServer.inject`."""

    kind: str
    key: str | None
    method: str
    times: float
    after: int
    settings: dict[str, Any] = field(default_factory=dict)

    def take(self, method: str, key: str) -> bool:
        """Return whether it hits this request, and count it."""
        if method != self.method or self.key not in (None, key) or self.times <= 0:
            return False
        if self.after > 0:
            self.after -= 1
            return False
        self.times -= 1
        return True


class WebServer:
    """Serves a directory with ranges and ETags, for a `with` block of `run_web_server`.

    Attributes
    ----------
    url
        Of the root.
    requests
        All requests that were answered, in order.
    latency, bandwidth
        Seconds before each answer, and bytes a second of each answer (None: no limit).
    replaced
        Other content for some keys, as if an object had been replaced.
    hits
        How often each kind of fault hit a request.
    """

    def __init__(self, folder: Path | None, upstream: str | None = None) -> None:
        """`upstream` is the URL of a server that answers in place of the folder."""
        self.folder = folder
        self.upstream = upstream
        self.latency = 0.0
        self.bandwidth: float | None = None
        self.requests: list[Request] = []
        self.replaced: dict[str, bytes] = {}
        self.hits = Counter[str]()
        self.closing = threading.Event()
        self._faults: list[Fault] = []
        self._lock = threading.Lock()
        self._server = _Server(self)
        self.url = f"http://127.0.0.1:{self._server.server_port}"

    def inject(
        self,
        kind: str,
        *,
        key: str | None = None,
        method: str = "GET",
        times: float = 1,
        after: int = 0,
        **settings: Any,
    ) -> None:
        """Let requests fail: the next `times` for a key (None: any), but for the first `after`.

        Kinds, with their settings:

        - `flip`: one bit of the body is another, that of byte `at` (default: in the middle)
        - `garble`: one bit of what is sent is another
        - `clip`: only the first half of what is sent arrives
        - `short`: a proper answer with only the first half of the range
        - `cut`: the connection ends in the middle of the body
        - `drop`: the connection ends before anything is done
        - `lose`: the connection ends after everything was done, but before the answer
        - `hang`: no answer for `seconds` (default: until the server ends)
        - `slow`: the body comes with `rate` bytes a second
        - `status`: `code`, with a `retry_after` in seconds and a `body`
        - `expired`: 403, as S3 answers to a token that has expired
        - `redirect`: to another URL of this server, which fails no more
        - `whole`: the range is ignored, and all of the object sent
        """
        with self._lock:
            self._faults.append(Fault(kind, key, method, times, after, settings))

    def heal(self) -> None:
        """Forget all faults."""
        with self._lock:
            self._faults.clear()

    def find_fault(self, method: str, key: str) -> Fault | None:
        """Return the fault that hits this request, if any."""
        with self._lock:
            fault = next((fault for fault in self._faults if fault.take(method, key)), None)
            if fault is not None:
                self.hits[fault.kind] += 1
            return fault

    def note(self, request: Request) -> None:
        """Count a request."""
        with self._lock:
            self.requests.append(request)

    def count(self, key: str | None = None, method: str = "GET") -> int:
        """Count the requests for a key, or for any."""
        with self._lock:
            return sum(
                request.method == method and key in (None, request.key) for request in self.requests
            )

    def count_bytes(self, key: str | None = None) -> int:
        """Count the bytes of bodies that were sent for a key, or for any."""
        with self._lock:
            return sum(request.bytes for request in self.requests if key in (None, request.key))

    def find_content(self, key: str) -> bytes | None:
        """Return the content of a key, None where there is none."""
        if key in self.replaced:
            return self.replaced[key]
        assert self.folder is not None
        path = self.folder / key
        return path.read_bytes() if ".." not in key and path.is_file() else None

    def run(self) -> None:
        """Answer requests until `close` is called."""
        self._server.serve_forever(poll_interval=0.02)

    def close(self) -> None:
        """End all connections."""
        self.closing.set()
        self._server.shutdown()
        self._server.server_close()


@contextmanager
def run_web_server(folder: Path | None, upstream: str | None = None) -> Iterator[WebServer]:
    """Run a server over a directory for a `with` block, in a thread of this process."""
    server = WebServer(folder, upstream)
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.close()
        thread.join()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False
    request_queue_size = 128

    def __init__(self, web: WebServer) -> None:
        self.web = web
        super().__init__(("127.0.0.1", 0), _Handler)

    def handle_error(self, *_: object) -> None:
        """Say nothing: clients hang up whenever they like."""


class _Answer(NamedTuple):
    status: int
    headers: dict[str, str]
    body: bytes


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    wbufsize = -1
    server: _Server

    def _handle(self) -> None:
        web = self.server.web
        path = urlsplit(self.path).path
        self._key = unquote(path.removeprefix(_ELSEWHERE).lstrip("/"))
        self._body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        if web.latency:
            web.closing.wait(web.latency)
        elsewhere = path.startswith(_ELSEWHERE)
        fault = None if elsewhere else web.find_fault(self.command, self._key)
        hit: Callable[[], bool] | None = None
        if fault is not None:
            self._settings = fault.settings
            hit = getattr(self, f"_fail_{fault.kind}")
        if hit is not None and fault is not None and fault.kind in _UPWARDS:
            hit()
            hit = None
        if fault is None or fault.kind in _AFTERWARDS:
            self._answer = self._ask_upstream() if web.upstream else self._look_up()
        if hit is None or not hit():
            self._send(self._answer)

    do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = _handle

    def log_message(self, *_: object) -> None:
        """Say nothing."""

    def _look_up(self, ranged: bool = True) -> _Answer:
        content = self.server.web.find_content(self._key)
        if content is None:
            return _Answer(404, {}, b"")
        headers = {"ETag": f'"{hash(content) & (1 << 64) - 1:016x}"', "Accept-Ranges": "bytes"}
        ends = self._find_range()
        if ends is None or not ranged:
            return _Answer(200, headers, content)
        start, stop = ends[0], min(ends[1] or len(content), len(content))
        if start >= len(content):
            return _Answer(416, {"Content-Range": f"bytes */{len(content)}"}, b"")
        headers["Content-Range"] = f"bytes {start}-{stop - 1}/{len(content)}"
        return _Answer(206, headers, content[start:stop])

    def _ask_upstream(self) -> _Answer:
        upstream = urlsplit(self.server.web.upstream or "")
        connection = http.client.HTTPConnection(upstream.netloc)
        try:
            headers = {name: value for name, value in self.headers.items() if name != "Host"}
            if self._body:
                headers["Content-Length"] = str(len(self._body))
            connection.request(self.command, self.path, self._body, headers)
            answer = connection.getresponse()
            content = answer.read()
        finally:
            connection.close()
        headers = dict(answer.getheaders())
        for name in ("Transfer-Encoding", "Connection", "Server", "Date", "Content-Length"):
            length = headers.pop(name, None)
        if self.command == "HEAD" and length is not None:
            headers["Content-Length"] = length
        return _Answer(answer.status, headers, content)

    def _find_range(self) -> tuple[int, int | None] | None:
        ends = _RANGE.match(self.headers.get("Range") or "")
        return None if ends is None else (int(ends[1]), int(ends[2]) + 1 if ends[2] else None)

    def _send(self, answer: _Answer, sent: int | None = None, rate: float | None = None) -> None:
        """Send an answer; of the body only `sent` bytes, after which the connection ends."""
        rate = rate or self.server.web.bandwidth
        size = len(answer.body) if sent is None else sent
        body = b"" if self.command == "HEAD" else answer.body[:size]
        self._note(answer.status, len(body))
        self.send_response(answer.status)
        for name, value in {"Content-Length": str(len(answer.body)), **answer.headers}.items():
            self.send_header(name, value)
        self.end_headers()
        piece = max(int(rate / 100), 1) if rate else 1 << 20
        for start in range(0, len(body), piece):
            self.wfile.write(body[start : start + piece])
            if rate:
                self.wfile.flush()
                if self.server.web.closing.wait(piece / rate):
                    break
        self.wfile.flush()
        if sent is not None:
            self._hang_up()

    def _note(self, status: int | None, size: int) -> None:
        start, stop = self._find_range() or (None, None)
        self.server.web.note(
            Request(self.command, self._key, start, stop, status, size, time.monotonic())
        )

    def _hang_up(self) -> bool:
        self.close_connection = True
        self.connection.shutdown(2)
        return True

    # Each changes what is sent or the answer and returns False, or answers itself and returns True.

    def _fail_garble(self) -> bool:
        body = bytearray(self._body)
        body[len(body) // 2] ^= 4
        self._body = bytes(body)
        return False

    def _fail_clip(self) -> bool:
        self._body = self._body[: len(self._body) // 2]
        return False

    def _fail_flip(self) -> bool:
        body = bytearray(self._answer.body)
        if body:
            offset = self._settings.get("at", len(body) // 2)
            body[offset] ^= 1 << offset % 8
        self._answer = self._answer._replace(body=bytes(body))
        return False

    def _fail_short(self) -> bool:
        status, headers, body = self._answer
        start = (self._find_range() or (0, None))[0]
        half = body[: len(body) // 2]
        total = headers.get("Content-Range", "/*").rpartition("/")[2]
        headers["Content-Range"] = f"bytes {start}-{start + len(half) - 1}/{total}"
        self._answer = _Answer(status, headers, half)
        return False

    def _fail_cut(self) -> bool:
        self._send(self._answer, sent=len(self._answer.body) // 2)
        return True

    def _fail_drop(self) -> bool:
        self._note(None, 0)
        return self._hang_up()

    _fail_lose = _fail_drop

    def _fail_hang(self) -> bool:
        self._note(None, 0)
        self.server.web.closing.wait(self._settings.get("seconds"))
        return self._hang_up()

    def _fail_slow(self) -> bool:
        self._send(self._answer, rate=self._settings["rate"])
        return True

    def _fail_status(self) -> bool:
        headers = {}
        if "retry_after" in self._settings:
            headers["Retry-After"] = str(self._settings["retry_after"])
        self._answer = _Answer(self._settings["code"], headers, self._settings.get("body", b""))
        return False

    def _fail_expired(self) -> bool:
        self._answer = _Answer(403, {"Content-Type": "application/xml"}, EXPIRED)
        return False

    def _fail_redirect(self) -> bool:
        location = f"{self.server.web.url}{_ELSEWHERE}{self.path}"
        self._answer = _Answer(302, {"Location": location}, b"")
        return False

    def _fail_whole(self) -> bool:
        self._answer = self._look_up(ranged=False)
        return False
