"""An S3 server by moto, in a process of its own that ends with this one."""

import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import count
from typing import Any
from xml.etree import ElementTree

_PROGRAM = """
import logging, sys
from moto.server import ThreadedMotoServer
logging.disable()
server = ThreadedMotoServer("127.0.0.1", 0, verbose=False)
server.start()
print(*server.get_host_and_port(), flush=True)
sys.stdin.read()
"""
KEY, SECRET = "AKIDTESTING", "a-secret-that-no-message-repeats"

_numbers = count()


@dataclass(frozen=True)
class Bucket:
    """A bucket of its own.

    Attributes
    ----------
    name
        Its name, as in `s3://NAME`.
    endpoint
        URL of the server.
    options
        `storage_options` for it.
    """

    name: str
    endpoint: str
    options: dict[str, Any] = field(default_factory=dict)

    @property
    def url(self) -> str:
        """URL of the bucket."""
        return f"s3://{self.name}"

    def list_uploads(self) -> list[str]:
        """List the keys of uploads in parts that were neither finished nor aborted."""
        with urllib.request.urlopen(f"{self.endpoint}/{self.name}?uploads") as answer:
            tree = ElementTree.fromstring(answer.read())
        return [element.text or "" for element in tree.iter() if element.tag.endswith("Key")]


@contextmanager
def run_s3_server() -> Iterator[str]:
    """Run a server for a `with` block: the URL of its endpoint."""
    command = [sys.executable, "-P", "-c", _PROGRAM]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            host, port = process.stdout.readline().split()
            yield f"http://{host}:{port}"
        finally:
            process.stdin.close()
            process.kill()


def create_bucket(endpoint: str) -> Bucket:
    """Create a bucket."""
    name = f"bucket-{next(_numbers)}"
    urllib.request.urlopen(urllib.request.Request(f"{endpoint}/{name}", method="PUT")).close()
    options = {
        "endpoint": endpoint,
        "region": "us-east-1",
        "access_key_id": KEY,
        "secret_access_key": SECRET,
    }
    return Bucket(name, endpoint, options)
