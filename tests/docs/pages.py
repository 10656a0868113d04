"""Runs the code of a page of the documentation, from top to bottom, in a folder of its own.

- A ```python block runs; all blocks of a page share their names. One whose first line is
  `# NAME.py` is written to that file instead, for a command below it.
- A ```console block has commands after `$`: `fieldslab` is called in this process, `torchrun` forks
  it (see ranks.py). What stands below a command is what it prints.
- A ```text block right below Python is what that prints.

Printed text may differ in times and speeds; `...` stands for any text within a line, and alone on
a line for any lines. Pages can be run as a program, too:

    python tests/docs/pages.py FOLDER SLAB PAGE...      # SLAB: a packed examples/photos.parquet
"""

import contextlib
import io
import re
import shlex
import shutil
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from tests.docs.ranks import launch

from fieldslab.packer.cli import run

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"

_BLOCK = re.compile(r"^(`{3,})(\S*)[^\n]*\n(.*?)^\1$", re.MULTILINE | re.DOTALL)
_FILE = re.compile(r"# (\w+\.py)\n")
_TIMED = re.compile(r"\d[\d.,]* ?(?:s|ms|us|[kMG]?B/s|%)(?=\W|$)")


class Block(NamedTuple):
    """A fenced block: its language, its text, and the line that its text starts at."""

    language: str
    text: str
    line: int
    adjoins: bool
    """Whether only blank lines stand between it and the block before."""


class Mismatch(AssertionError):
    """A page says that something else is printed."""


def blocks(page: Path) -> list[Block]:
    """The fenced blocks of a page, in order."""
    text = page.read_text(encoding="utf-8")
    results: list[Block] = []
    end = 0
    for match in _BLOCK.finditer(text):
        line = text.count("\n", 0, match.start(3)) + 1
        adjoins = bool(results) and not text[end : match.start()].strip()
        results.append(Block(match[2], match[3], line, adjoins))
        end = match.end()
    return results


def run_in(folder: Path, photos: Path, page: Path) -> None:
    """Run a page in a folder with the repository's examples, and with `photos.slab`."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "examples").symlink_to(ROOT / "examples")
    if "-o photos.slab" not in page.read_text(encoding="utf-8"):
        shutil.copytree(photos, folder / "photos.slab")
    with contextlib.chdir(folder):
        run_page(page)


def run_page(page: Path) -> None:
    """Run all blocks of a page in the working directory. Raises whatever is wrong with one."""
    names: dict[str, Any] = {"__name__": "__main__"}
    actual = blocks(page)
    for block, following in zip(actual, [*actual[1:], None], strict=True):
        if block.language == "python":
            printed = _run_python(page, block, names)
            if following is not None and following.language == "text" and following.adjoins:
                _compare(page, following.line, following.text, printed)
        elif block.language == "console":
            for line, command, expected in commands(block):
                _compare(page, line, expected, _run_command(page, line, command))


def commands(block: Block) -> Iterator[tuple[int, str, str]]:
    """Each command of a console block: its line, itself, and what is shown below it."""
    text = block.text.replace("\\\n", "\0")
    for match in re.finditer(r"^\$ (.*)\n((?:(?!\$ ).*\n)*)", text, re.MULTILINE):
        before = text[: match.start()]
        line = block.line + before.count("\n") + before.count("\0")
        yield line, match[1].replace("\0", " "), match[2]


def _run_python(page: Path, block: Block, names: dict[str, Any]) -> str:
    named = _FILE.match(block.text)
    if named:
        Path(named[1]).write_text(block.text, encoding="utf-8")
        return ""
    printed = io.StringIO()
    code = compile("\n" * (block.line - 1) + block.text, str(page), "exec")
    with contextlib.redirect_stdout(printed):
        exec(code, names)  # noqa: S102  # our own pages
    return printed.getvalue()


def _run_command(page: Path, line: int, command: str) -> str:
    program, *arguments = shlex.split(command)
    if program == "fieldslab":
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            code = run(arguments)
        text = printed.getvalue()
    elif program == "torchrun":
        code, text = launch(arguments)
    else:
        raise Mismatch(f"{page}:{line}: {program} is not run here: use a block of sh")
    if code:
        raise Mismatch(f"{page}:{line}: exit code {code} of: {command}\n{text}")
    return text


def _compare(page: Path, line: int, expected: str, printed: str) -> None:
    """Compare what a page shows with what was printed; nothing shown is no claim."""
    wanted, got = _plain(expected), _plain(printed)
    if wanted and not re.fullmatch(_pattern(wanted), got, re.DOTALL):
        raise Mismatch(f"{page}:{line}: the page shows\n{wanted}\n\nbut this is printed:\n{got}")


def _plain(text: str) -> str:
    lines = [" ".join(line.split()) for line in _TIMED.sub("TIME", text).splitlines()]
    return "\n".join(line for line in lines if line)


def _pattern(wanted: str) -> str:
    lines = [
        r".*?" if line == "..." else re.escape(line).replace(r"\.\.\.", r"[^\n]*?")
        for line in wanted.split("\n")
    ]
    return r"\n".join(lines)


def declare_operators_of_torchvision() -> None:
    """Let torchvision be imported where its compiled part does not fit a torch for the CPU alone.

    Transforms need none of these operators: on import they are only asked for their names.
    """
    import torch

    library: Any = torch.library

    try:
        import torchvision  # noqa: F401
    except RuntimeError:
        for name in ("nms", "qnms"):
            operators = library.Library("torchvision", "FRAGMENT")
            operators.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
            _OPERATORS.append(operators)
        for name in [name for name in sys.modules if name.startswith("torchvision")]:
            del sys.modules[name]


_OPERATORS: list[Any] = []
"""Operators are gone with the object that declared them."""


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    for page in map(Path, sys.argv[3:]):
        if "torchvision" in page.read_text(encoding="utf-8"):
            declare_operators_of_torchvision()
        run_in(Path(sys.argv[1]) / page.stem, Path(sys.argv[2]), page)
