"""Every error that fieldslab raises on purpose.

    FieldslabError
    ├── UsageError              2  the call contradicts itself, or names nothing (ValueError)
    │   ├── MissingLibrary         what is asked for needs a library that is not here (ImportError)
    │   ├── UnknownField           a field that the slab or the source does not have (KeyError)
    │   └── RowOutOfRange          a row outside 0..len-1 (IndexError)
    ├── NotASlab                3  nothing there, or not a slab
    │   ├── SlabNotFound           no slab at this path (FileNotFoundError)
    │   │   └── IncompleteSlab     packing was cut off; the message says what to run
    │   ├── SlabDenied             no permission to read it (PermissionError)
    │   │   └── AccessDenied       a store refuses: no credentials, wrong or expired ones
    │   ├── ObjectNotFound         a store holds nothing of this name (FileNotFoundError)
    │   ├── UnsupportedVersion     written by a newer fieldslab
    │   └── SlabReplaced           packed again, or removed, since it was opened: open it again
    │       └── SlabChanged        its files, or what is at its URL, changed since it was opened
    ├── Unreadable              3  the disk or the file system fails (OSError)
    │   └── RemoteUnreadable       a store or the network fails, after several attempts
    ├── Damaged                 1  bytes are not what pack wrote
    │   ├── DamagedManifest
    │   ├── DamagedArray           a file's size, header or content
    │   ├── DamagedImage           stored as it was packed, but no decoder can make a picture of it
    │   └── BadSignature           not signed, or not with this key, or changed since
    ├── SourceError             4  the source cannot be packed as asked
    │   ├── SourceUnreadable    3  missing, damaged, encrypted, or no right to read it
    │   │   ├── SourceNotFound     no such file or directory (FileNotFoundError)
    │   │   └── SourceDenied       no permission to read it (PermissionError)
    │   ├── SourceUnsupported      a type that needs an option, or cannot be stored
    │   │   └── SourceNeedsLibrary a library that is not here (MissingLibrary)
    │   ├── SourceInconsistent     files, rows or shapes that do not fit each other
    │   │   └── UndecodableImage   an image that cannot become pixels, and should
    │   ├── SourceChanged          the source changed while it was read
    │   └── NullsFound             nulls, and no option says what to do with them
    ├── WorkerDied              1  a process that fieldslab started ended before its work was done
    └── OutputError             5  the slab cannot be written there (OSError)
        ├── OutputExists           something is there already (FileExistsError)
        ├── OutputDenied           no permission to write there (PermissionError)
        ├── NoSpace                the device is full
        ├── Busy                   another packer holds it
        ├── OutputChanged          another writer changed what was to be replaced
        └── PartsMissing           parts of a plan are not packed yet

The numbers are the exit codes of the commands; a class without one has its parent's. Built-in
exceptions in brackets are bases, too: `except FileNotFoundError` catches a slab that is not there.
So whoever catches an `OSError` or a `ValueError` of the system or a library around other code of
fieldslab lets a FieldslabError pass first.
"""

from collections.abc import Callable, Sequence
from errno import EACCES, EBUSY, EEXIST, ENOENT, ENOSPC
from typing import Any, ClassVar, TypeVar

from fieldslab.schemas.optiontext import find_first_option, render_for_python, render_for_shell

_CONTEXT = ("file", "field", "row", "offset", "status", "attempts", "expected", "found")


