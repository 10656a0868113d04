"""Puts what was measured into README.md: between two comments, never by hand."""

from pathlib import Path

from fieldslab.schemas.errors import UsageError

ROOT = Path(__file__).resolve().parent.parent
README = ROOT / "README.md"
RESULTS = ROOT / "bench" / "results"


def put(name: str, text: str, file: Path = README) -> None:
    """Replace what stands between `<!-- NAME: start -->` and `<!-- NAME: end -->`.

    Raises UsageError where the file has no such place.
    """
    start, end = f"<!-- {name}: start -->", f"<!-- {name}: end -->"
    head, found, rest = file.read_text().partition(start)
    _, also, tail = rest.partition(end)
    if not found or not also:
        raise UsageError(f"{file.name} has no place for {name}", hint=f"Write {start} and {end}.")
    file.write_text(f"{head}{start}\n{text}\n{end}{tail}")
