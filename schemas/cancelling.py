"""Ends what a thread waits for once its result is no longer wanted."""

import threading
from collections.abc import Callable


class Cancelled(Exception):
    """Nobody wants the result any more."""


_thread = threading.local()


def set_cancelled(is_cancelled: Callable[[], bool] | None) -> None:
    """Let this thread give up waiting when `is_cancelled()` is True."""
    _thread.is_cancelled = is_cancelled


def get_cancelled() -> Callable[[], bool] | None:
    """Return what this thread asks whether to give up."""
    is_cancelled: Callable[[], bool] | None = getattr(_thread, "is_cancelled", None)
    return is_cancelled


def check_cancelled() -> None:
    """Raise Cancelled if the result of this thread is no longer wanted."""
    is_cancelled = get_cancelled()
    if is_cancelled is not None and is_cancelled():
        raise Cancelled
