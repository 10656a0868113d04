"""Requests that are sent again: what failed, for how long, and the error it becomes."""

import random
import time
from collections.abc import Mapping
from dataclasses import dataclass, fields
from datetime import timedelta
from typing import Any

from fieldslab.schemas.errors import FieldslabError, UsageError
from fieldslab.schemas.optiontext import mark_option

_random = random.Random()  # not the one that users seed


@dataclass(frozen=True)
class RetryPolicy:
    """How often a request is sent again, and after which pauses, in seconds.

    The pause grows by `base` from one attempt to the next. A half of it is random, so that many
    clients of a busy server do not come back at the same moment.

    `busy_backoff` is the first pause, at least, where a server says that it is busy: obstore does
    not pass its `Retry-After` on, which is mostly some seconds.
    """

    max_retries: int = 10
    retry_timeout: float = 180.0
    init_backoff: float = 0.1
    max_backoff: float = 15.0
    base: float = 2.0
    busy_backoff: float = 1.0

    def compute_pause(self, attempts: int, busy: bool = False) -> float:
        """Compute the pause after so many attempts, in seconds."""
        first = 2 * self.busy_backoff if busy else self.init_backoff
        longest = min(first * self.base ** (attempts - 1), self.max_backoff)
        return longest * _random.uniform(0.5, 1)

    def as_retry_config(self) -> dict[str, Any]:
        """Return it as obstore's `retry_config`."""
        return {
            "max_retries": self.max_retries,
            "retry_timeout": timedelta(seconds=self.retry_timeout),
            "backoff": {
                "init_backoff": timedelta(seconds=self.init_backoff),
                "max_backoff": timedelta(seconds=self.max_backoff),
                "base": self.base,
            },
        }


def parse_retry_config(config: object) -> RetryPolicy:
    """Parse obstore's `retry_config`; durations may also be numbers, of seconds.

    If it says how long the first pause is, that is so for busy servers, too. Raises UsageError for
    anything else.
    """
    if not isinstance(config, Mapping):
        raise _make_config_error(config)
    flat = {**config, **config.get("backoff", {})}
    flat.pop("backoff", None)
    names = {field.name for field in fields(RetryPolicy)} - {"busy_backoff"}
    values: dict[str, Any] = {}
    for name, value in flat.items():
        number = value.total_seconds() if isinstance(value, timedelta) else value
        if name not in names or not isinstance(number, int | float) or number < 0:
            raise _make_config_error({name: value})
        values[name] = number
    if "init_backoff" in values:
        values["busy_backoff"] = values["init_backoff"] / 2
    return RetryPolicy(**values)


@dataclass(frozen=True)
class Failure:
    """What one attempt failed with.

    Attributes
    ----------
    error
        The class of error that it becomes.
    problem, hint
        What it says; without anything that a server or a library said in its own words, where
        credentials could be.
    status
        What the server answered, None where it did not.
    attempts
        Attempts after which it is final: 1 where another would give the same; None to follow the
        policy.
    """

    error: type[FieldslabError]
    problem: str
    hint: str | None = None
    status: int | None = None
    attempts: int | None = 1

    @property
    def busy(self) -> bool:
        """Whether the server asks for a pause: too many requests, or unavailable."""
        return self.status in (429, 503)

    def make_error(self, file: str, attempts: int) -> FieldslabError:
        """Make the error, for a file or URL, after so many attempts."""
        return self.error(
            self.problem, file=file, status=self.status, attempts=attempts, hint=self.hint
        )


class Attempts:
    """The attempts at one request.

    Parameters
    ----------
    policy
        How many, and with which pauses.
    file
        What is asked for, for the error.
    """

    def __init__(self, policy: RetryPolicy, file: str) -> None:
        self._policy = policy
        self._file = file
        self._started = time.monotonic()
        self._attempts = 0

    def note(self, failure: Failure) -> float:
        """Note that an attempt failed, and return the seconds to wait before the next.

        Raises the error of the failure after the last attempt.
        """
        self._attempts += 1
        policy = self._policy
        limit = min(failure.attempts or policy.max_retries + 1, policy.max_retries + 1)
        pause = policy.compute_pause(self._attempts, failure.busy)
        is_late = time.monotonic() + pause > self._started + policy.retry_timeout
        if self._attempts < limit and not is_late:
            return pause
        raise failure.make_error(self._file, self._attempts)


def _make_config_error(found: object) -> UsageError:
    return UsageError(
        f"{mark_option('storage_options')}: not a retry_config of obstore",
        expected="max_retries, retry_timeout, and backoff with init_backoff, max_backoff, base",
        found=repr(found),
    )
