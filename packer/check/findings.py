"""What a check of a slab found: problems, one line each, and the report."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Protocol

from fieldslab.packer.commands.text_format import (
    escape_controls,
    format_count,
    format_duration,
    format_rate,
    format_size,
)
from fieldslab.schemas.errors import FieldslabError, RemoteUnreadable
from fieldslab.schemas.optiontext import render_for_shell


class VerifyProgress(Protocol):
    """Called with what was done since the last call; the command line draws a bar from it."""

    def __call__(self, rows: int, bytes: int) -> None:
        """Add rows and bytes to what was done."""


@dataclass(frozen=True, kw_only=True)
class Problem:
    """One thing that is wrong.

    `rows` are the first and the last row of the slab that may be affected, None where no row is;
    `offset` counts bytes from the start of `file`.
    """

    problem: str
    file: str | None = None
    field: str | None = None
    rows: tuple[int, int] | None = None
    offset: int | None = None
    expected: str | None = None
    found: str | None = None
    shell: str | None = None
    """`problem` in the words of the command line, where it names options."""

    def __str__(self) -> str:
        subject = [self.field] if self.field is not None else []
        if self.rows is not None:
            first, last = self.rows
            subject.append(f"row {first}" if first == last else f"rows {first}..{last}")
        place_parts = [self.file] if self.file is not None else []
        if self.offset is not None:
            place_parts.append(f"offset {self.offset}")
        parts = [" ".join(part) for part in (subject, place_parts) if part]
        text = ": ".join([*parts, self.problem])
        pairs = [("expected", self.expected), ("found", self.found)]
        details = [f"{key} {value}" for key, value in pairs if value is not None]
        return escape_controls(f"{text} ({', '.join(details)})" if details else text)

    def as_dict(self) -> dict[str, Any]:
        """Return the problem as JSON-ready values; members that are not known are left out."""
        members = {key: value for key, value in vars(self).items() if value is not None}
        members.pop("shell", None)
        return members

    def with_shell_words(self) -> "Problem":
        """Return the problem in the words of the command line."""
        return self if self.shell is None else replace(self, problem=self.shell)


def make_problem(
    error: FieldslabError, rows: tuple[int, int] | None = None, prefix: str = ""
) -> Problem:
    """Turn a named error into a problem, with `prefix` in front of its text.

    Raises it instead if it is a RemoteUnreadable: a store that fails is no damage of the slab.
    """
    if isinstance(error, RemoteUnreadable):
        raise error
    context = dict(error.context)
    row = context.pop("row", None)
    if rows is None and isinstance(row, int):
        rows = (row, row)
    texts = {
        key: str(context[key]) for key in ("file", "field", "expected", "found") if key in context
    }
    shell = None if error.option is None else prefix + render_for_shell(error.marked[0])
    return Problem(
        problem=prefix + error.problem,
        rows=rows,
        offset=context.get("offset"),
        shell=shell,
        **texts,
    )


@dataclass
class Report:
    """What `verify` found. `problems` holds the first of them, `count` says how many there are."""

    path: Path
    rows: int = 0
    fields: int = 0
    bytes: int = 0
    seconds: float = 0.0
    scope: str = "all"
    compared: bool = False
    count: int = 0
    problems: list[Problem] = field(default_factory=list)

    @property
    def ok(self) -> bool:
        """Whether nothing is wrong."""
        return self.count == 0

    @property
    def hint(self) -> str | None:
        """What to do about the problems; None where there is none."""
        if self.ok:
            return None
        if self.compared:
            return (
                "Run verify without a source to see whether the slab is damaged. If it is not, the "
                "source has changed."
            )
        return "`fieldslab repair` repairs it from a copy or from the source."

    def __repr__(self) -> str:
        return f"Report({escape_controls(str(self))})"

    def __str__(self) -> str:
        totals = f"{format_size(self.bytes)} checked in {format_duration(self.seconds)}"
        if self.bytes and self.seconds:
            totals += f", {format_rate(self.bytes, self.seconds)}"
        scope = "" if self.scope == "all" else f" ({self.scope})"
        counts = f"{format_count(self.rows, 'row')}, {format_count(self.fields, 'field')}"
        text = f"{counts}, {totals}{scope}"
        if self.ok:
            return f"OK: {self.path}: {text}"
        shown = f", {len(self.problems)} of them shown" if self.count > len(self.problems) else ""
        problems = format_count(self.count, "problem")
        return f"FAILED: {problems} in {self.path}{shown}; {text}. {self.hint}"

    def as_dict(self) -> dict[str, Any]:
        """Return the report as JSON-ready values."""
        return {
            "path": str(self.path),
            "ok": self.ok,
            "scope": self.scope,
            "rows": self.rows,
            "fields": self.fields,
            "bytes": self.bytes,
            "seconds": round(self.seconds, 3),
            "problem_count": self.count,
            "hint": self.hint,
            "problems": [problem.as_dict() for problem in self.problems],
        }


class Findings:
    """Collects problems: keeps the first few, counts all, and tells each one that it keeps."""

    def __init__(
        self, report: Report, keep: int, tell: Callable[[Problem], None] | None = None
    ) -> None:
        self.report = report
        self._keep = keep
        self._tell = tell

    def add(self, problem: Problem) -> None:
        """Enter one problem."""
        self.report.count += 1
        if len(self.report.problems) < self._keep:
            self.report.problems.append(problem)
            if self._tell is not None:
                self._tell(problem)
