"""Stores that fail: what is tried again, what becomes an error, and what no error repeats."""

import asyncio
import json
import logging
import pickle
import socket
import traceback
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.naming import case
from tests.servers.s3 import KEY, SECRET, Bucket
from tests.servers.web import WebServer

from fieldslab.schemas.errors import (
    AccessDenied,
    FieldslabError,
    MissingLibrary,
    ObjectNotFound,
    OutputDenied,
    OutputError,
    RemoteUnreadable,
    UsageError,
)
from fieldslab.schemas.stores.retries import Attempts, Failure, RetryPolicy, parse_retry_config
from fieldslab.schemas.stores.store import Store, open_store

DATA = np.random.default_rng(1).bytes(300_000)
KEYS = "shard-00000/a.npy"
QUICK = {
    "max_retries": 4,
    "backoff": {"init_backoff": 0.01, "max_backoff": timedelta(seconds=0.02)},
}
OPTIONS: dict[str, Any] = {"retry_config": QUICK}
IMPATIENT: dict[str, Any] = {**OPTIONS, "client_options": {"timeout": "300ms"}}


@pytest.fixture
def server(tmp_path: Path, serve: Callable[..., WebServer]) -> WebServer:
    """A web server with one object."""
    path = tmp_path / KEYS
    path.parent.mkdir()
    path.write_bytes(DATA)
    return serve(tmp_path)


@pytest.fixture
def store(server: WebServer) -> Store:
    """The server as a store that tries again at once."""
    return open_store(server.url, OPTIONS)


def list_readers(store: Store) -> list[Callable[[], memoryview]]:
    """Functions that each read the same range, by another method."""
    return [
        lambda: store.read(KEYS, 1000, 200_000),
        lambda: asyncio.run(store.read_range(KEYS, 1000, 200_000)),
        lambda: store.read(KEYS, 1000)[: 200_000 - 1000],
    ]


def test_a_web_server_is_read(store: Store, server: WebServer) -> None:
    """Ranges, whole objects and sizes come from a plain web server; it takes nothing."""
    assert [read() for read in list_readers(store)] == [DATA[1000:200_000]] * 3
    assert store.read(KEYS) == DATA
    assert store.get_info(KEYS).size == len(DATA)
    assert server.count_bytes(KEYS) < 4 * len(DATA)
    with pytest.raises(OutputDenied, match="only be read"):
        store.write("x", b"")
    with pytest.raises(UsageError, match="cannot list"):
        list(store.list_keys())
    with pytest.raises(ObjectNotFound):
        store.read("nothing")
    assert not store.can_write
    assert not store.can_list


@pytest.mark.parametrize(
    ("kind", "settings"),
    [
        ("status", {"code": 503, "retry_after": 1}),
        ("status", {"code": 500}),
        ("status", {"code": 429}),
        ("status", {"code": 408}),
        ("cut", {}),
        ("drop", {}),
        ("hang", {}),
        ("slow", {"rate": 100}),
        ("redirect", {}),
    ],
)
def test_what_passes_is_tried_again(server: WebServer, kind: str, settings: dict[str, Any]) -> None:
    """Storms, breaks, silence and slow answers cost attempts, and the bytes are right."""
    store = open_store(server.url, IMPATIENT if kind in ("hang", "slow") else OPTIONS)
    for read in list_readers(store):
        server.inject(kind, times=2, **settings)
        assert read() == DATA[1000:200_000]
        server.heal()


