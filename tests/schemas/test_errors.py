"""The error tree: its drawing, its exit codes, and what the messages say."""

import errno
import inspect
import pickle
import re
from pathlib import Path
from typing import Any

import pytest
from tests.naming import case

from fieldslab.schemas import errors
from fieldslab.schemas.errors import (
    Busy,
    DamagedArray,
    FieldslabError,
    IncompleteSlab,
    MissingLibrary,
    NoSpace,
    NotASlab,
    OutputDenied,
    OutputError,
    OutputExists,
    RowOutOfRange,
    SlabDenied,
    SlabNotFound,
    SourceDenied,
    SourceNeedsLibrary,
    SourceNotFound,
    SourceUnreadable,
    UnknownField,
    UnsupportedVersion,
    UsageError,
    combine_errors,
    make_unreadable_source_error,
)
from fieldslab.schemas.optiontext import mark_option, render_for_shell

CLASSES = [
    cls for _, cls in inspect.getmembers(errors, inspect.isclass) if issubclass(cls, FieldslabError)
]
LINE = re.compile(r"    (?P<tree>[│├└─ ]*)(?P<name>[A-Z]\w+)(?: +(?P<code>\d)\b)?")


def drawn() -> dict[str, tuple[str | None, int]]:
    """Parent and exit code of every class in the drawing of the module's docstring."""
    actual: dict[str, tuple[str | None, int]] = {}
    above: list[str] = []
    for line in (errors.__doc__ or "").splitlines():
        if match := LINE.match(line):
            depth, name = len(match["tree"]) // 4, match["name"]
            parent = above[depth - 1] if depth else None
            inherited = actual[parent][1] if parent else FieldslabError.exit_code
            actual[name] = parent, int(match["code"] or inherited)
            above[depth:] = [name]
    return actual


def test_drawing_shows_every_class() -> None:
    """The tree in the docstring has the classes, parents and exit codes of the code."""
    real = {
        cls.__name__: (
            cls.__bases__[0].__name__ if cls is not FieldslabError else None,
            cls.exit_code,
        )
        for cls in CLASSES
    }
    assert drawn() == real


def test_errors_survive_pickling() -> None:
    """An error comes out of a worker process as it went in."""
    for cls in CLASSES:
        error = cls(
            "is wrong",
            file=Path("a.npy"),
            field="x",
            row=3,
            offset=4096,
            expected=1,
            found="two",
            hint="Do this.",
        )
        with case(cls):
            copy = pickle.loads(pickle.dumps(error))
            assert type(copy) is cls
            assert (str(copy), copy.hint) == (str(error), error.hint)
            assert copy.as_dict() == error.as_dict()


def test_every_class_says_what_it_stands_for() -> None:
    """Each class has a docstring of its own."""
    for cls in CLASSES:
        text = cls.__dict__["__doc__"] or ""
        assert text.endswith(".") or "\n" in text, cls


def test_message_names_place_and_remedy() -> None:
    """A message is: file, problem, details in a fixed order, what to do."""
    error = DamagedArray(
        "wrong size",
        file=Path("s/00-x.values.npy"),
        found="12 bytes",
        expected="16 bytes",
        field="x",
        hint="Pack again.",
    )
    assert str(error) == (
        "s/00-x.values.npy: wrong size (field x, expected '16 bytes', found '12 bytes'). "
        "Pack again."
    )


def test_message_without_details() -> None:
    """What is not known is not mentioned."""
    assert str(FieldslabError("is wrong")) == "is wrong"
    assert str(FieldslabError("is wrong", row=0, field=None)) == "is wrong (row 0)"


def test_key_error_keeps_its_message() -> None:
    """UnknownField is a KeyError, yet its message is not shown in quotation marks."""
    error = UnknownField("no such field", field="x")
    assert isinstance(error, KeyError)
    assert str(error) == "no such field (field x)"
    assert isinstance(RowOutOfRange("no such row"), IndexError)


BUILT_IN: dict[type[FieldslabError], type[Exception]] = {
    UsageError: ValueError,
    MissingLibrary: ImportError,
    UnknownField: KeyError,
    RowOutOfRange: IndexError,
    SlabNotFound: FileNotFoundError,
    IncompleteSlab: FileNotFoundError,
    SlabDenied: PermissionError,
    SourceNotFound: FileNotFoundError,
    SourceDenied: PermissionError,
    SourceNeedsLibrary: ImportError,
    OutputError: OSError,
    OutputExists: FileExistsError,
    OutputDenied: PermissionError,
    NoSpace: OSError,
    Busy: OSError,
}


