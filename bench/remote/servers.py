"""The servers: nginx, moto's S3, and the slow network before them, each a process of its own."""

import json
import os
import shutil
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from fieldslab.schemas.errors import MissingLibrary

PATIENCE = 20.0
"""Seconds in which a server must answer."""

_CONFIGURATION = """
{user}daemon off; worker_processes 1; pid {place}/pid; error_log {place}/errors;
events {{ worker_connections 1024; }}
http {{
  access_log off; sendfile on; tcp_nodelay on; keepalive_requests 1000000;
  client_body_temp_path {place}/body; proxy_temp_path {place}/proxy;
  fastcgi_temp_path {place}/fastcgi; uwsgi_temp_path {place}/uwsgi; scgi_temp_path {place}/scgi;
  server {{ listen 127.0.0.1:{port}; root {folder};
    location = /{bucket} {{ try_files /{listing} =404; }}
  }}
}}
"""
LISTED, LISTING = "lance", "listing.xml"
"""A folder that nginx lists as a bucket of S3, as Lance needs it, and the file with the list."""
_MOTO = """
import logging, sys
from moto.server import ThreadedMotoServer
logging.disable()
server = ThreadedMotoServer("127.0.0.1", 0, verbose=False)
server.start()
print(server.get_host_and_port()[1], flush=True)
sys.stdin.read()
"""


class Traffic(NamedTuple):
    """Requests, and bytes of answers."""

    requests: int
    bytes: int


class SlowNetwork:
    """The proxy's process.

    Attributes
    ----------
    address
        `http://HOST:PORT`, where clients connect.
    """

    def __init__(self, process: "subprocess.Popen[str]") -> None:
        assert process.stdout is not None
        self._process = process
        self.address = f"http://127.0.0.1:{process.stdout.readline().strip()}"
        self._seen = Traffic(0, 0)

    def set(self, latency: float, bandwidth: float | None = None) -> Traffic:
        """Set seconds a request and bytes a second; return the traffic since the last call."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps([latency, bandwidth]) + "\n")
        self._process.stdin.flush()
        seen, self._seen = self._seen, Traffic(*json.loads(self._process.stdout.readline()))
        return Traffic(self._seen.requests - seen.requests, self._seen.bytes - seen.bytes)


def find_nginx() -> str:
    """Return the program. Raises MissingLibrary."""
    program = shutil.which("nginx") or shutil.which("nginx", path="/usr/sbin:/usr/local/sbin")
    if program is None:
        raise MissingLibrary(
            "nginx is not installed, which serves the slabs that are measured",
            hint="apt install nginx-light, as root; it need not run.",
        )
    return program


@contextmanager
def run_nginx(folder: Path, place: Path) -> Iterator[int]:
    """Serve a folder for a `with` block: the port. `place` holds the server's own files."""
    place.mkdir()
    port = find_free_port()
    configuration = place / "nginx.conf"
    user = "" if os.getuid() else "user root; "  # else nginx reads as nobody
    text = _CONFIGURATION.format(
        user=user, place=place, port=port, folder=folder, bucket=LISTED, listing=LISTING
    )
    configuration.write_text(text)
    command = [find_nginx(), "-c", str(configuration), "-e", str(place / "errors")]
    with run_program(command):
        wait_for(port)
        yield port


@contextmanager
def run_s3() -> Iterator[int]:
    """Run moto's S3 server for a `with` block: the port. It keeps objects in memory."""
    with run_program([sys.executable, "-P", "-c", _MOTO]) as process:
        assert process.stdout is not None
        yield int(process.stdout.readline())


@contextmanager
def run_network(port: int) -> Iterator[SlowNetwork]:
    """Run the proxy before a server for a `with` block."""
    command = [sys.executable, "-P", "-m", "fieldslab.bench.remote.proxy", str(port)]
    with run_program(command) as process:
        yield SlowNetwork(process)


@contextmanager
def run_program(command: list[str]) -> Iterator["subprocess.Popen[str]"]:
    """Run a program that ends with the `with` block."""
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            yield process
        finally:
            process.terminate()


def upload(folder: Path, port: int, bucket: str) -> None:
    """Create a bucket, and put all files of a folder into it."""
    base = f"http://127.0.0.1:{port}/{bucket}"
    _put(base, b"")
    for path in sorted(folder.rglob("*")):
        if path.is_file():
            _put(f"{base}/{path.relative_to(folder)}", path.read_bytes())


def write_listing(folder: Path, prefix: str) -> None:
    """Write the list of objects below a prefix that S3 would answer with."""
    items = "".join(
        f"<Contents><Key>{path.relative_to(folder / LISTED)}</Key>"
        "<LastModified>2020-01-01T00:00:00.000Z</LastModified>"
        f'<ETag>"0"</ETag><Size>{path.stat().st_size}</Size></Contents>'
        for path in sorted((folder / LISTED / prefix).iterdir())
    )
    text = f"<ListBucketResult><IsTruncated>false</IsTruncated>{items}</ListBucketResult>"
    (folder / LISTING).write_text(text)


def find_free_port() -> int:
    """Return a port that nothing uses."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


def wait_for(port: int) -> None:
    """Wait until a server accepts connections. Raises TimeoutError."""
    end = time.monotonic() + PATIENCE
    while time.monotonic() < end:
        try:
            socket.create_connection(("127.0.0.1", port)).close()
            return
        except ConnectionRefusedError:
            time.sleep(0.02)
    raise TimeoutError(f"no server at port {port} within {PATIENCE:.0f} s")


def _put(url: str, data: bytes) -> None:
    headers = {"Content-Type": "application/octet-stream"}  # moto parses what may be a form: hours
    request = urllib.request.Request(url, data, headers, method="PUT")
    urllib.request.urlopen(request, timeout=PATIENCE).close()