class FieldslabError(Exception):
    """An error that says what is wrong, where, and what to do.

    Parameters
    ----------
    problem
        What is wrong, in a few words.
    file, field, row, offset, status, attempts, expected, found
        Where it is wrong: whatever of these is known. `row` may be a number or a range as text;
        `offset` is in bytes from the start of the file. `status` is what a server answered, and
        `attempts` says how often it was asked.
    hint
        What to do about it: a sentence.

    `problem` and `hint` name options by `optiontext.mark_option`.

    Attributes
    ----------
    problem, hint
        As given, with options in the words of Python.
    option
        Python's name of the option that the problem is about, such as `jobs`; None if of none.
    others
        Errors of the same kind that were found along with this one: see `together`.
    """

    exit_code: ClassVar[int] = 1
    _errno: ClassVar[int | None] = None
    """Of those that are an OSError, too."""

    def __init__(self, problem: str, *, hint: str | None = None, **context: Any) -> None:
        unknown = context.keys() - set(_CONTEXT)
        if unknown:
            raise TypeError(f"unknown error context: {sorted(unknown)}")
        super().__init__(render_for_python(problem))
        self.problem = render_for_python(problem)
        self.hint = None if hint is None else render_for_python(hint)
        self.option = find_first_option(problem)
        self.marked = problem, hint
        self.context = {key: context[key] for key in _CONTEXT if context.get(key) is not None}
        self.others: tuple[FieldslabError, ...] = ()
        this: Any = self
        if isinstance(this, OSError):
            file = self.context.get("file")
            this.errno, this.strerror = self._errno, self.problem
            this.filename = None if file is None else str(file)

    def __str__(self) -> str:
        return "\n".join([self.text, *(other.text for other in self.others)])

    @property
    def text(self) -> str:
        """What this error says, without the others."""
        return (
            f"{self._format_statement(self.problem)}. {self.hint}" if self.hint else self.statement
        )

    @property
    def statement(self) -> str:
        """What is wrong, and where: `text` without the hint."""
        return self._format_statement(self.problem)

    def render_for_shell(self) -> tuple[str, str | None]:
        """Return `statement` and `hint`, with options in the words of the command line."""
        problem, hint = self.marked
        return self._format_statement(
            render_for_shell(problem)
        ), None if hint is None else render_for_shell(hint)

    def add_hint(self, text: str) -> None:
        """Add a sentence to the hint."""
        problem, hint = self.marked
        self.marked = problem, text if hint is None else f"{hint} {text}"
        self.hint = render_for_python(self.marked[1] or "")

    def _format_statement(self, problem: str) -> str:
        where = dict(self.context)
        file = where.pop("file", None)
        text = f"{file}: {problem}" if file is not None else problem
        details = [f"{key} {_format_value(value)}" for key, value in where.items()]
        return f"{text} ({', '.join(details)})" if details else text

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild_error, (type(self), *self.marked, self.context, self.others)

    def as_dict(self, words: Callable[[str], str] = render_for_python) -> dict[str, Any]:
        """Return the error as JSON-ready values. `--json` passes `render_for_shell`."""
        problem, hint = (None if text is None else words(text) for text in self.marked)
        where = {key: _convert_to_json(value) for key, value in self.context.items()}
        if self.option is not None:
            where["option"] = self.option
        members = {"error": type(self).__name__, "problem": problem, **where, "hint": hint}
        others = [other.as_dict(words) for other in self.others]
        return members | {"others": others} if others else members


_Error = TypeVar("_Error", bound=FieldslabError)


def combine_errors(errors: Sequence[_Error]) -> _Error:
    """Return the first error, with the others in its `others`, so that all can be fixed at once."""
    first, *others = errors
    first.others = tuple(others)
    return first


def _rebuild_error(
    cls: type[FieldslabError],
    problem: str,
    hint: str | None,
    context: dict[str, Any],
    others: tuple[FieldslabError, ...],
) -> FieldslabError:
    error = cls(problem, hint=hint, **context)
    error.others = others
    return error


def _format_value(value: Any) -> str:
    return repr(value) if isinstance(value, str) and " " in value else str(value)


def _convert_to_json(value: Any) -> Any:
    return value if isinstance(value, int | float | str | bool) else str(value)


class UsageError(FieldslabError, ValueError):
    """The call contradicts itself or names what is not there."""

    exit_code = 2


class MissingLibrary(UsageError, ImportError):
    """A library that is needed is not installed; the hint says how to install it."""


class UnknownField(UsageError, KeyError):
    """A field that the slab or the source does not have."""


class RowOutOfRange(UsageError, IndexError):
    """A row outside 0..len-1."""


class NotASlab(FieldslabError):
    """Nothing there, or not a slab."""

    exit_code = 3


class SlabNotFound(NotASlab, FileNotFoundError):
    """No slab at this path."""

    _errno = ENOENT


class IncompleteSlab(SlabNotFound):
    """Packing was cut off; the message says what to run."""


