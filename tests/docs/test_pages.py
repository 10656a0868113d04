"""The documentation is true: its code runs, its links lead somewhere, nothing is left out."""

import re
import shlex
from pathlib import Path

import pytest
from tests.docs.pages import DOCS, ROOT, Mismatch, blocks, commands, run_in, run_page
from tests.forking import run_python
from tests.naming import case

import fieldslab.packer
import fieldslab.reader
from fieldslab.packer import pack
from fieldslab.packer.cli import program

PAGES = sorted(DOCS.rglob("*.md"))
ALONE = ["tutorials/ddp.md", "howto/lightning.md", "howto/augmentation.md", "howto/jax.md"]
"""Pages for a process of their own: the first forks, the second imports Lightning, the third mends
torchvision where it is only half of itself, and after the last no process should fork any more."""
RUNNABLE = [
    page for page in PAGES if any(block.language in ("python", "console") for block in blocks(page))
]


def name_of(page: Path) -> str:
    """A page as it is named in the output of tests."""
    return str(page.relative_to(DOCS))


@pytest.fixture(scope="session")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """`photos.slab`, which most pages begin with."""
    path = tmp_path_factory.mktemp("docs") / "photos.slab"
    pack(ROOT / "examples" / "photos.parquet", path, nulls={"weight": "mask"})
    return path


@pytest.mark.filterwarnings("ignore")  # what libraries warn of when they are used as shown
@pytest.mark.parametrize(
    "page", [page for page in RUNNABLE if name_of(page) not in ALONE], ids=name_of
)
def test_the_code_of_a_page_runs(page: Path, photos: Path, tmp_path: Path) -> None:
    """From top to bottom, beside the repository's examples, and prints what the page shows."""
    run_in(tmp_path / "page", photos, page)


def test_the_code_of_other_pages_runs_in_a_process_of_its_own(photos: Path, tmp_path: Path) -> None:
    """As above, for those that would leave something behind in this process."""
    pages = [DOCS / name for name in ALONE]
    run_python(ROOT / "tests/docs/pages.py", tmp_path, photos, *pages, JAX_PLATFORMS="cpu")


def test_a_page_that_shows_something_else_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Times may differ, a line may be left out by dots; any other difference is an error."""
    monkeypatch.chdir(tmp_path)
    page = tmp_path / "page.md"
    page.write_text("```python\nprint('a 12 ms')\nprint('b')\n```\n\n```text\na 7 ms\n...\n```\n")
    run_page(page)
    page.write_text("```python\nprint('a')\n```\n\n```text\nb\n```\n")
    with pytest.raises(Mismatch, match=r"page\.md:6: the page shows"):
        run_page(page)
    page.write_text("```console\n$ fieldslab info nothing.slab\n```\n")
    with pytest.raises(Mismatch, match=r"page\.md:2: exit code 3"):
        run_page(page)


def test_commands_that_are_only_shown_can_be_parsed() -> None:
    """In blocks of sh, every option of fieldslab is one that there is."""
    for page, block in ((path, block) for path in PAGES for block in blocks(path)):
        if block.language != "sh":
            continue
        text = block.text.replace("\\\n", " ")
        for line in re.findall(r"^(?:.*&& )?fieldslab ([^#|;&\n]*)", text, re.MULTILINE):
            name, *arguments = shlex.split(line)
            command = program.get_command(None, name)
            with case(name_of(page), line):
                assert command is not None
                command.make_context(name, arguments)  # raises where an option is unknown


def test_links_between_pages_lead_somewhere() -> None:
    """Each link to a file, and each page of a table of contents, is there."""
    for page in PAGES:
        text = re.sub(r"```.*?```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
        for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", text):
            assert (page.parent / target).exists(), f"{page}: {target}"


def test_every_public_name_is_in_the_reference() -> None:
    """What can be imported from reader and packer is described there, and nothing twice."""
    text = "".join(page.read_text(encoding="utf-8") for page in (DOCS / "reference").glob("*.md"))
    described = re.findall(r"^\.\. auto\w+:: fieldslab\.(\w+\.\w+)$", text, re.MULTILINE)
    assert len(described) == len(set(described))
    names = {f"reader.{name}" for name in fieldslab.reader.__all__}
    names |= {f"packer.{name}" for name in fieldslab.packer.__all__}
    assert names <= set(described)


def test_every_page_is_in_a_table_of_contents() -> None:
    """Whoever begins at the first page can reach all others."""
    listed = {DOCS / "index.md"}
    for page in PAGES:
        for block in blocks(page):
            if block.language == "{toctree}":
                names = [line for line in block.text.splitlines() if line and line[0] != ":"]
                listed |= {(page.parent / f"{name}.md").resolve() for name in names}
    notebooks = {path.with_suffix(".md") for path in (DOCS / "notebooks").glob("*.ipynb")}
    assert set(PAGES) | notebooks == listed


def test_commands_below_each_other_are_told_apart(tmp_path: Path) -> None:
    """A command may go on in the next line; what it prints ends where the next one begins."""
    page = tmp_path / "page.md"
    page.write_text("x\n```console\n$ a \\\n    b\nshown\n$ c\n```\n")
    (block,) = blocks(page)
    assert [(n, " ".join(c.split()), t) for n, c, t in commands(block)] == [
        (3, "a b", "shown\n"),
        (6, "c", ""),
    ]


def test_files_that_contributors_are_sent_to_exist() -> None:
    """Each path in CONTRIBUTING.md and on the pages is there; `NAME` stands for any."""
    for page in (ROOT / "CONTRIBUTING.md", *PAGES):
        text = page.read_text(encoding="utf-8")
        named = r"`((?:packer|reader|schemas|bench|tests|docs|examples)/[\w./-]+)`"
        for path in re.findall(named, text):
            with case(page.name, path):
                assert "NAME" in path or "FOLDER" in path or (ROOT / path).exists()
