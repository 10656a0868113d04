"""Cases of one property, tried one after the other within one test."""

from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def case(*values: object) -> Iterator[None]:
    """Name the case in whatever fails within the `with` block."""
    try:
        yield
    except BaseException as error:  # what pytest raises where nothing was raised is no Exception
        error.add_note(f"case: {', '.join(map(repr, values))}")
        raise
