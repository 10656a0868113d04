"""Decoders by name."""

import subprocess
import sys
from pathlib import Path

import pytest
from tests.installed import install
from tests.jpegs import encode, photograph
from tests.reader.images.packing import pack_images, save

from fieldslab.reader.decoders import lookup
from fieldslab.reader.decoders.lookup import list_candidates, load_decoder
from fieldslab.schemas.codecs.decoders import AUTO, DECODERS
from fieldslab.schemas.errors import UsageError
from fieldslab.schemas.images import CODES


@pytest.mark.parametrize("name", AUTO)
def test_names_lead_to_decoders(name: str) -> None:
    """Each name gives the decoder that bears it, the same one each time."""
    assert load_decoder(name).name == name
    assert load_decoder(name) is load_decoder(name)


def test_auto_asks_all_that_are_here() -> None:
    """In turn, the faster first; one by name is asked alone, but for stored pixels."""
    assert [decoder.name for decoder in list_candidates("auto")] == list(AUTO)
    assert [decoder.name for decoder in list_candidates("pillow")] == ["pillow", "planes"]
    assert [decoder.name for decoder in list_candidates("planes")] == ["planes"]


def test_no_such_decoder() -> None:
    """The message names those there are."""
    with pytest.raises(UsageError, match="turbojpeg"):
        load_decoder("jpegturbo")


def test_every_kind_of_image_is_taken() -> None:
    """Nothing is missing where every library is installed."""
    assert [lookup.suggest_install(code) for code in CODES.values()] == [None] * len(CODES)
    assert set(DECODERS) > set(AUTO)


PLUGIN = """
import numpy as np
class Grey:
    name = "grey"
    codes = frozenset({1})
    def decode(self, images, which, crops, target, max_pixels):
        target.out[which] = 128
        return np.zeros(len(which), np.int32)
"""
PROGRAM = """
import sys
from fieldslab.reader import ImageSteps, Resize, open_slab
slab = open_slab(sys.argv[1])
grey = ImageSteps([Resize(4)], decoder="grey")
image = slab.gather([0], ["image"], decode={"image": grey})["image"]
print(int(image.min()), int(image.max()))
"""


def test_decoders_of_other_packages(tmp_path: Path, photos: Path) -> None:
    """An installed package adds one by its entry point."""
    points = "[fieldslab.decoders]\ngrey = greydecoder:Grey\n"
    install(tmp_path, "greydecoder", {"greydecoder": PLUGIN}, points)
    root = Path(__file__).parents[3]
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, photos],
        capture_output=True,
        text=True,
        check=False,
        env={"PYTHONPATH": f"{tmp_path}:{root / '.ns'}"},
    )
    assert done.stdout == "128 128\n", done.stderr


WITHOUT = """
import sys
sys.modules["PIL"] = None
from fieldslab.reader import Resize, open_slab
from fieldslab.schemas.errors import FieldslabError, MissingLibrary
slab = open_slab(sys.argv[1])
print(slab.gather([0], ["image"], decode={"image": [Resize(4)]})["image"].shape)
from fieldslab.reader.decoders import lookup
print([decoder.name for decoder in lookup.list_candidates("auto")])
print(lookup.suggest_install(2))
try:
    lookup.load_decoder("pillow")
except MissingLibrary as error:
    print(error)
"""


def test_without_pillow(photos: Path) -> None:
    """JPEG needs no library; what does says what to install."""
    root = Path(__file__).parents[3]
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT, photos],
        capture_output=True,
        text=True,
        check=False,
        env={"PYTHONPATH": str(root / ".ns")},
    )
    assert done.stdout.splitlines() == [
        "(1, 4, 4, 3)",
        "['planes', 'roi', 'turbojpeg']",
        "Install a decoder: pip install 'pillow>=11.3'.",
        "the decoder `pillow` needs Pillow. Install it: pip install 'pillow>=11.3'.",
    ], done.stderr


PASSED_OVER = """
import sys
sys.modules["PIL"] = None
from fieldslab.reader import ImageSteps, Resize, open_slab
from fieldslab.schemas.errors import MissingLibrary
slab = open_slab(sys.argv[1])
for policy in ("raise", "skip", "fill"):
    try:
        slab.gather(range(len(slab)), decode={"image": ImageSteps([Resize(4)], on_error=policy)})
    except MissingLibrary as error:
        print(error.context["row"], error.hint)
"""


def test_no_policy_passes_over_a_missing_library(tmp_path: Path) -> None:
    """Images that only Pillow takes are no failures where it is not installed: that is told."""
    rows = [encode(photograph(20, 20), "4:2:0"), save(photograph(20, 20), "png")]
    slab = pack_images(tmp_path, rows)
    root = Path(__file__).parents[3]
    done = subprocess.run(
        [sys.executable, "-c", PASSED_OVER, slab.path],
        capture_output=True,
        text=True,
        check=False,
        env={"PYTHONPATH": str(root / ".ns")},
    )
    told = "1 Install a decoder: pip install 'pillow>=11.3'."
    assert done.stdout.splitlines() == [told] * 3, done.stderr


COMPARE = """
import sys
sys.modules["PIL"] = None
from fieldslab.packer.cli import main
sys.argv[1:] = ["verify", sys.argv[1], "--against", sys.argv[2]]
main()
"""


def test_comparing_without_pillow(tmp_path: Path) -> None:
    """A library that is missing is no difference between slab and source."""
    from fieldslab.packer import pack

    root = Path(__file__).parents[3]
    source, path = root / "examples" / "photos.parquet", tmp_path / "photos.slab"
    pack(source, path, fields="image", rows="0:2", image={"image": "rgb,long-side=16"})
    done = subprocess.run(
        [sys.executable, "-c", COMPARE, path, source],
        capture_output=True,
        text=True,
        check=False,
        env={"PYTHONPATH": str(root / ".ns")},
    )
    assert (done.returncode, done.stdout) == (2, ""), done.stderr
    assert "pip install 'pillow>=11.3'" in done.stderr


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The example's photographs, packed."""
    from fieldslab.packer import pack

    path = tmp_path_factory.mktemp("photos") / "photos.slab"
    source = Path(__file__).parents[3] / "examples" / "photos.parquet"
    pack(source, path, fields="image", rows="0:8")
    return path
