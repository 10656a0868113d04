"""Ending what a thread waits for, once nobody wants its result any more."""

import threading
from collections.abc import Callable


class Cancelled(Exception):
    """Nobody wants the result any more."""


_thread = threading.local()


def set_cancelled(is_cancelled: Callable[[], bool]) -> None:
    """Let this thread give up waiting when `is_cancelled()` is True."""
    _thread.is_cancelled = is_cancelled


def check_cancelled() -> None:
    """Raise Cancelled where nobody wants the result of this thread any more."""
    is_cancelled: Callable[[], bool] | None = getattr(_thread, "is_cancelled", None)
    if is_cancelled is not None and is_cancelled():
        raise Cancelled
