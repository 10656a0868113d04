"""Buckets and web servers as stores, read and written by obstore.

obstore starts threads when it is first used. A child that is forked after that hangs as soon as
it uses obstore itself. So a process that forks later, as training with DataLoader workers does,
must not use these stores: it starts another program that does.
"""

import asyncio
import os
import re
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import urlsplit

from fieldslab.schemas.errors import (
    MissingLibrary,
    ObjectNotFound,
    OutputDenied,
    OutputError,
    OutputExists,
    UsageError,
)
from fieldslab.schemas.optiontext import mark_option
from fieldslab.schemas.stores.failures import EndsEarly, diagnose_reading, diagnose_writing
from fieldslab.schemas.stores.retries import Attempts, RetryPolicy, parse_retry_config
from fieldslab.schemas.stores.store import (
    PART,
    Data,
    ObjectInfo,
    Place,
    Store,
    check_key,
    make_changed_error,
)
from fieldslab.schemas.urls import get_scheme

_PARTS = 3
"""Parts of an object that are uploaded at a time."""

_CREDENTIALS = re.compile("access_key_id|credential_provider|skip_signature", re.IGNORECASE)

_T = TypeVar("_T")


class RemoteStore(Store):
    """A bucket (S3, Google, Azure) or a web server.

    Do not use it in a process that forks later: see the module.
    """

    def __init__(self, place: Place, storage_options: Mapping[str, Any] | None = None) -> None:
        """`storage_options` are what `obstore.store.from_url` takes; nothing is sent yet.

        Raises
        ------
        MissingLibrary
            obstore is not here, or boto3, which reads AWS profiles.
        UsageError
            The URL names no bucket or server, or obstore does not take it or an option.
        """
        super().__init__(place, storage_options)
        scheme = get_scheme(os.fspath(place))
        if not urlsplit(os.fspath(place)).netloc.rpartition("@")[2]:
            raise UsageError(
                "the URL names no bucket or server",
                file=f"{scheme}://",
                expected=f"{scheme}://BUCKET/NAME",
            )
        options = dict(storage_options or {})
        self._policy = RetryPolicy()
        if options.get("retry_config") is not None:
            self._policy = parse_retry_config(options.pop("retry_config"))
        self._is_web = scheme in ("http", "https")
        options["client_options"] = {
            "allow_http": scheme == "http" or is_http_endpoint(options),
            **(options.get("client_options") or {}),
        }
        try:
            import obstore
        except ImportError as error:
            raise MissingLibrary(
                "buckets and web servers are read by obstore, which is not installed",
                file=self.url,
                hint="Install it: pip install 'obstore>=0.8'",
            ) from error
        names = [*options, *(options.get("config") or {})]
        if scheme in ("s3", "s3a") and not any(map(_CREDENTIALS.search, names)):
            options |= _find_profile()
        self._obstore: Any = obstore
        self._errors = (obstore.exceptions.BaseError, OSError, ValueError)
        # Reading goes by our own attempts, which also cover answers that break off; the parts of
        # an upload only obstore can send again.
        self._once = _build(self.url, os.fspath(place), options, RetryPolicy(max_retries=0))
        self._retrying = _build(self.url, os.fspath(place), options, self._policy)

    @property
    def can_write(self) -> bool:  # type: ignore[override]
        """False for web servers."""
        return not self._is_web

    @property
    def can_list(self) -> bool:  # type: ignore[override]
        """False for web servers."""
        return not self._is_web

    def read(self, key: str, start: int = 0, stop: int | None = None) -> memoryview:
        """Read bytes of an object; see `Store.read`."""
        check_key(key)
        if stop is not None and stop <= start:
            return memoryview(b"")
        if stop is None:
            options = {"range": {"offset": start}} if start else None
            get = self._obstore.get
            return self._retry(
                key, lambda: memoryview(get(self._once, key, options=options).bytes())
            )
        read, size = self._obstore.get_range, stop - start
        return self._retry(key, lambda: _take(read(self._once, key, start=start, end=stop), size))

    def read_with_info(self, key: str, start: int, stop: int) -> tuple[memoryview, ObjectInfo]:
        """Read bytes of an object, along with its size and version: one request tells both."""
        check_key(key)
        if stop <= start:
            return memoryview(b""), self.get_info(key)

        def read() -> tuple[memoryview, ObjectInfo]:
            result = self._obstore.get(self._once, key, options={"range": (start, stop)})
            return _take(result.bytes(), stop - start), _make_info(key, result.meta)

        return self._retry(key, read)

    def read_small(self, key: str, most: int) -> memoryview | None:
        """Read all of an object, whose size the answer tells; see `Store.read_small`."""
        check_key(key)

        def read() -> memoryview | None:
            result = self._obstore.get(self._once, key)
            return memoryview(result.bytes()) if result.meta["size"] <= most else None

        return self._retry(key, read)

    async def read_range(self, key: str, start: int, stop: int) -> memoryview:
        """Read bytes of an object in an event loop; many ranges at a time."""
        check_key(key)
        if stop <= start:
            return memoryview(b"")
        read: Callable[..., Awaitable[Any]] = self._obstore.get_range_async
        attempts = Attempts(self._policy, self.locate(key))
        while True:
            try:
                return _take(await read(self._once, key, start=start, end=stop), stop - start)
            except self._errors as error:
                failure = diagnose_reading(error)
            await asyncio.sleep(attempts.note(failure))

    def get_info(self, key: str) -> ObjectInfo:
        """Return size and version of an object."""
        check_key(key)
        return _make_info(key, self._retry(key, lambda: self._obstore.head(self._once, key)))

    def list_keys(self, prefix: str = "") -> Iterator[ObjectInfo]:
        """List the objects of a bucket, or of a folder in it."""
        if prefix:
            check_key(prefix)
        if not self.can_list:
            raise UsageError("a web server cannot list what it holds", file=self.url)
        batches = iter(self._obstore.list(self._retrying, prefix or None, chunk_size=1000))
        while batch := self._retry(prefix, lambda: next(batches, None)):
            yield from (_make_info(meta["path"], meta) for meta in batch)

    def list_folder(self, folder: str = "") -> tuple[list[ObjectInfo], list[str]]:
        """List the objects directly in a folder, and the names of the folders in it."""
        if folder:
            check_key(folder)
        if not self.can_list:
            raise UsageError("a web server cannot list what it holds", file=self.url)
        listing = self._retry(
            folder, lambda: self._obstore.list_with_delimiter(self._once, folder or None)
        )
        names = [prefix.rstrip("/").rpartition("/")[2] for prefix in listing["common_prefixes"]]
        return [_make_info(meta["path"], meta) for meta in listing["objects"]], names

    def write(
        self, key: str, data: Data | Path | Iterable[Data], *, if_absent: bool = False
    ) -> None:
        """Write an object; see `Store.write`. What is large, or comes in pieces, goes in parts."""
        source: Data | Path | _Pieces
        if isinstance(data, bytes | bytearray | memoryview | Path):
            source = data
        else:
            source = b"".join(data) if if_absent else _Pieces(data)
        mode = "create" if if_absent else "overwrite"
        try:
            self._change(
                key, self._obstore.put, source, mode=mode, chunk_size=PART, max_concurrency=_PARTS
            )
        except OutputError:
            if isinstance(source, _Pieces) and source.error is not None:
                raise source.error from None
            raise

    def replace(self, key: str, data: Data, expected: Data) -> None:
        """Replace an object by its ETag; see `Store.replace`."""
        check_key(key)

        def read() -> tuple[dict[str, Any], bytes]:
            result = self._obstore.get(self._once, key)
            return dict(result.meta), bytes(result.bytes())

        try:
            meta, content = self._retry(key, read)
        except ObjectNotFound as error:
            raise make_changed_error(self.locate(key)) from error
        if content != expected:
            raise make_changed_error(self.locate(key))
        mode = {name: meta[name] for name in ("e_tag", "version") if meta.get(name)}
        try:
            self._change(key, self._obstore.put, data, mode=mode)
        except OutputExists as error:
            raise make_changed_error(self.locate(key)) from error

    def delete(self, key: str) -> None:
        """Delete an object."""
        with suppress(ObjectNotFound):
            self._change(key, self._obstore.delete)

    def _retry(self, key: str, request: Callable[[], _T]) -> _T:
        attempts = Attempts(self._policy, self.locate(key))
        while True:
            try:
                return request()
            except self._errors as error:  # what it says stays here, as it repeats what was sent
                failure = diagnose_reading(error)
            time.sleep(attempts.note(failure))

    def _change(self, key: str, request: Callable[..., object], *args: Any, **options: Any) -> None:
        check_key(key)
        if not self.can_write:
            raise OutputDenied(
                "a web server can only be read",
                file=self.locate(key),
                hint="Write to a bucket or a directory.",
            )
        try:
            request(self._retrying, key, *args, **options)
            return
        except self._errors as error:
            failure, attempts = diagnose_writing(error)
        raise failure.make_error(self.locate(key), attempts)


