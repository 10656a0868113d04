"""Every error that fieldslab raises on purpose.

    FieldslabError
    ├── UsageError              2  the call contradicts itself or names what is not there
    │   ├── MissingLibrary         what is asked for needs a library that is not here
    │   ├── UnknownField           a field that the slab or the source does not have (KeyError)
    │   └── RowOutOfRange          a row outside 0..len-1 (IndexError)
    ├── NotASlab                3  nothing there, or not a slab
    │   ├── IncompleteSlab         packing was cut off; the message says what to run
    │   ├── UnsupportedVersion     written by a newer fieldslab
    │   └── SlabReplaced           packed again, or removed, since it was opened: open it again
    ├── Unreadable              3  the disk or the file system fails (OSError)
    ├── Damaged                 1  bytes are not what pack wrote
    │   ├── DamagedManifest
    │   ├── DamagedArray           a file's size, header or content
    │   └── DamagedImage           stored as it was packed, but no decoder can make a picture of it
    ├── SourceError             4  what is packed cannot be packed as asked
    │   ├── SourceUnreadable    3  missing, damaged, encrypted, or no right to read it
    │   ├── SourceUnsupported      a type that needs an option, or cannot be stored
    │   ├── SourceInconsistent     files, rows or shapes that do not fit each other
    │   │   └── UndecodableImage   an image that cannot become pixels, and should
    │   ├── SourceChanged          the source changed while it was read
    │   └── NullsFound             nulls, and no word what to do with them
    └── OutputError             5  the slab cannot be written there
        ├── OutputExists
        ├── NoSpace
        └── Busy                   another packer holds it

The numbers are the exit codes of the commands; a class without one has its parent's.
"""

from collections.abc import Sequence
from typing import Any, ClassVar, TypeVar

_CONTEXT = ("file", "field", "row", "offset", "expected", "found")


class FieldslabError(Exception):
    """An error that says what is wrong, where, and what to do.

    Parameters
    ----------
    problem
        What is wrong, in a few words.
    file, field, row, offset, expected, found
        Where it is wrong: whatever of these is known. `row` may be a number or a range as text;
        `offset` is in bytes from the start of the file.
    hint
        What to do about it: a sentence.

    Attributes
    ----------
    others
        Errors of the same kind that were found along with this one: see `together`.
    """

    exit_code: ClassVar[int] = 1

    def __init__(self, problem: str, *, hint: str | None = None, **context: Any) -> None:
        unknown = context.keys() - set(_CONTEXT)
        if unknown:
            raise TypeError(f"unknown error context: {sorted(unknown)}")
        super().__init__(problem)
        self.problem = problem
        self.hint = hint
        self.context = {key: context[key] for key in _CONTEXT if context.get(key) is not None}
        self.others: tuple[FieldslabError, ...] = ()

    def __str__(self) -> str:
        return "\n".join([self.text, *(other.text for other in self.others)])

    @property
    def text(self) -> str:
        """What this error says, without the others."""
        where = dict(self.context)
        file = where.pop("file", None)
        text = f"{file}: {self.problem}" if file is not None else self.problem
        details = [f"{key} {_show(value)}" for key, value in where.items()]
        if details:
            text += f" ({', '.join(details)})"
        return f"{text}. {self.hint}" if self.hint else text

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild, (type(self), self.problem, self.hint, self.context, self.others)

    def as_dict(self) -> dict[str, Any]:
        """The error as JSON-ready values, for `--json`."""
        where = {key: _plain(value) for key, value in self.context.items()}
        found = {"error": type(self).__name__, "problem": self.problem, **where, "hint": self.hint}
        others = [other.as_dict() for other in self.others]
        return found | {"others": others} if others else found


_Error = TypeVar("_Error", bound=FieldslabError)


def together(errors: Sequence[_Error]) -> _Error:
    """The first of some errors, with all others in `others`: a user mends them in one go."""
    first, *others = errors
    first.others = tuple(others)
    return first


def _rebuild(
    cls: type[FieldslabError], problem: str, hint: str | None, context: dict[str, Any],
    others: tuple[FieldslabError, ...],
) -> FieldslabError:  # fmt: skip
    error = cls(problem, hint=hint, **context)
    error.others = others
    return error


def _show(value: Any) -> str:
    return repr(value) if isinstance(value, str) and " " in value else str(value)


def _plain(value: Any) -> Any:
    return value if isinstance(value, int | float | str | bool) else str(value)


class UsageError(FieldslabError):
    """The call contradicts itself or names what is not there."""

    exit_code = 2


class MissingLibrary(UsageError):
    """What is asked for needs a library that is not here; the hint says how to install it."""


class UnknownField(UsageError, KeyError):
    """A field that the slab or the source does not have."""


class RowOutOfRange(UsageError, IndexError):
    """A row outside 0..len-1."""


class NotASlab(FieldslabError):
    """Nothing there, or not a slab."""

    exit_code = 3


class IncompleteSlab(NotASlab):
    """Packing was cut off; the message says what to run."""


class UnsupportedVersion(NotASlab):
    """Written by a newer fieldslab."""


class SlabReplaced(NotASlab):
    """Packed again, or removed, since it was opened; what was read before stays right."""


class Unreadable(FieldslabError, OSError):
    """The disk or the file system fails: whether the bytes are right, nobody knows.

    `errno` is what the system said, None where it said nothing.
    """

    exit_code = 3

    def __init__(self, problem: str, *, errno: int | None = None, **known: Any) -> None:
        super().__init__(problem, **known)
        self.errno = errno

    def __reduce__(self) -> tuple[Any, ...]:
        return *super().__reduce__(), {"errno": self.errno}


class Damaged(FieldslabError):
    """Bytes are not what pack wrote."""

    exit_code = 1


class DamagedManifest(Damaged):
    """The manifest is not what pack wrote, or says what cannot be."""


class DamagedArray(Damaged):
    """A file's size, header or content is not what the manifest says."""


class DamagedImage(Damaged):
    """The bytes are what was packed, but no decoder can make a picture of them."""


class SourceError(FieldslabError):
    """What is packed cannot be packed as asked."""

    exit_code = 4


class SourceUnreadable(SourceError):
    """The source is missing, damaged, encrypted, or may not be read."""

    exit_code = 3


class SourceUnsupported(SourceError):
    """A type that needs an option, or cannot be stored."""


class SourceInconsistent(SourceError):
    """Files, rows or shapes that do not fit each other."""


class UndecodableImage(SourceInconsistent):
    """An image that cannot become pixels, and should, or should be left out if it cannot."""


class SourceChanged(SourceError):
    """The source changed while it was read."""


class NullsFound(SourceError):
    """Nulls, and no word what to do with them."""


class OutputError(FieldslabError):
    """The slab cannot be written there."""

    exit_code = 5


class OutputExists(OutputError):
    """Something is there already."""


class NoSpace(OutputError):
    """The device is full."""


class Busy(OutputError):
    """Another packer holds this output."""
