"""The benchmark of decoding: that it runs, what it tells, and that its plain way is right."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
from PIL import Image

from fieldslab.bench.images.fidelity import fidelity, psnr
from fieldslab.bench.images.large import (
    SCALES,
    build_large,
    find_psnr_by_scale,
    time_large,
)
from fieldslab.bench.images.sheet import draw_sheet
from fieldslab.bench.images.speed import CASES, CROPS
from fieldslab.bench.images.subjects import WAYS, build
from fieldslab.bench.images.table import large_table
from fieldslab.bench.images.whole import WholeDecoder
from fieldslab.bench.photographs import photographs
from fieldslab.reader import RandomResizedCrop

ENVIRONMENT = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2] / ".ns")}


def test_all_ways_are_measured(tmp_path: Path) -> None:
    """One run tells speed of each case, fidelity, bytes and the other ratios, as JSON."""
    for index, file in enumerate(photographs(3)):
        (tmp_path / f"{index}.jpg").write_bytes(file)
    command = [sys.executable, "-m", "fieldslab.bench.images", "--quick"]
    command += ["--images", str(tmp_path), "--json", str(tmp_path / "out.json")]
    subprocess.run(command, check=True, capture_output=True, env=ENVIRONMENT)
    document = json.loads((tmp_path / "out.json").read_text())
    assert document["count"] == 3
    assert set(document["speeds"]) == set(CROPS)
    for cases in document["speeds"].values():
        assert len(cases) == 2 * (len(CASES) + 1)
        assert all(case["rate"] > 0 for case in cases.values())
    assert document["fidelity"]["roi"]["psnr"] > 50
    assert set(document["bytes"]) == set(WAYS)
    assert len(document["ratios"]) == 3


def test_a_folder_without_photographs_is_named(tmp_path: Path) -> None:
    """An empty folder is a usage error, told without a traceback."""
    command = [sys.executable, "-m", "fieldslab.bench.images", "--images", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=ENVIRONMENT)
    assert done.returncode == 2
    assert "no JPEG files" in done.stderr
    assert "Traceback" not in done.stderr


def test_the_plain_way_is_close_to_pillow_and_the_sheet_shows_it(tmp_path: Path) -> None:
    """What others are measured against decodes rightly; the sheet has a row for each view."""
    slab = build(photographs(2), tmp_path)["jpeg"]
    crop = RandomResizedCrop(64)
    assert fidelity(slab, slab, crop, WholeDecoder()).least_psnr > 50
    draw_sheet(slab, crop, {"whole": WholeDecoder()}, tmp_path / "sheet.png", "views", count=2)
    sheet = np.asarray(Image.open(tmp_path / "sheet.png"))
    assert sheet.shape[0] > 3 * 64
    assert sheet.std() > 20


def test_large_photographs_are_measured_at_every_scale(tmp_path: Path) -> None:
    """Each decoder has a speed; views stay above 45 dB, and above 50 at full size."""
    slab = build_large(1, tmp_path)
    assert len(slab[0]["image"]) > 10**5
    speeds = time_large(slab, 1)
    assert all(speed.rate > 0 for speed in speeds.values())
    actual = find_psnr_by_scale(slab)
    assert set(actual) == set(SCALES)
    assert min(actual.values()) > 45
    assert min(actual[1], actual[2]) > 50
    assert "decoder `roi`, by the index" in large_table(speeds, actual)


def test_psnr() -> None:
    """A difference of one level everywhere is 48.13 dB; none is 99."""
    assert round(psnr(1.0), 2) == 48.13
    assert psnr(0.0) == 99.0