def _take(data: Any, size: int) -> memoryview:
    """The bytes of an answer. Raises EndsEarly for fewer than `size`."""
    view = memoryview(data)
    if len(view) != size:
        raise EndsEarly
    return view


class _Pieces:
    """Pieces for obstore: taken in a thread of their own, since reading them may use obstore, too.

    obstore forgets what an iterable raised; `error` is that.
    """

    def __init__(self, pieces: Iterable[Data]) -> None:
        self.error: BaseException | None = None
        self._pieces = pieces

    def __iter__(self) -> Iterator[Data]:
        pieces = iter(self._pieces)
        with ThreadPoolExecutor(1, "fieldslab-pieces") as thread:
            try:
                while (piece := thread.submit(next, pieces, None).result()) is not None:
                    yield piece
            except BaseException as error:
                self.error = error
                raise


def _build(url: str, place: str, options: Mapping[str, Any], policy: RetryPolicy) -> Any:
    """A store of obstore. Raises UsageError, without the values of options."""
    from obstore import store
    from obstore.exceptions import BaseError

    build: Any = store.from_url
    try:
        return build(place, retry_config=policy.as_retry_config(), **options)
    except (BaseError, OSError, ValueError, TypeError) as error:
        reason = type(error).__name__
    raise UsageError(
        f"obstore refuses the URL or one of {mark_option('storage_options')} ({reason})",
        file=url,
        found=", ".join(options),
    )


