"""What a mirror asks of the helper process, whichever process that is at the moment."""

import itertools
import os
import re
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from datetime import timedelta
from typing import Any, NamedTuple
from urllib.parse import urlsplit
from weakref import finalize

import numpy as np

from fieldslab.schemas.errors import DamagedArray, FieldslabError, UsageError, WorkerDied
from fieldslab.schemas.manifest import MANIFEST, MAX_BYTES
from fieldslab.schemas.mirror.client import CONNECTION, HelperDied, HelperProcess, Ticket
from fieldslab.schemas.mirror.messages import (
    Answer,
    Attach,
    Cancel,
    DamagedBlock,
    Fetch,
    Open,
    Reply,
    decode_error,
)
from fieldslab.schemas.optiontext import mark_option
from fieldslab.schemas.urls import hide_credentials

_STARTS = 2
"""So often a helper is started for one request."""

_SECRET = re.compile(
    "secret|token|password|access_key|account_key|sas|credential|private|authorization|cookie|proxy_url",
    re.I,
)
"""In the names of options that hold credentials."""

_VARIABLE = re.compile("AWS_|AZURE_|GOOGLE_|(HTTPS?|ALL|NO)_PROXY|SSL_CERT_", re.I)

_numbers = itertools.count()


class Origin(NamedTuple):
    """Where a mirror gets its blocks from, and where it keeps them.

    `options` are for the store; they may hold credentials.
    """

    place: str
    options: Mapping[str, Any]
    cache: str
    limit: int | None
    shared: bool = False
    temporary: bool = False

    def to_plain(self) -> tuple[Any, ...]:
        """Return what a pickle may hold of it. Raises UsageError where that is a credential."""
        refuse_credentials(self.place, self.options)
        return tuple(self)

    def __repr__(self) -> str:
        return f"Origin({hide_credentials(self.place)!r}, cache={self.cache!r})"


def refuse_credentials(place: str, options: Mapping[str, Any]) -> None:
    """Raise UsageError where a pickle with this URL and these options would hold a credential."""
    url = urlsplit(place)
    secret = [*["the URL"] * bool(url.password or url.query), *_find_secrets(options)]
    if secret:
        raise UsageError(
            "a slab is not pickled with credentials",
            file=hide_credentials(place),
            found=", ".join(secret),
            hint="Give them by the environment, such as AWS_ACCESS_KEY_ID and "
            "AWS_SECRET_ACCESS_KEY, or by a profile: other processes find them there.",
        )


def _find_secrets(options: Mapping[str, Any]) -> Iterator[str]:
    """The names of options that hold credentials, and of such members of options."""
    for name, value in options.items():
        if _SECRET.search(name):
            yield name
        elif isinstance(value, Mapping):
            yield from (f"{name}.{member}" for member in _find_secrets(value))


