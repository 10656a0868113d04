"""The programs in `examples/`, run as a reader of the README would."""

import re
from pathlib import Path

import pytest
from tests.forking import run_python

from fieldslab.packer import pack
from fieldslab.reader import open_slab

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The example's photographs, packed."""
    path = tmp_path_factory.mktemp("examples") / "photos.slab"
    pack(ROOT / "examples" / "photos.parquet", path, nulls={"weight": "mask"})
    return path


def run(program: str, *arguments: object) -> str:
    """What a program prints."""
    return run_python(ROOT / "examples" / program, *arguments, JAX_PLATFORMS="cpu")


@pytest.mark.parametrize("program", ["train_torch.py", "train_grain.py"])
def test_training_lowers_the_loss(program: str, photos: Path) -> None:
    """The loss of the last of twenty epochs is well below that of the first."""
    losses = [float(loss) for loss in re.findall(r"loss ([\d.]+)", run(program, photos))]
    assert len(losses) == 20
    assert losses[-1] < 0.8 * losses[0]


def test_network_tells_photographs_apart(photos: Path) -> None:
    """Decoded and augmented in the loader, images teach it; plain crops are then told apart."""
    printed = run("train_images.py", photos)
    losses = [float(loss) for loss in re.findall(r"loss ([\d.]+)", printed)]
    assert losses[-1] < 0.5 * losses[0]
    assert int(re.findall(r"right (\d+)%", printed)[0]) > 70


def test_language_model_learns() -> None:
    """It packs a text as tokens, and the loss of the last of twenty epochs is far lower."""
    printed = run("train_language_model.py", ROOT / "LICENSE")
    losses = [float(loss) for loss in re.findall(r"loss ([\d.]+)", printed)]
    assert len(losses) == 20
    assert losses[-1] < 0.5 * losses[0]


def test_jets_are_told_apart() -> None:
    """Padded HDF5 is packed ragged, and the model tells narrow jets from those with two cores."""
    printed = run("train_jetclass.py")
    assert "1,000 jets" in printed
    assert [int(right) for right in re.findall(r"right (\d+)%", printed)][-1] > 90


def test_lightning_goes_on_where_it_stopped(photos: Path) -> None:
    """The run that goes on ends at the step of an uninterrupted one, and has learnt something."""
    printed = run("train_lightning.py", photos)
    assert "resumed at step 100, ended at step 160" in printed
    assert int(re.findall(r"right (\d+)%", printed)[0]) > 60


def test_the_demo_reads_a_slab_beside_its_parquet_file(tmp_path: Path) -> None:
    """It packs thousands of rows, and has a rate for each way to read them."""
    printed = run("demo.py", ROOT / "examples" / "photos.parquet", tmp_path, 0.2)
    assert "4,096 rows, 126 MB" in printed
    rates = dict(re.findall(r"^  (\w+).*?([\d,]+) rows/s", printed, re.MULTILINE))
    assert set(rates) == {"Parquet", "slab", "memcpy"}
    assert all(int(rate.replace(",", "")) > 0 for rate in rates.values())
    assert len(open_slab(tmp_path / "many.slab")) == 4096
