"""Datasets of the Hugging Face Hub as stores, read by huggingface_hub.

    hf://datasets/OWNER/NAME/path            the branch `main`
    hf://datasets/OWNER/NAME@REVISION/path   a branch, a tag, a commit, or `refs/...`

A store finds the commit of its revision once, and reads that commit: what is pushed meanwhile does
not change it.
"""

import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from threading import Lock
from typing import Any, ClassVar, TypeVar
from urllib.parse import quote, unquote

from fieldslab.schemas.errors import (
    AccessDenied,
    MissingLibrary,
    ObjectNotFound,
    OutputDenied,
    RemoteUnreadable,
    UsageError,
)
from fieldslab.schemas.optiontext import mark_option
from fieldslab.schemas.stores.failures import SHORT_ATTEMPTS, is_passing
from fieldslab.schemas.stores.retries import Attempts, Failure, RetryPolicy, parse_retry_config
from fieldslab.schemas.stores.store import Data, ObjectInfo, Place, Store, check_key

_SCHEME = "hf://"
_EXPECTED = "hf://datasets/OWNER/NAME/path, or hf://datasets/OWNER/NAME@REVISION/path"
_OPTIONS = ("endpoint", "retry_config", "token")
_SIGN_IN = (
    "Check the name and the revision. For private and gated datasets, put a token into HF_TOKEN or "
    "run `hf auth login`."
)
_TRY = "Try again later; if it stays so, look at https://status.huggingface.co and at the network."

_TIMEOUT = 60
"""Seconds without an answer."""

_T = TypeVar("_T")


def split_hub_url(url: str) -> tuple[str, str]:
    """Split a URL into that of the dataset and a path in it. Raises UsageError."""
    parts = url.removeprefix(_SCHEME).split("/")
    if parts[0] != "datasets" or not all(parts[:3]) or len(parts) < 3 or parts[2].startswith("@"):
        raise UsageError("not the URL of a dataset of the Hub", file=url, expected=_EXPECTED)
    revision = parts[2].partition("@")[2]
    length = 5 if revision == "refs" else 3  # such as refs/pr/7 and refs/convert/parquet
    dataset = "/".join(parts[:2]) + "/" + quote("/".join(parts[2:length]), safe="@%")
    return _SCHEME + dataset, "/".join(parts[length:])