@pytest.mark.parametrize(
    ("kind", "settings", "status", "attempts", "words"),
    [
        ("status", {"code": 503, "body": b"<Code>SlowDown</Code>"}, 503, 5, r"fails \(SlowDown\)"),
        ("status", {"code": 429}, 429, 5, "refuses"),
        ("status", {"code": 400}, 400, 1, "refuses"),
        ("cut", {}, None, 5, "connection broke"),
        ("drop", {}, None, 5, "connection broke"),
        ("hang", {}, None, 5, "no answer in time"),
        ("slow", {"rate": 100}, None, 5, "connection broke|no answer in time"),
        ("short", {}, None, 3, "fewer bytes"),
        ("whole", {}, None, 1, "no ranges"),
    ],
)
def test_what_stays_becomes_an_error(
    server: WebServer,
    kind: str,
    settings: dict[str, Any],
    status: int | None,
    attempts: int,
    words: str,
) -> None:
    """After a bounded number of attempts the error names URL, status and attempts."""
    store = open_store(server.url, IMPATIENT if kind in ("hang", "slow") else OPTIONS)
    server.inject(kind, times=1000, **settings)
    for read in list_readers(store)[:2]:
        before = server.count()
        with pytest.raises(RemoteUnreadable, match=words) as caught:
            read()
        assert server.count() == before + attempts
        context = caught.value.context
        assert context["file"] == f"{server.url}/{KEYS}"
        assert (context.get("status"), context["attempts"]) == (status, attempts)
        assert caught.value.as_dict()["attempts"] == attempts


def test_expired_credentials_are_told_at_once(store: Store, server: WebServer) -> None:
    """A 403 is AccessDenied, which names the error of S3, after one attempt."""
    server.inject("expired", times=10)
    with pytest.raises(AccessDenied, match="ExpiredToken") as caught:
        store.read(KEYS, 0, 10)
    assert (caught.value.context["status"], caught.value.context["attempts"]) == (403, 1)
    assert server.count() == 1


def test_a_server_that_is_not_there() -> None:
    """A port where nobody listens is RemoteUnreadable, not a wait without end."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{free.getsockname()[1]}/x.slab"
    with pytest.raises(RemoteUnreadable, match="cannot be reached") as caught:
        open_store(url, OPTIONS).read("manifest.json")
    assert caught.value.context["attempts"] == 5


def test_storms_while_writing(bucket: Bucket, serve: Callable[..., WebServer]) -> None:
    """Uploads, in one piece and in parts, survive a storm, or become an error of output."""
    proxy = serve(upstream=bucket.endpoint)
    store = open_store(bucket.url, {**bucket.options, **OPTIONS, "endpoint": proxy.url})
    for data in (DATA, [bytes(6 << 20)] * 3):
        for method in ("PUT", "POST"):
            proxy.inject("status", method=method, code=503, times=2)
        store.write("a", data)
        assert store.read("a") == (data if isinstance(data, bytes) else b"".join(data))
        proxy.heal()
    proxy.inject("status", method="PUT", code=503, times=100)
    with pytest.raises(OutputError, match="fails") as caught:
        store.write("b", DATA)
    assert (caught.value.context["status"], caught.value.context["attempts"]) == (503, 5)
    with pytest.raises(OutputError, match="fails"):
        store.write("b", [bytes(6 << 20)] * 3)
    proxy.heal()
    # More than one: a part of the upload that failed may still be on its way.
    proxy.inject("expired", method="PUT", times=100)
    with pytest.raises(OutputDenied, match="ExpiredToken"):
        store.write("b", DATA)
    assert [info.key for info in store.list_keys()] == ["a"]
    assert bucket.list_uploads() == []


def test_the_environment_configures_buckets(
    bucket: Bucket, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The variables of AWS work without options, and so does a profile, by boto3."""
    monkeypatch.setenv("AWS_ENDPOINT_URL", bucket.endpoint)
    monkeypatch.setenv("AWS_REGION", "us-east-1")
    with monkeypatch.context() as environment:
        environment.setenv("AWS_ACCESS_KEY_ID", KEY)
        environment.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
        store = open_store(bucket.url)
        store.write("a", DATA)
        assert store.read("a") == DATA
    profiles = tmp_path / "credentials"
    profiles.write_text(
        f"[training]\naws_access_key_id = {KEY}\naws_secret_access_key = {SECRET}\n"
    )
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(profiles))
    monkeypatch.setenv("AWS_PROFILE", "training")
    assert open_store(bucket.url).read("a") == DATA
    monkeypatch.setenv("AWS_PROFILE", "unknown")
    with pytest.raises(UsageError, match="AWS profile"):
        open_store(bucket.url)


