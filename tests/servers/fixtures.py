"""Fixtures of servers, for every test; each starts when a test asks for it."""

import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from tests.servers.s3 import Bucket, create_bucket, run_s3_server
from tests.servers.web import WebServer, run_web_server


@pytest.fixture
def _no_credentials(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """An environment without what whoever runs the tests may have set."""
    for name in os.environ:
        if name.startswith(("AWS_", "AZURE_", "GOOGLE_")):
            monkeypatch.delenv(name)
    for name in ("AWS_SHARED_CREDENTIALS_FILE", "AWS_CONFIG_FILE"):
        monkeypatch.setenv(name, str(tmp_path / "no-such-file"))


@pytest.fixture(scope="session")
def s3_server() -> Iterator[str]:
    """The endpoint of an S3 server, one for each process that runs tests."""
    with run_s3_server() as endpoint:
        yield endpoint


@pytest.fixture
def bucket(s3_server: str, _no_credentials: None) -> Bucket:
    """A new bucket on the S3 server."""
    return create_bucket(s3_server)


@pytest.fixture
def serve(_no_credentials: None) -> Iterator[Callable[..., WebServer]]:
    """A function that serves a directory, or what is `upstream`, until the test ends."""
    with ExitStack() as servers:
        yield lambda folder=None, upstream=None: servers.enter_context(
            run_web_server(folder, upstream)
        )