def test_built_in_bases() -> None:
    """Errors are caught as what Python raises in such a case, and still say all they know."""
    for cls, base in BUILT_IN.items():
        error = cls("is wrong", file=Path("a"), field="x", hint="Do this.")
        for each in (error, pickle.loads(pickle.dumps(error))):
            assert isinstance(each, base), cls
            assert str(each) == "a: is wrong (field x). Do this.", cls
            assert each.args == ("is wrong",), cls


@pytest.mark.parametrize(
    ("cls", "number"),
    [
        (SlabNotFound, errno.ENOENT),
        (SourceDenied, errno.EACCES),
        (OutputExists, errno.EEXIST),
        (NoSpace, errno.ENOSPC),
        (OutputError, None),
    ],
)
def test_errors_of_the_system(cls: type[FieldslabError], number: int | None) -> None:
    """What is an OSError has its `errno`, `strerror` and `filename`, through pickling, too."""
    error = pickle.loads(pickle.dumps(cls("is wrong", file=Path("a"))))
    assert isinstance(error, OSError)
    assert (error.errno, error.strerror, error.filename) == (number, "is wrong", "a")
    nameless: Any = cls("is wrong")
    assert nameless.filename is None


def test_only_what_is_missing_is_not_found() -> None:
    """A slab of a newer version, or a damaged source, is there: nobody says that it is not."""
    for cls in (NotASlab, UnsupportedVersion, SourceUnreadable, SlabDenied):
        assert not issubclass(cls, FileNotFoundError)


def test_what_the_system_said() -> None:
    """A file that is missing, or may not be read, becomes the error of that name."""
    kinds = {
        FileNotFoundError(): SourceNotFound,
        PermissionError(): SourceDenied,
        OSError(): SourceUnreadable,
    }
    for error, kind in kinds.items():
        assert type(make_unreadable_source_error(error, "cannot be read", file="a")) is kind


def test_options_in_the_words_of_the_reader() -> None:
    """A message names options as Python does; the command line asks for its own words."""
    error = UsageError(
        f"{mark_option('jobs')} must be at least 1", found=0, hint=f"Give {mark_option('jobs', 1)}."
    )
    copy = pickle.loads(pickle.dumps(error))
    assert str(error) == str(copy) == "jobs must be at least 1 (found 0). Give jobs=1."
    assert copy.render_for_shell() == ("--jobs must be at least 1 (found 0)", "Give --jobs 1.")
    assert (copy.problem, copy.hint, copy.option) == (error.problem, "Give jobs=1.", "jobs")
    assert error.as_dict()["problem"] == "jobs must be at least 1"
    assert error.as_dict(render_for_shell) == {
        "error": "UsageError",
        "problem": "--jobs must be at least 1",
        "found": 0,
        "option": "jobs",
        "hint": "Give --jobs 1.",
    }


def test_as_dict_is_ready_for_json() -> None:
    """`as_dict` holds nothing but JSON values, and the name of the class."""
    actual = NotASlab("is missing", file=Path("a"), row=2, expected=(1, 2)).as_dict()
    assert actual == {
        "error": "NotASlab",
        "problem": "is missing",
        "file": "a",
        "row": 2,
        "expected": "(1, 2)",
        "hint": None,
    }


def test_unknown_context_is_a_programming_error() -> None:
    """A misspelt detail is a TypeError at once, not a detail that nobody sees."""
    with pytest.raises(TypeError, match="colour"):
        FieldslabError("is wrong", colour="red")


def test_errors_that_come_together() -> None:
    """One error carries others of its kind: in its text, in JSON and through pickling."""
    error = combine_errors([UsageError("one", field="a", hint="Do."), UsageError("two", field="b")])
    copy = pickle.loads(pickle.dumps(error))
    assert str(error) == str(copy) == "one (field a). Do.\ntwo (field b)"
    assert [other["field"] for other in copy.as_dict()["others"]] == ["b"]
    assert "others" not in combine_errors([UsageError("alone")]).as_dict()