def test_busy_servers_are_left_alone_for_seconds() -> None:
    """After 429 and 503 the pause is a second at least, and grows, unless options say otherwise."""
    policy = RetryPolicy()
    for status, least in ((503, 1.0), (429, 1.0), (500, 0.05), (None, 0.05)):
        attempts = Attempts(policy, "x")
        failure = Failure(RemoteUnreadable, "fails", status=status, attempts=None)
        pauses = [attempts.note(failure) for _ in range(3)]
        with case(status):
            assert all(least * 2**k <= pause <= 2 * least * 2**k for k, pause in enumerate(pauses))
    quick = parse_retry_config({"backoff": {"init_backoff": 0.01}})
    assert quick.compute_pause(1, busy=True) <= 0.01
    assert parse_retry_config({"max_retries": 2}).compute_pause(1, busy=True) >= 1


def test_unknown_options_are_refused_without_their_values(bucket: Bucket) -> None:
    """An option that obstore does not know is a UsageError with names only."""
    options: list[dict[str, Any]] = [
        {"secret_acces_key": SECRET},
        {"client_options": {"tiemout": SECRET}},
        {"retry_config": {"max_retrys": 3}},
        {"retry_config": {"max_retries": "many"}},
    ]
    for wrong in options:
        with case(wrong), pytest.raises(UsageError, match="storage_options") as caught:
            open_store(bucket.url, {**bucket.options, **wrong})
        assert SECRET not in str(caught.value)


def test_without_obstore_the_message_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    """Buckets need obstore; directories do not."""
    monkeypatch.setitem(__import__("sys").modules, "obstore", None)
    with pytest.raises(MissingLibrary, match=r"pip install 'obstore"):
        open_store("s3://bucket/x.slab")


def list_calls(store: Store) -> dict[str, Callable[[], object]]:
    """A call that sends a request of each method of HTTP."""
    return {
        "GET": lambda: store.read("a", 0, 10),
        "HEAD": lambda: store.get_info("a"),
        "PUT": lambda: store.write("a", DATA),
        "DELETE": lambda: store.delete("a"),
    }


def test_no_credential_is_repeated(
    bucket: Bucket, serve: Callable[..., WebServer], caplog: pytest.LogCaptureFixture
) -> None:
    """No error, repr or log has a secret in it: not of options, nor of URLs, nor of answers."""
    caplog.set_level(logging.DEBUG)
    proxy = serve(upstream=bucket.endpoint)
    token = "a-token-that-no-message-repeats"
    options = {**bucket.options, **OPTIONS, "endpoint": proxy.url, "session_token": token}
    host = proxy.url.removeprefix("http://")
    stores = [
        open_store(bucket.url, options),
        open_store(f"http://{KEY}:{SECRET}@{host}/x.slab?sig={token}", OPTIONS),
        open_store(
            f"http://{host}/x.slab",
            {
                **OPTIONS,
                "client_options": {
                    "default_headers": {"Authorization": f"Bearer {token}"},
                    "timeout": "500ms",
                },
            },
        ),
    ]
    faults: list[tuple[str, dict[str, Any]]] = [
        ("expired", {}),
        ("drop", {}),
        ("cut", {}),
        ("short", {}),
        ("status", {"code": 503, "body": f"{KEY} {SECRET} {token}".encode()}),
        ("status", {"code": 400, "body": f"{KEY} {SECRET} {token}".encode()}),
        ("status", {"code": 404, "body": f"{KEY} {SECRET} {token}".encode()}),
    ]
    texts = [repr(store) + str(store) + store.url + store.locate("a") for store in stores]
    for store in stores:
        for kind, settings in faults:
            for method, call in list_calls(store).items():
                proxy.inject(kind, method=method, times=100, **settings)
                try:
                    call()
                except FieldslabError as error:
                    texts += [
                        "".join(traceback.format_exception(error)),
                        repr(error),
                        json.dumps(error.as_dict()),
                        repr(pickle.dumps(error)),
                        repr(vars(error)),
                        repr([error.__cause__, error.__context__]),
                    ]
                proxy.heal()
    assert len(texts) > 100
    for text in [*texts, caplog.text]:
        for secret in (KEY, SECRET, token):
            assert secret not in text