class SlabDenied(NotASlab, PermissionError):
    """No permission to read the slab."""

    _errno = EACCES


class AccessDenied(SlabDenied):
    """A store refuses to give an object: there are no credentials, or wrong or expired ones."""


class ObjectNotFound(NotASlab, FileNotFoundError):
    """A store holds nothing of this name."""

    _errno = ENOENT


class UnsupportedVersion(NotASlab):
    """Written by a newer fieldslab."""


class SlabReplaced(NotASlab):
    """Packed again, or removed, since it was opened; what was read before stays right."""


class SlabChanged(SlabReplaced):
    """Files of the slab were cut, written or replaced, or another slab is at its URL, since then.

    What was read before that stays right.
    """


class Unreadable(FieldslabError, OSError):
    """The disk or the file system fails, so it is unknown whether the bytes are right.

    `errno` is what the system said, None where it said nothing.
    """

    exit_code = 3

    def __init__(self, problem: str, *, errno: int | None = None, **known: Any) -> None:
        super().__init__(problem, **known)
        self.errno = errno

    def __reduce__(self) -> tuple[Any, ...]:
        return *super().__reduce__(), {"errno": self.errno}


class RemoteUnreadable(Unreadable):
    """A store or the network fails, after several attempts.

    `context` holds the URL of the object as `file`, and `status` and `attempts`.
    """


class Damaged(FieldslabError):
    """Bytes are not what pack wrote."""

    exit_code = 1


class WorkerDied(FieldslabError):
    """A process that fieldslab started ended, or was killed, before its work was done."""

    exit_code = 1


class DamagedManifest(Damaged):
    """The manifest is not what pack wrote, or says what cannot be."""


class DamagedArray(Damaged):
    """A file's size, header or content is not what the manifest says."""


class DamagedImage(Damaged):
    """The bytes are what was packed, but no decoder can make a picture of them."""


class BadSignature(Damaged):
    """The slab is not signed, or not with the key that is asked for, or changed since."""


class SourceError(FieldslabError):
    """The source cannot be packed as asked."""

    exit_code = 4


class SourceUnreadable(SourceError):
    """The source is missing, damaged, encrypted, or may not be read."""

    exit_code = 3


class SourceNotFound(SourceUnreadable, FileNotFoundError):
    """The source, or a part of it, is not there."""

    _errno = ENOENT


class SourceDenied(SourceUnreadable, PermissionError):
    """No permission to read the source."""

    _errno = EACCES


class SourceUnsupported(SourceError):
    """A type that needs an option, or cannot be stored."""


class SourceNeedsLibrary(SourceUnsupported, MissingLibrary):
    """The source, or what it should become, needs a library that is not here."""


class SourceInconsistent(SourceError):
    """Files, rows or shapes that do not fit each other."""


class UndecodableImage(SourceInconsistent):
    """An image that should become pixels cannot be decoded."""


class SourceChanged(SourceError):
    """The source changed while it was read."""


class NullsFound(SourceError):
    """There are nulls, and no option says what to do with them."""


class OutputError(FieldslabError, OSError):
    """The slab cannot be written there."""

    exit_code = 5


class OutputExists(OutputError, FileExistsError):
    """Something is there already."""

    _errno = EEXIST


class OutputDenied(OutputError, PermissionError):
    """No permission to write there."""

    _errno = EACCES


class NoSpace(OutputError):
    """The device is full."""

    _errno = ENOSPC


class Busy(OutputError):
    """Another packer holds this output."""

    _errno = EBUSY


class OutputChanged(OutputError):
    """Another writer changed what was to be replaced since it was read; nothing was written."""


class PartsMissing(OutputError):
    """Parts of a plan are not packed yet; the message names them."""


def make_unreadable_source_error(
    error: BaseException, problem: str, *, hint: str | None = None, **context: Any
) -> SourceUnreadable:
    """Make the SourceUnreadable, SourceNotFound or SourceDenied for an error of the system."""
    kinds = {FileNotFoundError: SourceNotFound, PermissionError: SourceDenied}
    kind = next((kinds[base] for base in kinds if isinstance(error, base)), SourceUnreadable)
    return kind(problem, hint=hint, **context)