def is_http_endpoint(options: Mapping[str, Any]) -> bool:
    """Return whether the endpoint of options, or of the environment, has no encryption."""
    flat = {**(options.get("config") or {}), **options}
    endpoints = [value for name, value in flat.items() if "endpoint" in name.lower()]
    names = ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_ENDPOINT", "AZURE_STORAGE_ENDPOINT")
    endpoints += [os.environ.get(name, "") for name in names]
    return any(str(endpoint).startswith("http://") for endpoint in endpoints)


def _find_profile() -> dict[str, Any]:
    """Options by the AWS profile of the environment or the user's files, which boto3 reads.

    Raises MissingLibrary where a profile was named, and boto3 is not here.
    """
    profile = os.environ.get("AWS_PROFILE")
    files = Path(os.environ.get("AWS_SHARED_CREDENTIALS_FILE", "~/.aws/credentials")).expanduser()
    if not profile and ("AWS_ACCESS_KEY_ID" in os.environ or not files.is_file()):
        return {}
    if find_spec("boto3") is None:
        if not profile:
            return {}
        raise MissingLibrary(
            "the AWS profile of AWS_PROFILE is read by boto3, which is not installed",
            hint="Install it: pip install boto3",
        )
    from botocore.exceptions import BotoCoreError
    from obstore.auth.boto3 import Boto3CredentialProvider

    try:
        return {"credential_provider": Boto3CredentialProvider()}
    except (BotoCoreError, OSError, ValueError) as error:
        reason = type(error).__name__
    raise UsageError(
        f"the AWS profile cannot be used ({reason})",
        found=profile,
        hint="Check AWS_PROFILE and the files in ~/.aws.",
    )


def _make_info(key: str, meta: Mapping[str, Any]) -> ObjectInfo:
    version = meta.get("e_tag") or meta.get("version") or meta.get("last_modified")
    return ObjectInfo(key, meta["size"], None if version is None else str(version))
