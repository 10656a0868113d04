"""Read ahead in a thread: decoding and writing overlap, and neither holds the interpreter."""

import queue
import threading
from collections.abc import Generator, Iterator
from typing import Any

from fieldslab.schemas.errors import FieldslabError, make_unreadable_source_error

PATIENCE = 5.0
"""Seconds to wait for a thread that is told to end: a stream may be stuck forever."""

_END = object()


def read_ahead(items: Iterator[Any], depth: int = 2) -> Generator[Any, None, None]:
    """Yield the same items, taken from `items` up to `depth` ahead in another thread.

    An exception of `items` is raised here, in its place; an OSError as SourceUnreadable, so that
    the writer of these rows does not take it for its own error. Closing this iterator ends the
    thread.
    """
    ready: queue.Queue[tuple[Any, BaseException | None]] = queue.Queue(depth)
    closed = threading.Event()

    def put_item(item: Any, error: BaseException | None = None) -> bool:
        while not closed.is_set():
            try:
                ready.put((item, error), timeout=0.1)
                return True
            except queue.Full:
                continue
        return False

    def put_all_items() -> None:
        try:
            for item in items:
                if not put_item(item):
                    return
            put_item(_END)
        except BaseException as error:  # noqa: BLE001  # handed over to the consumer
            put_item(_END, error)

    thread = threading.Thread(target=put_all_items, name="fieldslab-read-ahead", daemon=True)
    thread.start()
    try:
        while True:
            item, error = ready.get()
            if isinstance(error, FieldslabError):
                raise error
            if isinstance(error, OSError):
                raise make_unreadable_source_error(
                    error, f"cannot be read: {error.strerror or error}", file=error.filename
                ) from error
            if error is not None:
                raise error
            if item is _END:
                return
            yield item
    finally:
        closed.set()
        thread.join(PATIENCE)
