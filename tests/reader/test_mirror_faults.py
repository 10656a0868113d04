"""Servers that fail, readers and helpers that are killed: a short `make campaign-remote`."""

import random
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.remote_faults import kill_readers, make_subject, read_through_faults
from tests.servers.web import WebServer

# Small slabs are read in the order `Near` here; that they are not shuffled is no matter.
pytestmark = pytest.mark.filterwarnings("ignore:Near")


def test_no_fault_is_ever_delivered(tmp_path: Path, serve: Callable[..., WebServer]) -> None:
    """However a server fails, readers get right bytes or an error with a name."""
    subject = make_subject(tmp_path)
    server = serve(subject.path)
    counts = read_through_faults(subject, server, tmp_path / "cache", random.Random(32))
    assert counts["flip"] > 10


def test_whoever_is_killed_leaves_no_lie(tmp_path: Path, serve: Callable[..., WebServer]) -> None:
    """After `kill -9` of a trainer or its helper, the next reader gets right bytes."""
    subject = make_subject(tmp_path)
    server = serve(subject.path)
    for seed in (1, 2):
        kill_readers(subject, server, tmp_path / "cache", random.Random(seed))
