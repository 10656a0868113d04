"""Whether files of a slab are still what they were, as far as that can be told while reading."""

from collections.abc import Callable, Mapping, Sequence
from faulthandler import is_enabled
from time import monotonic
from typing import TypeVar

from fieldslab.reader import forks
from fieldslab.reader.stored.field import StoredField
from fieldslab.schemas.errors import FieldslabError, SlabChanged
from fieldslab.schemas.folder import SlabFiles
from fieldslab.schemas.mapped_ranges import FAULTS, ranges, table
from fieldslab.schemas.sigbus import guard

_Result = TypeVar("_Result")

SECONDS = 1.0
"""Files are compared so often while they are read."""
_FILES_AT_A_TIME = 1000
"""Files that are compared once a second: 2 ms."""


class Changes:
    """Looks for changes of mapped files before and after each read. Any thread may use it.

    Before, the handler of SIGBUS must be in front of those that others put there, as PyTorch does
    in workers and `faulthandler.enable` anywhere. After, no page may have been replaced.

    Attributes
    ----------
    traced
        Whether `faulthandler` was enabled at the last look; None where `check` must come first.
    """

    def __init__(self, files: Sequence[SlabFiles], stored: Mapping[str, StoredField]) -> None:
        """Take the files of each member, and the fields that are in use."""
        self._files = files
        self._stored = stored
        self._replaced = table[FAULTS]
        self._due = monotonic() + SECONDS
        self.after_fork()
        forks.register_for_forks(self)

    def after_fork(self) -> None:
        """Look for other handlers before the next read."""
        self.traced: bool | None = None

    def read(self, read: Callable[[], _Result]) -> _Result:
        """Return what `read` returns. Raises SlabChanged where a file changed."""
        if is_enabled() is not self.traced or monotonic() > self._due:
            self._prepare()
        try:
            result = read()
        except FieldslabError:
            self.check()  # zeros in the place of a page look like damage
            raise
        if table[FAULTS] != self._replaced:
            self._look()
        return result

    def check(self) -> None:
        """Raise SlabChanged where a file changed, as far as that is known."""
        if table[FAULTS] != self._replaced or self.traced is None:
            self._prepare()

    def compare_files(self, most: int | None = None) -> None:
        """Compare all mapped files, or `most`, with what they were. Raises SlabChanged."""
        self._due = monotonic() + SECONDS
        try:
            same = [files.compare_files(most) for files in self._files]
            for watch in ranges.list_file_watches():
                watch.compare()
        except SlabChanged:
            self.traced = None
            raise
        if not all(same):
            for stored in list(self._stored.values()):
                for array in stored.arrays.values():
                    array.forget_marks()

    def _prepare(self) -> None:
        traced = is_enabled()
        guard.arm()
        self._look()
        self.traced = traced
        if monotonic() > self._due:
            self.compare_files(_FILES_AT_A_TIME)

    def _look(self) -> None:
        """Raise SlabChanged where a file changed; all reads look from then on, and find it."""
        replaced = table[FAULTS]
        ranges.collect()
        watches = [files.watch for files in self._files if files.watch is not None]
        try:
            for watch in [*watches, *ranges.list_file_watches()]:
                watch.check()
        except SlabChanged:
            self.traced = None
            raise
        self._replaced = replaced
