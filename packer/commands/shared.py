"""What the commands share: options of several of them, and verifying behind a bar."""

from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import click

from fieldslab.packer.check.findings import Problem, Report
from fieldslab.packer.commands.events import MODES
from fieldslab.packer.commands.params import MESSAGES, PATH, Argument, Option
from fieldslab.schemas.errors import UsageError
from fieldslab.schemas.optiontext import mark_option

SLABS_HELP = (
    "A directory that pack wrote, its URL, or many as one: NAME.slabs, or a pattern in quotes."
)
SLABS = Argument("slab", "SLAB", SLABS_HELP, type=PATH)
SLAB_LIST = Argument(
    "slabs",
    "SLAB...",
    "Directories that pack wrote, their URLs, files NAME.slabs, or patterns in quotes.",
    type=PATH,
)
MISSING = Option(
    "--missing",
    "Options",
    "Of many slabs: read nulls where a slab lacks a field that others have.",
    "null",
    type=click.Choice(["null"]),
)
ROWS_FILE = Option(
    "--rows-file",
    "Options",
    "Only these rows: a .rows file of a saved view, a .npy file of row numbers, or a text file "
    "with a number per line.",
    "FILE",
    type=click.Path(readable=False, path_type=Path),
)
WHERE = Option(
    "--where",
    "Options",
    'Only rows for which this is true, such as "label in [3, 5] and not is_null(caption)".',
    "CONDITION",
)
ID = Option(
    "--id content",
    "Options",
    "The id that the slab must have, as `fieldslab info` shows it: all of it, or the first 16 "
    "digits or more. Another slab is refused.",
    "ID",
)
STORES = "Buckets, web servers and their cache"
JSON = Option("--json as_json", MESSAGES, "Print results and errors as JSON.")
PROGRESS = Option(
    "--progress",
    MESSAGES,
    "'auto' draws a bar on a terminal, 'json' writes events to stderr, one JSON object per line, "
    "with warnings and errors among them, 'none' writes nothing.",
    "MODE",
    type=click.Choice(MODES),
    default="auto",
)
FOLLOW_LINKS = Option(
    "--follow-links",
    "Options",
    "Follow links in the slab, as in the caches of Hugging Face and DVC.",
)


def parse_storage_options(pairs: Sequence[str]) -> dict[str, Any] | None:
    """Parse `KEY=VALUE` pairs; `retry_config.max_retries=3` is a member of a member.

    None where there is no pair. Raises UsageError, which repeats no value: it may be a secret.
    """
    options: dict[str, Any] = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        *groups, key = name.split(".")
        if not (equals and key and all(groups)):
            raise UsageError(
                f"{mark_option('storage_options')}: not an option of a store",
                expected="KEY=VALUE, such as region=us-east-1",
                found=name if equals else "no `=`",
            )
        members = options
        for group in groups:
            members = members.setdefault(group, {})
        members[key] = _parse_number(value) if groups[:1] == ["retry_config"] else value
    return options or None


def _parse_number(text: str) -> int | float | str:
    for parse in (int, float):
        with suppress(ValueError):
            return parse(text)
    return text


STORAGE_OPTION = Option(
    "--storage-option storage_options",
    STORES,
    "An option of obstore for URLs, such as region=us-east-1 or skip_signature=true. "
    "May be repeated. Secrets belong in the environment: other users see command lines.",
    "KEY=VALUE",
    multiple=True,
    callback=lambda context, param, pairs: parse_storage_options(pairs),
)
CACHE_DIR = Option(
    "--cache-dir",
    STORES,
    "The cache directory. Default: FIELDSLAB_CACHE_DIR, or ~/.cache/fieldslab/slabs.",
    "DIR",
    type=PATH,
)
OPENING = (
    MISSING,
    STORAGE_OPTION,
    CACHE_DIR,
    Option("--cache-limit", STORES, "Bytes that the cache may take, e.g. 500G.", "SIZE"),
    Option("--cache-shared", STORES, "Allow a cache directory into which others may write."),
)
"""Those of `open_slab`, under the same names, for commands that read through a cache."""


def verify_with_bar(slab: str | Path, *, hidden: bool, silent: bool, **options: Any) -> Report:
    """Verify one slab behind a progress bar; problems are printed as they come."""
    from fieldslab.packer.check.verify import compute_expected_bytes, verify
    from fieldslab.packer.commands.progress import show_bar

    def print_problem(problem: Problem) -> None:
        if not silent:
            print(problem.with_shell_words(), flush=True)

    total = compute_expected_bytes(slab, **options)
    with show_bar("verifying", str(slab), total, "bytes", hidden=hidden) as progress:
        report = verify(slab, progress=progress, tell=print_problem, **options)
    report.problems = [problem.with_shell_words() for problem in report.problems]
    return report
