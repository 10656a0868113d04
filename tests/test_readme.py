"""Every Python block of README.md runs as it stands."""

import contextlib
import re
import runpy
import shlex
import shutil
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from tests.forking import run_python
from tests.packer.sources.litdata.streams import write_stream, write_tokens
from tests.packer.tokenizing import TEXTS, trained

from fieldslab.bench.jetclass import CASES, make_files
from fieldslab.packer.cli import run

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")


def blocks(language: str) -> list[str]:
    """The blocks of a language, in order."""
    return re.findall(rf"^```{language}\n(.*?)^```", README, re.MULTILINE | re.DOTALL)


PYTHON = blocks("python")


def prepare(folder: Path) -> None:
    """Lay out the files that README speaks of."""
    photos = ROOT / "examples" / "photos.parquet"
    (folder / "train").mkdir()
    (folder / "train" / "photos.parquet").symlink_to(photos)
    pq.write_table(pa.table({"text": TEXTS}), folder / "texts.parquet")
    for index, image in enumerate(pq.read_table(photos)["image"].to_pylist()[:4]):
        (folder / "images" / "train" / "cat").mkdir(parents=True, exist_ok=True)
        (folder / "images" / "train" / "cat" / f"{index:03}.jpg").write_bytes(image)
    trained().save(str(folder / "tokenizer.json"))
    assert run(["pack", str(photos), "-o", "photos.slab", "--nulls=weight=mask", "-q"]) == 0
    texts = [block for block in blocks("sh") if "texts.parquet" in block]
    for command in "".join(texts).replace("\\\n", " ").splitlines():
        assert run([*shlex.split(command)[1:], "-q"]) == 0


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with these files; each block works in a copy."""
    folder = tmp_path_factory.mktemp("readme")
    with contextlib.chdir(folder):
        prepare(folder)
    return folder


def images(row: int) -> dict[str, object]:
    """A row of a stream like those that people train on."""
    return {"image": b"\xff\xd8\xff\xe0" + bytes([row]) * 20, "label": row}


@pytest.mark.filterwarnings("ignore")  # what libraries warn of when they are used as README does
@pytest.mark.parametrize("number", range(len(PYTHON)))
def test_a_block_runs(
    number: int, prepared: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No name is undefined, no file missing beside those that README has made before."""
    shutil.copytree(prepared, tmp_path, symlinks=True, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("datasets.config.HF_DATASETS_CACHE", tmp_path / "cache")
    if "jets/" in PYTHON[number]:
        (tmp_path / "jets").mkdir()
        make_files(tmp_path / "jets", CASES[0], files=2, rows=20)
    if "litdata/" in PYTHON[number]:
        write_stream(tmp_path / "imagenet-litdata", images, rows=61)
        write_tokens(
            tmp_path / "tokens-litdata", lambda row: torch.arange(1500), 4, chunk_tokens=3000
        )
    program = tmp_path / "block.py"
    program.write_text(PYTHON[number], encoding="utf-8")
    if "jax" in PYTHON[number]:  # after which a process should not fork any more
        run_python(program, JAX_PLATFORMS="cpu")
    else:
        runpy.run_path(str(program), run_name="__main__")
