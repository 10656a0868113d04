"""Decoding beside FFCV: what is measured without it, what is told, and how it is installed."""

import os
import re
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fieldslab.bench.peers import decode
from fieldslab.bench.peers.data import PHOTOGRAPH, make_photographs
from fieldslab.bench.peers.decode import compare, heading, table
from fieldslab.bench.peers.formats.views_slab import Jpeg, Pixels
from fieldslab.bench.peers.peer import DECODERS, NotOffered
from fieldslab.bench.peers.source import Workload

ROOT = Path(__file__).parents[2]
STORED = ("JPEG", "pixels", "pixels of 256")
OURS = tuple(f"fieldslab, {stored}" for stored in STORED)
THEIRS = (*(f"FFCV, {stored}" for stored in STORED), "SPDL, JPEG")


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Workload:
    """A few photographs with labels."""
    return make_photographs(tmp_path_factory.mktemp("decode") / "source", 32 * PHOTOGRAPH)


def test_without_ffcv_ours_is_measured_and_ffcv_reported(
    source: Workload, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """FFCV is missing with its reason, never a failure; the table says so in its cells too."""
    monkeypatch.setattr(decode, "SECONDS", 0.05)
    monkeypatch.delitem(DECODERS, "SPDL, JPEG")  # which `make bench` installs beside fieldslab
    theirs = [name for name in THEIRS if name in DECODERS]
    for name in theirs:  # in the running environment, which has none, whatever `make bench` built
        monkeypatch.setitem(DECODERS, name, replace(DECODERS[name], environment=""))
    actual = compare(source, 1, tmp_path)
    assert set(actual) == {*OURS, *theirs}
    for name in OURS:
        assert actual[name]["status"] == "measured"
        assert actual[name]["versions"]["numba"]
        for seconds in actual[name]["seconds"].values():
            assert len(seconds) == 1
            assert min(seconds) > 0
    sizes = [actual[name]["bytes"] for name in OURS]
    assert sizes[1] > 4 * sizes[0]
    assert sizes[0] < sizes[2] < 0.5 * sizes[1], "the longer side is 256, of 500"
    for name in theirs:
        assert actual[name]["status"] == "missing"
        assert "ffcv" in actual[name]["reason"]
    text = table(actual)
    assert text.count("| – | – |") == 6
    assert "- FFCV, JPEG is missing: ModuleNotFoundError" in text


def test_both_are_compared_round_by_round() -> None:
    """The ratio is the median of the rounds' ratios, with quartiles; rates are medians."""

    def way(*seconds: float) -> dict[str, Any]:
        return {"status": "measured", "seconds": {"1": [*seconds], "2": [*seconds]}}

    actual = dict.fromkeys(OURS, way(0.001, 0.002, 0.001)) | dict.fromkeys(
        THEIRS, way(0.004, 0.006, 0.002)
    )
    text = table(actual)
    for rival in ("FFCV", "SPDL"):
        line = f"| 1,000 | {rival} | 250 | 3.00 (2.00-4.00) times as fast |"
        assert text.count(line) == 2 * sum(name.startswith(rival) for name in THEIRS)
    assert "missing" not in text
    machine = {"processor": "P", "cores": 2, "load": 0.5}
    about = {"machine": machine, "date": "2026-01-02", "quick": True, "count": 960}
    assert heading(about).startswith("Measured on 2026-01-02 (P, 2 cores; load 0.5 at the start)")
    assert "in a quick run" in heading(about)


def test_jpeg_and_pixels_give_the_same_views(source: Workload, tmp_path: Path) -> None:
    """An epoch has every label once, and crops that differ between the two by little."""
    epochs = []
    for kind in (Jpeg, Pixels):
        peer = kind(tmp_path / kind.__name__, source)
        peer.convert()
        peer.open()
        with pytest.raises(NotOffered):
            peer.random_batch(np.arange(2))
        epochs.append(list(peer.loader(2, 7)))
    labels = np.concatenate([batch["label"] for batch in epochs[0]])
    wanted = [int(source.row(row)["label"]) for row in range(len(source))]
    assert sorted(labels.tolist()) == sorted(wanted)
    for ours, other in zip(*epochs, strict=True):
        assert ours["image"].shape == (source.batch, 224, 224, 3)
        assert np.array_equal(ours["label"], other["label"])
        assert np.abs(ours["image"].astype(int) - other["image"]).mean() < 2


def test_make_says_what_ffcv_needs(tmp_path: Path) -> None:
    """Where pkg-config does not find the libraries, one line names packages; make goes on."""
    created, target = tmp_path / "venv" / ".created", tmp_path / "venv-ffcv" / ".installed"
    command = ["make", "-s", "-o", str(created), str(target)]
    command += [f"VENV={tmp_path / 'venv'}", "PKG_CONFIG=false"]
    # As from a shell: `make test` hands its own options to every make below it.
    shell = {key: value for key, value in os.environ.items() if not key.startswith("MAKE")}
    done = subprocess.run(command, cwd=ROOT, env=shell, check=True, capture_output=True, text=True)
    assert len(done.stderr.splitlines()) == 1
    assert "libopencv-dev" in done.stderr
    assert not target.exists()


@pytest.mark.parametrize("name", ["mds", "ffcv"])
def test_other_environments_have_the_same_versions(name: str) -> None:
    """What stands in constraints.txt too is pinned to the same version: torch above all."""
    pins = dict(re.findall(r"^(\S+)==(\S+)$", (ROOT / "constraints.txt").read_text(), re.M))
    text = (ROOT / "bench" / "peers" / f"{name}.txt").read_text()
    own = dict(re.findall(r"^(\S+)==(\S+)$", text, re.M))
    assert own["torch"] == pins["torch"]
    assert {key: own[key] for key in own.keys() & pins.keys()}.items() <= pins.items()
