"""The package of `examples/plugins/`, installed as a user would install it."""

import os
import runpy
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import ClassVar

import pytest
from tests.jpegs import encode
from tests.reader.decoders.battery import Battery

from fieldslab.schemas.images import CODES

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "examples" / "plugins"
DECODE = """
import sys
import numpy as np
from fieldslab.reader import CenterCrop, ImageSteps, Normalize, open_slab
slab = open_slab(sys.argv[1])
def views(decoder):
    steps = ImageSteps([CenterCrop(48), Normalize()], decoder=decoder)
    return slab.gather(range(len(slab)), ["image"], decode={"image": steps})["image"]
draft, roi = views("draft"), views("roi")
print(draft.shape, bool(np.abs(draft - roi).mean() < 0.1))
"""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder into which pip has installed the package."""
    folder = tmp_path_factory.mktemp("site")
    pip = [sys.executable, "-m", "pip", "install", "-q", "--no-index", "--no-deps"]
    options = ["--no-build-isolation", "--no-compile", "--target", str(folder)]
    subprocess.run([*pip, *options, str(PACKAGE)], check=True)
    return folder


def run(site: Path, *arguments: object) -> subprocess.CompletedProcess[str]:
    """Run python where the package is installed."""
    paths = os.pathsep.join([str(ROOT / ".ns"), str(site)])
    return subprocess.run(
        [sys.executable, *map(str, arguments)],
        env={**os.environ, "PYTHONPATH": paths},
        capture_output=True,
        text=True,
        check=False,
    )


def test_the_source_packs_its_files(site: Path, tmp_path: Path) -> None:
    """Two files are packed, in order, and `verify --against` finds no difference."""
    paths = [tmp_path / "a.psv", tmp_path / "b.psv"]
    paths[0].write_text("name|height\nAda|1.5\nBob|2\n")
    paths[1].write_text("name|height\nCem|1.25\n")
    slab = tmp_path / "people.slab"
    packed = run(site, "-m", "fieldslab", "pack", *paths, "-o", slab)
    assert packed.returncode == 0, packed.stderr
    shown = run(site, "-m", "fieldslab", "head", slab, "-n", 3).stdout
    assert [word in shown for word in ("Ada", "Bob", "Cem", "1.25")] == [True] * 4
    against = [word for path in paths for word in ("--against", path)]
    verified = run(site, "-m", "fieldslab", "verify", slab, *against)
    assert verified.returncode == 0, verified.stdout + verified.stderr


def test_the_source_names_what_is_wrong(site: Path, tmp_path: Path) -> None:
    """Other columns, and values that do not fit, are errors with the file's name."""
    paths = [tmp_path / "a.psv", tmp_path / "b.psv"]
    paths[0].write_text("name|height\nAda|1.5\n")
    for content, problem in (
        ("name|weight\nCem|60\n", "other columns than in the first file"),
        ("name|height\nCem|tall\n", "'tall'"),
    ):
        paths[1].write_text(content)
        packed = run(site, "-m", "fieldslab", "pack", *paths, "-o", tmp_path / "x.slab")
        assert packed.returncode in (3, 4)
        assert problem in packed.stderr
        assert "b.psv" in packed.stderr


def test_the_decoder_decodes(site: Path, tmp_path: Path) -> None:
    """It is listed, found by its name, and shows what the built-in decoder shows."""
    slab = tmp_path / "photos.slab"
    source = ROOT / "examples" / "photos.parquet"
    run(site, "-m", "fieldslab", "pack", source, "-o", slab, "--fields=image", "--rows=0:8")
    done = run(site, "-c", DECODE, slab)
    assert done.stdout == "(8, 3, 48, 48) True\n", done.stderr
    assert "draft" in run(site, "-m", "fieldslab", "info", "--decoders").stdout


class TestDraftDecoder(Battery):
    """What every decoder must hold to holds for the example; its views are less accurate."""

    decoder = runpy.run_path(str(PACKAGE / "draft_decoder.py"))["DraftDecoder"]()
    encodings: ClassVar = {name: partial(encode, sampling=name) for name in ("4:4:4", "4:2:0")}
    code = CODES["jpeg"]
    mutations = 50
    most_mean, least_psnr, least_single = 2.0, 30.0, 25.0
