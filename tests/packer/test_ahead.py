"""Reading ahead: the same items, from a thread that ends when it should."""

import itertools
import os
import threading
import time
from collections.abc import Iterator

import pytest

from fieldslab.packer.write import ahead
from fieldslab.packer.write.ahead import read_ahead
from fieldslab.schemas.errors import SourceUnreadable


def readers() -> int:
    """How many threads read ahead now."""
    return sum(thread.name == "fieldslab-read-ahead" for thread in threading.enumerate())


def test_items_come_in_order() -> None:
    """Every item comes once, in order, None and falsy ones too."""
    items = [0, None, "", *range(100)]
    assert list(read_ahead(iter(items))) == items
    assert list(read_ahead(iter([]))) == []
    assert readers() == 0


def test_an_error_comes_in_its_place() -> None:
    """What was read in front of an error is handed over first."""

    def items() -> Iterator[int]:
        yield from (1, 2)
        raise ValueError("third")

    stream = read_ahead(items())
    assert [next(stream), next(stream)] == [1, 2]
    with pytest.raises(ValueError, match="third"):
        next(stream)
    assert readers() == 0


def test_an_os_error_is_one_of_the_source() -> None:
    """Whoever writes does not take an OSError of reading for his own."""

    def items() -> Iterator[int]:
        yield 1
        os.stat("/nowhere/rows")

    with pytest.raises(SourceUnreadable, match="/nowhere/rows: cannot be read: No such file"):
        list(read_ahead(items()))


def test_closing_ends_the_thread() -> None:
    """A reader that is not wanted any more ends, however much there is to read."""
    stream = read_ahead(itertools.count())
    assert next(stream) == 0
    stream.close()
    assert readers() == 0


def test_no_more_than_a_few_items_are_held() -> None:
    """The thread waits when it is `depth` items ahead."""
    taken: list[int] = []

    def items() -> Iterator[int]:
        for item in range(100):
            taken.append(item)
            yield item

    stream = read_ahead(items(), depth=2)
    for _ in range(5):
        next(stream)
        time.sleep(0.01)
        assert taken[-1] <= next(stream) + 4
    stream.close()


def test_a_stuck_source_does_not_hold_up_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where a source never answers, closing gives up on it after a while."""
    monkeypatch.setattr(ahead, "PATIENCE", 0.05)
    release = threading.Event()

    def items() -> Iterator[int]:
        yield 1
        release.wait()

    stream = read_ahead(items())
    assert next(stream) == 1
    stream.close()
    assert readers() == 1
    release.set()
