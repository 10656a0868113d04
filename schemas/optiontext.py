"""Options named in messages: a message is written once, and shown in the words of its reader.

A Python user is told about `jobs=1`, a user of the command line about `--jobs 1`. A message names
options with `mark_option`, which leaves a mark in the text. `render_for_python` and
`render_for_shell` turn the marks into words: errors call the first, the command line the second.
"""

import json
import re
import shlex
from collections.abc import Callable, Sequence
from typing import Any

_OPEN, _NEXT, _CLOSE = "\U000fab00", "\U000fab01", "\U000fab02"
"""Code points for private use: no data contains them but to confuse, and then nothing happens."""
_MARK = re.compile(f"{_OPEN}([^{_OPEN}{_CLOSE}]*){_CLOSE}")
_KINDS = {"bare": 0, "switch": 1, "number": 1, "text": 1, "column": 2}
"""How many values a mark of each kind has; one of "names" has any number."""
_BARE: Any = object()

_SETTINGS = {
    "annotations",
    "json_fields",
    "unmatched",
    "block",
    "drop_extra_step",
    "episode_attrs",
    "episodes",
    "external",
    "key",
    "key_password_file",
    "memory",
    "raw",
    "delimiter",
    "unify",
    "npy_files",
    "table_version",
    "header",
    "rows_attr",
    "rows_axis",
}
"""Options of the command line that Python passes to a source, in `settings`."""
_IN_SHELL = {"from_": "from", "storage_options": "storage-option", "tokenizers": "tokenizer"}
_WITH_COLON = {"image", "ragged"}
"""Options of columns that the command line writes as COLUMN:VALUE; all others have COLUMN=VALUE."""


def mark_option(name: str, value: Any = _BARE, *, column: str | None = None) -> str:
    """Mark an option within a message, so that it is shown in the reader's words.

    Parameters
    ----------
    name
        As Python spells it, such as `shard_size`.
    value
        What to give: True or False for a switch, None for the option switched off, a list of
        names, or text. Only the option's name is shown if this is left out.
    column
        The column that the value is for.
    """
    if value is _BARE:
        parts = ["bare"]
    elif value is None or isinstance(value, bool):
        parts = ["switch", str(value)]
    elif column is not None:
        parts = ["column", column, str(value)]
    elif isinstance(value, Sequence) and not isinstance(value, str):
        parts = ["names", *value]
    else:
        parts = ["number" if isinstance(value, int) else "text", str(value)]
    parts = [re.sub(f"[{_OPEN}{_NEXT}{_CLOSE}]", "?", part) for part in parts]
    return f"{_OPEN}{_NEXT.join([name, *parts])}{_CLOSE}"


def render_for_python(text: str) -> str:
    """Render the text in the words of a Python user: `nulls={"weight": "mask"}`."""
    return _render_marks(text, _format_for_python)


def render_for_shell(text: str) -> str:
    """Render the text in the words of the command line: `--nulls weight=mask`."""
    return _render_marks(text, _format_for_shell)


def render_for_docs(text: str) -> str:
    """Render the text for a docstring, with options and quoted words as code."""
    text = _MARK.sub(lambda mark: f"`{render_for_python(mark[0])}`", text)
    return re.sub(r"(?<!\w)'([^' ][^']*)'", r"`\1`", text)


def find_first_option(text: str) -> str | None:
    """Find the name of the first option in a text that is not rendered yet; None without one."""
    match = _MARK.search(text)
    return None if match is None else match[1].partition(_NEXT)[0]


def _render_marks(text: str, show: Callable[[str, str, list[str]], str]) -> str:
    def render_mark(match: re.Match[str]) -> str:
        name, _, rest = match[1].partition(_NEXT)
        kind, *values = rest.split(_NEXT)
        known = kind == "names" or _KINDS.get(kind) == len(values)
        return show(name, kind, values) if known else match[0]

    return _MARK.sub(render_mark, text)


def _format_for_python(name: str, kind: str, values: list[str]) -> str:
    if kind == "names":
        value = f"[{', '.join(map(_quote, values))}]"
    elif kind == "column":
        value = f"{{{_quote(values[0])}: {_quote(values[1])}}}"
    elif kind == "text":
        value = _quote(values[0])
    else:
        value = "".join(values)
    if name in _SETTINGS:
        return f"settings={{{_quote(name)}: {value}}}" if value else f"settings[{_quote(name)}]"
    return f"{name}={value}" if value else name


def _format_for_shell(name: str, kind: str, values: list[str]) -> str:
    flag = f"--{_IN_SHELL.get(name, name).replace('_', '-')}"
    if kind == "switch":
        return flag if values == ["True"] else f"--no-{flag[2:]}"
    if kind == "column":
        values = [(":" if name in _WITH_COLON else "=").join(values)]
    return f"{flag} {shlex.quote(','.join(values))}" if values else flag


def _quote(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)