class Channel:
    """What a mirror says to the helper, whichever process that is at the moment."""

    def __init__(self, place: str, options: Mapping[str, Any]) -> None:
        self.number = next(_numbers)
        self._place = place
        self._options = {name: _convert_durations(name, value) for name, value in options.items()}
        self._attach: Callable[[int], Attach] | None = None
        self._attaching: Ticket | None = None
        self._has_store: HelperProcess | None = None
        self._opened: HelperProcess | None = None
        self._lock = threading.RLock()
        CONNECTION.add_user(self.number)
        self._finalizer = finalize(self, _leave, self.number)

    def read_manifest(self) -> bytes:
        """Read the manifest in the store. Raises what the store raises, and DamagedManifest."""

        def ask(process: HelperProcess) -> Answer:
            answer = self._open(process).wait()
            self._has_store = process
            return answer

        return self._ask_repeatedly(ask).content

    def read_object(self, key: str) -> bytes:
        """Read an object of the store. Raises what the store raises."""
        return self._ask_repeatedly(lambda process: self._open(process, key, None).wait()).content

    def attach(self, content: str, origin: Origin) -> None:
        """Fetch for this mirror from now on. A helper that has the store opens it at once."""
        limits = origin.cache, origin.limit, origin.shared, origin.temporary
        self._attach = lambda request: Attach(request, self.number, content, *limits)
        if self._has_store is not None:
            with suppress(HelperDied):  # another one is started when there is something to fetch
                self._attaching = self._has_store.ask(self._attach)

    def fetch(self, ranges: np.ndarray, demand: bool, again: bool) -> None:
        """Have blocks fetched, and wait.

        Raises what the helper raises, DamagedBlock and WorkerDied.
        """

        def ask(process: HelperProcess) -> Answer:
            make = self._prepare_fetch(process, ranges, demand=demand, again=again)
            return process.ask(make).wait()

        self._ask_repeatedly(ask)

    def prefetch(self, ranges: np.ndarray, share: float, done: Callable[[], None]) -> bool:
        """Have blocks fetched some time; `done` is called when they are, or will not be.

        Returns whether the request was made.
        """
        try:
            process = CONNECTION.get_process()
            process.ask(self._prepare_fetch(process, ranges, demand=False, share=share), done)
        except (HelperDied, FieldslabError):
            return False
        return True

    def cancel_prefetch(self) -> None:
        """Cancel all fetches that nothing waits for."""
        process = self._opened
        if process is not None:
            process.say(Cancel(self.number))

    def after_fork(self) -> None:
        """Start over in a forked child."""
        self._lock = threading.RLock()
        self._has_store = self._opened = self._attaching = None

    def close(self) -> None:
        """Ask no more."""
        self._has_store = self._opened = self._attaching = None
        self._finalizer()

    def _prepare_fetch(
        self, process: HelperProcess, ranges: np.ndarray, **options: Any
    ) -> Callable[[int], Fetch]:
        """Open the mirror in a helper, if need be; return what makes the request of its number."""
        self._open_mirror(process)
        content = np.ascontiguousarray(ranges, np.int64).tobytes()
        return lambda request: Fetch(request, self.number, content, **options)

    def _open_mirror(self, process: HelperProcess) -> None:
        """Open store and mirror in a helper that does not know them yet."""
        with self._lock:
            if self._opened is not process:
                assert self._attach is not None
                ticket, self._attaching = self._attaching, None
                if self._has_store is not process:
                    ticket = None
                    _check_answer(self._open(process).wait())
                    self._has_store = process
                _check_answer((ticket or process.ask(self._attach)).wait())
                self._opened = process

    def _open(
        self, process: HelperProcess, key: str = MANIFEST, most: int | None = MAX_BYTES
    ) -> Ticket:
        arguments = self.number, self._place, self._options, _list_environment(), key, most
        try:
            return process.ask(lambda request: Open(request, *arguments))
        except TypeError:
            raise UsageError(
                f"{mark_option('storage_options')} hold what cannot be sent to another process",
                expected="text, numbers, lists and dicts",
                found=", ".join(self._options),
            ) from None

    def _ask_repeatedly(self, ask: Callable[[HelperProcess], Answer]) -> Reply:
        process = CONNECTION.get_process()
        for attempt in range(_STARTS):
            try:
                return _check_answer(ask(process))
            except HelperDied:
                cause = process.explain_death()
                if attempt + 1 < _STARTS:
                    process = CONNECTION.get_process(dead=process)
        raise WorkerDied(
            "the helper process that fetches blocks died twice",
            found=cause,
            hint="Its last words are on standard error.",
        )


def _check_answer(answer: Answer) -> Reply:
    """Raise the error that an answer says, if it says one."""
    if isinstance(answer, Reply):
        return answer
    error = decode_error(answer)
    if answer.position is not None and isinstance(error, DamagedArray):
        raise DamagedBlock(answer.position, error)
    raise error


def _convert_durations(name: str, value: Any) -> Any:
    """Durations as obstore takes them too: as text, or for retries as seconds."""
    if isinstance(value, Mapping):
        return {key: _convert_durations(name, each) for key, each in value.items()}
    if not isinstance(value, timedelta):
        return value
    seconds = value.total_seconds()
    return seconds if name == "retry_config" else f"{seconds * 1000:.0f}ms"


def _list_environment() -> dict[str, str]:
    """The variables that stores look for: a program may set them after the helper started."""
    return {name: value for name, value in os.environ.items() if _VARIABLE.match(name)}


def _leave(number: int) -> None:
    CONNECTION.remove_user(number)