class HubStore(Store):
    """A dataset of the Hub, or a folder in it, to be read."""

    can_write: ClassVar[bool] = False

    def __init__(self, place: Place, storage_options: Mapping[str, Any] | None = None) -> None:
        """Take the options `endpoint`, `token` and `retry_config`; nothing is sent yet.

        Without them, HF_ENDPOINT and HF_TOKEN of the environment count, and the token of
        `hf auth login`.

        Raises
        ------
        MissingLibrary
            huggingface_hub is not here.
        UsageError
            The URL names no dataset, or there are other options.
        """
        super().__init__(place, storage_options)
        dataset, folder = split_hub_url(os.fspath(place).rstrip("/"))
        self._folder = f"{folder}/" if folder else ""
        self._repo, _, revision = dataset.removeprefix(f"{_SCHEME}datasets/").partition("@")
        self._revision = unquote(revision) or None
        options = dict(storage_options or {})
        if unknown := [name for name in options if name not in _OPTIONS]:
            raise UsageError(
                f"{mark_option('storage_options')}: the Hub does not take these",
                file=self.url,
                expected=", ".join(_OPTIONS),
                found=", ".join(unknown),
            )
        self._policy = RetryPolicy()
        if options.get("retry_config") is not None:
            self._policy = parse_retry_config(options["retry_config"])
        try:
            import huggingface_hub
            from huggingface_hub import utils
        except ImportError as error:
            raise MissingLibrary(
                "datasets of the Hub are read by huggingface_hub, which is not installed",
                file=self.url,
                hint="Install it: pip install 'huggingface_hub>=0.30'",
            ) from error
        self._endpoint = options.get("endpoint") or os.environ.get("HF_ENDPOINT") or None
        self._hub, self._utils = huggingface_hub, utils
        self._api: Any = huggingface_hub.HfApi(endpoint=self._endpoint, token=options.get("token"))
        self._token = options.get("token")
        self._commit: str | None = None
        self._lock = Lock()
        self._infos: dict[str, ObjectInfo] = {}

    def read(self, key: str, start: int = 0, stop: int | None = None) -> memoryview:
        """Read bytes of a file; see `Store.read`."""
        path = self._folder + check_key(key)
        if stop is not None and stop <= start:
            return memoryview(b"")
        url = self._hub.hf_hub_url(
            self._repo, path, repo_type="dataset", revision=self._pin(), endpoint=self._endpoint
        )

        def read() -> memoryview:
            headers = {
                **self._utils.build_hf_headers(token=self._token),
                "Range": f"bytes={start}-{'' if stop is None else stop - 1}",
                "Accept-Encoding": "identity",
            }
            answer = self._utils.http_backoff(
                "GET", url, headers=headers, timeout=60, max_retries=0
            )
            self._utils.hf_raise_for_status(answer)
            content = memoryview(answer.content)
            if answer.status_code == 200:  # the server knows no ranges
                content = content[start:stop]
            if stop is not None and len(content) != stop - start:
                raise _Short
            return content

        return self._retry(key, read)

    def read_with_info(self, key: str, start: int, stop: int) -> tuple[memoryview, ObjectInfo]:
        """Read bytes of a file, along with what its commit says of it."""
        return self.read(key, start, stop), self.get_info(key)

    def get_info(self, key: str) -> ObjectInfo:
        """Return size and version of a file, once for each."""
        check_key(key)
        if key not in self._infos:
            commit, paths = self._pin(), [self._folder + key]

            def ask() -> list[Any]:
                paths_info = self._api.get_paths_info
                return list(paths_info(self._repo, paths, revision=commit, repo_type="dataset"))

            files = list(self._note_files(self._retry(key, ask)))
            if not files:
                raise ObjectNotFound("does not exist", file=self.locate(key), hint=_SIGN_IN)
        return self._infos[key]

    def list_keys(self, prefix: str = "") -> Iterator[ObjectInfo]:
        """List the files of a dataset, or of a folder in it."""
        yield from self._note_files(self._list(prefix, recursive=True))

    def list_folder(self, folder: str = "") -> tuple[list[ObjectInfo], list[str]]:
        """List the files directly in a folder, and the names of the folders in it."""
        entries = self._list(folder, recursive=False)
        names = [entry.path.rpartition("/")[2] for entry in entries if not hasattr(entry, "size")]
        return list(self._note_files(entries)), names

    def write(
        self, key: str, data: Data | Path | Iterable[Data], *, if_absent: bool = False
    ) -> None:
        """Raise OutputDenied: datasets are uploaded by other tools."""
        raise OutputDenied(
            "the Hub can only be read",
            file=self.locate(check_key(key)),
            hint="Write to a directory, and upload it with `hf upload`.",
        )

    def delete(self, key: str) -> None:
        """Raise OutputDenied."""
        self.write(key, b"")

    def _list(self, folder: str, *, recursive: bool) -> list[Any]:
        if folder:
            check_key(folder)
        commit, path = self._pin(), (self._folder + folder).strip("/") or None

        def ask() -> list[Any]:
            list_tree = self._api.list_repo_tree
            try:
                entries = list_tree(
                    self._repo, path, recursive=recursive, revision=commit, repo_type="dataset"
                )
                return list(entries)
            except self._utils.EntryNotFoundError:
                return []

        return self._retry(folder, ask)

    def _note_files(self, entries: Iterable[Any]) -> Iterator[ObjectInfo]:
        """Yield the files of a list that also has folders, and remember them."""
        for entry in entries:
            if hasattr(entry, "size"):
                key = entry.path.removeprefix(self._folder)
                self._infos[key] = ObjectInfo(key, entry.size, entry.blob_id)
                yield self._infos[key]

    def _pin(self) -> str:
        """Find the commit of the revision, once."""
        with self._lock:
            if self._commit is None:
                ask = self._api.repo_info
                info = self._retry(
                    "", lambda: ask(self._repo, revision=self._revision, repo_type="dataset")
                )
                self._commit = str(info.sha)
            return self._commit

    def _retry(self, key: str, request: Callable[[], _T]) -> _T:
        attempts = Attempts(self._policy, self.locate(key) if key else self.url)
        while True:
            try:
                return request()
            except Exception as error:  # noqa: BLE001  # versions of the library use other ones
                failure = _diagnose(error)
            time.sleep(attempts.note(failure))


class _Short(Exception):
    """An answer has other bytes than were asked for."""


def _diagnose(error: Exception) -> Failure:
    """Convert an error of the library to one of ours, without its text, which may quote a token."""
    names = {kind.__name__ for kind in type(error).__mro__}
    status = getattr(getattr(error, "response", None), "status_code", None)
    if "GatedRepoError" in names:
        problem = "the dataset is gated: its conditions are not accepted by this account"
        return Failure(AccessDenied, problem, _SIGN_IN, status)
    if names & {"RepositoryNotFoundError", "RevisionNotFoundError"}:
        problem = "there is no such dataset or revision, or it is private"
        return Failure(AccessDenied, problem, _SIGN_IN, status)
    if status == 404 or "EntryNotFoundError" in names:
        return Failure(ObjectNotFound, "does not exist", status=status)
    if status in (401, 403):
        return Failure(AccessDenied, "the Hub denies access", _SIGN_IN, status)
    if isinstance(error, _Short):
        problem = "the server sends fewer bytes than asked for"
        return Failure(RemoteUnreadable, problem, _TRY, attempts=SHORT_ATTEMPTS)
    if "OfflineModeIsEnabled" in names:
        return Failure(RemoteUnreadable, "HF_HUB_OFFLINE is set", "Unset it to read the Hub.")
    if status is not None:
        passing = None if is_passing(status) else 1
        return Failure(RemoteUnreadable, "the server fails", _TRY, status, passing)
    problem = f"the request failed ({type(error).__name__})"
    return Failure(RemoteUnreadable, problem, _TRY, attempts=None)
