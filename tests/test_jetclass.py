"""The JetClass layout from end to end: files, slab, shuffled batches, matrices of pairs."""

from pathlib import Path

import h5py
import numpy as np
import pytest

from fieldslab.bench.jetclass import CASES, RAGGED, Case, make_files, measure
from fieldslab.packer import pack, verify
from fieldslab.reader import Loader, Shuffled, UpperTriangle, open_slab

ROWS = 70


@pytest.mark.parametrize("case", CASES[:2], ids=str)
def test_batches_and_matrices(tmp_path: Path, case: Case) -> None:
    """Shuffled batches of a cut slab hold what the files hold, and full symmetric matrices."""
    paths = make_files(tmp_path, case, files=2, rows=ROWS)
    names = ["feature_matrix", "adjacency_matrix", "labels", "n_particles", "index"]
    files = [h5py.File(path) for path in paths]
    columns = {name: np.concatenate([file[name][...] for file in files]) for name in names}
    packed = pack(tmp_path, tmp_path / "jets.slab", ragged=RAGGED)
    assert packed.manifest.rows == 2 * ROWS
    assert packed.manifest.attributes["total_events"] == ROWS
    assert verify(tmp_path / "jets.slab", against=tmp_path).ok

    pairs = columns["adjacency_matrix"]
    i, j = np.triu_indices(100, 1)
    there = (pairs != -1000).any(axis=2)
    matrices = np.zeros((2 * ROWS, 100, 100, 6), np.float32)
    for row in range(2 * ROWS):
        matrices[row, i[there[row]], j[there[row]]] = pairs[row, there[row]]
        matrices[row, j[there[row]], i[there[row]]] = pairs[row, there[row]]

    seen = []
    slab = open_slab(tmp_path / "jets.slab")
    transforms = [UpperTriangle("adjacency_matrix", n=100, fill=0, padding=-1000)]
    for batch in Loader(slab, 32, Shuffled(), transforms=transforms):
        rows = batch.rows
        seen += rows.tolist()
        features = batch["feature_matrix"].to_padded(100, 0)
        assert features.tobytes() == columns["feature_matrix"][rows].tobytes()
        assert np.array_equal(np.asarray(batch["adjacency_matrix"]), matrices[rows])
        for name in ("labels", "n_particles", "index"):
            assert np.array_equal(np.asarray(batch[name]), columns[name][rows])
    assert sorted(seen) == list(range(2 * ROWS))


def test_the_benchmark_runs(tmp_path: Path) -> None:
    """Both ways to read a batch are compared bit by bit before they are timed."""
    actual = measure(tmp_path, Case("lzf", 128), files=1, rows=256, rounds=1)
    assert actual["ratio"].median > 0
    assert 0 < actual["ragged_size"] < 1
