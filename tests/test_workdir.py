"""Nothing in the working directory decides anything, let alone runs."""

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.packer.sources.every_source import write_iceberg

_ROOT = Path(__file__).parents[1]
_PROGRAM = str(Path(sys.executable).with_name("fieldslab"))
_MODULES = (
    "numba yaml pyarrow sitecustomize usercustomize litdata msgspec numpy rich click h5py "
    "matplotlib llvmlite fieldslab multiprocessing pickle runpy json struct signal encodings "
    "concurrent zstandard xxhash evil"
)
# What a library would take for settings: none of it can be read as such.
_SETTINGS = (
    ".numba_config.yaml matplotlibrc pyproject.toml setup.cfg .env pip.conf lightning.yaml "
    ".litdata litdata.yaml litserve.yaml config.json tokenizer_config.json .pyiceberg.yaml"
)
_ENTRY_POINTS = "\n".join(
    f"[{group}]\nevil = evil:evil"
    for group in (
        "fieldslab.commands",
        "fieldslab.sources",
        "fieldslab.decoders",
        "fieldslab.stores",
        "numba_extensions",
    )
)
_COMMANDS = """
import json, sys
from fieldslab.packer.cli import run
slab, out = sys.argv[1:]
commands = ["--version", "--help", f"verify {slab}", f"info {slab}", "info --decoders",
            f"head {slab}", f"advise {slab}", f"bench {slab} --seconds 0.1", "verify nowhere"]
codes = [run(command.split()) for command in commands]
from fieldslab.bench.report import style  # charts, by matplotlib
from fieldslab.reader import Loader, open_slab
rows = sum(len(batch.rows) for batch in Loader(open_slab(slab), 4))
json.dump([codes, rows], open(out, "w"))
"""
_IMPORTED_BEFORE = """
import os, sys
import numba
os.chdir(sys.argv[1])
from fieldslab.reader import open_slab
open_slab(sys.argv[2]).gather([1, 0])
from fieldslab.schemas.jit import kernel
kernel("int64(int64)")(lambda value: value)
"""


class Download:
    """A directory that was downloaded, with a slab beside it, and programs that run there."""

    def __init__(self, folder: Path) -> None:
        self.canary = folder / "canary"
        self.source, self.slab = folder / "x.parquet", folder / "x.slab"
        self.scripts, self.place = folder / "scripts", folder / "download"
        self.scripts.mkdir()
        self.place.mkdir()
        pq.write_table(pa.table({"x": range(40)}), self.source, row_group_size=10)
        for name in _MODULES.split():
            code = f"open({str(self.canary)!r}, 'a').write({name!r})\ndef evil(): pass\n"
            (self.place / f"{name}.py").write_text(code)
        for name in _SETTINGS.split():
            (self.place / name).write_bytes(b"\xff\xfe{[\x00 !!python/object/apply:os.getcwd [")
        package = self.place / "evil-1.0.dist-info"
        package.mkdir()
        (package / "METADATA").write_text("Metadata-Version: 2.1\nName: evil\nVersion: 1.0\n")
        (package / "entry_points.txt").write_text(_ENTRY_POINTS)

    def run(self, *command: object, place: Path | None = None) -> subprocess.CompletedProcess[str]:
        """What a command does there, without the directories that tests add."""
        environment = os.environ | {"PYTHONPATH": str(_ROOT / ".ns")}
        environment.pop("PYTHONSAFEPATH", None)
        return subprocess.run(
            list(map(str, command)),
            cwd=place or self.place,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )

    def script(self, code: str) -> Sequence[object]:
        """A program of the user's, which lies elsewhere."""
        path = self.scripts / f"{len(list(self.scripts.iterdir()))}.py"
        path.write_text(code)
        return sys.executable, path


@pytest.fixture(scope="module")
def download(tmp_path_factory: pytest.TempPathFactory) -> Download:
    """Such a directory, and a slab that was packed there by two processes."""
    download = Download(tmp_path_factory.mktemp("workdir"))
    before = sorted(download.place.rglob("*"))
    rows = ("--jobs", 2, "--shard-size", 80, "--verify")
    done = download.run(_PROGRAM, "pack", download.source, "-o", download.slab, *rows)
    assert done.returncode == 0, done.stderr
    assert len(list(download.slab.glob("shard-*"))) > 1  # or no worker was started
    assert sorted(download.place.rglob("*")) == before
    return download


def test_what_lies_there_would_run(download: Download) -> None:
    """The files are what they should be: Python itself imports one, and numba fails at another."""
    done = download.run(sys.executable, "-B", "-c", "import evil")
    assert download.canary.read_text() == "evil", done.stderr
    download.canary.unlink()
    assert download.run(*download.script("import numba")).returncode != 0
    assert download.run(*download.script("import matplotlib")).returncode != 0


def test_packing_in_processes_runs_nothing_there(download: Download) -> None:
    """Workers are interpreters of their own, and find no module there either."""
    assert not download.canary.exists()


def test_commands_and_programs_run_nothing_there(download: Download) -> None:
    """Every command that reads, and the reader, do there what they do elsewhere."""
    out = download.scripts.parent / "out.json"
    done = download.run(*download.script(_COMMANDS), download.slab, out)
    assert not download.canary.exists(), download.canary.read_text()
    assert done.returncode == 0, done.stderr
    assert json.loads(out.read_text()) == [[0, 0, 0, 0, 0, 0, 0, 0, 3], 40]


def test_numba_reads_no_settings_later(download: Download) -> None:
    """Where a program imported numba first, its file is not read in the next directory."""
    command = (*download.script(_IMPORTED_BEFORE), download.place, download.slab)
    done = download.run(*command, place=download.scripts)
    assert done.returncode == 0, done.stderr


def test_iceberg_reads_no_settings(download: Download, tmp_path: Path) -> None:
    """Settings of pyiceberg that lie there are not read: they would change values."""
    write_iceberg(tmp_path, [pa.table({"x": [1, 2]})])
    script = "import sys; from fieldslab.packer import pack; pack(*sys.argv[1:])"
    source, out = tmp_path / "ns" / "t", tmp_path / "out"
    done = download.run(*download.script(script), source, out)
    assert done.returncode == 0, done.stderr
    assert not download.canary.exists()
