"""Puts what was measured into README.md and docs/: between two comments, never by hand."""

from collections.abc import Iterable, Sequence
from pathlib import Path

from fieldslab.schemas.errors import UsageError

ROOT = Path(__file__).resolve().parent.parent
PAGES = (ROOT / "README.md", ROOT / "docs" / "explanation" / "benchmarks.md")
"""A table stands in one of them, or in both."""
RESULTS = ROOT / "bench" / "results"


def markdown_table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Format a table in Markdown, as in README.md and docs/."""
    lines = [_table_line(head), "|---" * len(head) + "|", *map(_table_line, rows)]
    return "\n".join(lines)


def _table_line(cells: Sequence[str]) -> str:
    return "|" + "|".join(f" {cell} " if cell else " " for cell in cells) + "|"


def publish(name: str, text: str) -> None:
    """Put a table wherever there is a place for it, with links as they are from there.

    `text` has links as from the root. Raises UsageError where no page has a place for it.
    """
    pages = [page for page in PAGES if f"<!-- {name}: start -->" in page.read_text()]
    for page in pages or PAGES[-1:]:
        up = "../" * (len(page.relative_to(ROOT).parts) - 1)
        put(name, text.replace("](bench/", f"]({up}bench/"), page)


def put(name: str, text: str, file: Path) -> None:
    """Replace what stands between `<!-- NAME: start -->` and `<!-- NAME: end -->`.

    Raises UsageError where the file has no such place.
    """
    start, end = f"<!-- {name}: start -->", f"<!-- {name}: end -->"
    head, has_start, rest = file.read_text().partition(start)
    _, also, tail = rest.partition(end)
    if not has_start or not also:
        raise UsageError(f"{file.name} has no place for {name}", hint=f"Write {start} and {end}.")
    file.write_text(f"{head}{start}\n{text}\n{end}{tail}")
