"""Options within messages: one text, in the words of Python and of the command line."""

import pytest

from fieldslab.schemas.optiontext import (
    find_first_option,
    mark_option,
    render_for_python,
    render_for_shell,
)

SHOWN = {
    "a name": (mark_option("shard_size"), "shard_size", "--shard-size"),
    "a name with an underscore at its end": (mark_option("from_"), "from_", "--from"),
    "a number": (mark_option("jobs", 1), "jobs=1", "--jobs 1"),
    "text": (mark_option("from_", "litdata"), 'from_="litdata"', "--from litdata"),
    "no text": (mark_option("separator", ""), 'separator=""', "--separator ''"),
    "a switch": (mark_option("drop_last", True), "drop_last=True", "--drop-last"),
    "a switch turned off": (
        mark_option("special_tokens", False),
        "special_tokens=False",
        "--no-special-tokens",
    ),
    "an option turned off": (mark_option("jpeg_index", None), "jpeg_index=None", "--no-jpeg-index"),
    "names": (mark_option("exclude", ["a", "b c"]), 'exclude=["a", "b c"]', "--exclude 'a,b c'"),
    "a value for a column": (
        mark_option("nulls", "mask", column="weight"),
        'nulls={"weight": "mask"}',
        "--nulls weight=mask",
    ),
    "a form of images": (
        mark_option("image", "rgb", column="photo"),
        'image={"photo": "rgb"}',
        "--image photo:rgb",
    ),
    "a setting of a source": (
        mark_option("memory", "4G"),
        'settings={"memory": "4G"}',
        "--memory 4G",
    ),
    "the name of a setting": (mark_option("rows_attr"), 'settings["rows_attr"]', "--rows-attr"),
    "a quotation mark": (mark_option("exclude", ['a"b']), r'exclude=["a\"b"]', "--exclude 'a\"b'"),
}


@pytest.mark.parametrize(("text", "python", "shell"), SHOWN.values(), ids=SHOWN.keys())
def test_both_faces(text: str, python: str, shell: str) -> None:
    """An option is shown as its reader would write it; the text around it stays."""
    assert render_for_python(f"Give {text}, or not.") == f"Give {python}, or not."
    assert render_for_shell(f"Give {text}, or not.") == f"Give {shell}, or not."


def test_python_can_read_what_it_is_told() -> None:
    """What a Python user is told is an argument as Python reads it."""
    for text in (
        mark_option("nulls", "a'\"\n", column="x\\y"),
        mark_option("exclude", ["é", "\t"]),
    ):
        eval(f"dict({render_for_python(text)})", {})  # noqa: S307  # our own words


def test_first_option() -> None:
    """The first option that a text names is what an error is about."""
    assert (
        find_first_option(f"{mark_option('pad', True)} needs {mark_option('max_length')}") == "pad"
    )
    assert find_first_option("no option") is None


def test_data_cannot_make_marks() -> None:
    """Code points of marks within names from data neither end a mark nor begin one that fails."""
    mark = mark_option("nulls", "mask", column="x")
    for name in (mark, mark[:5], mark[-1], mark[0], mark[0] + "nulls" + mark[-1]):
        assert render_for_shell(mark_option("exclude", [name])).startswith("--exclude ")
        assert isinstance(render_for_python(f"no column {name!r} here"), str)
        assert isinstance(render_for_shell(f"no column {name} here"), str)
