"""`UpperTriangle`: symmetric matrices as numpy makes them, from whole and from cut rows."""

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.slabs import ragged, write_slab

from fieldslab.reader import Loader, Sequential, Slab, open_slab
from fieldslab.reader.transforms.triangle import UpperTriangle
from fieldslab.schemas.errors import UnknownField, UsageError

N, PAIRS, FEATURES = 100, 4950, 6
PARTICLES = [0, 1, 2, 100, 37, 99]
PADDING = -1000


def pairs_of(particles: int) -> np.ndarray:
    """Pairs of so many particles among 100, as JetClass has them: (4950, 6), padded."""
    pairs = np.full((PAIRS, FEATURES), PADDING, np.float32)
    place = 0
    for i in range(N):
        for j in range(i + 1, N):
            if j < particles:
                pairs[place] = [i, j, i + j, i * j, -i, -j]
            place += 1
    return pairs


def matrix_of(particles: int, fill: float = 0) -> np.ndarray:
    """The same as a matrix, cell by cell."""
    matrix = np.full((N, N, FEATURES), fill, np.float32)
    for i in range(particles):
        for j in range(i + 1, particles):
            matrix[i, j] = matrix[j, i] = [i, j, i + j, i * j, -i, -j]
    return matrix


def cut(pairs: np.ndarray) -> np.ndarray:
    """What `--ragged pairs:pad=-1000` leaves of a row."""
    real = np.flatnonzero((pairs != PADDING).any(axis=1))
    return pairs[: real[-1] + 1] if len(real) else pairs[:0]


@pytest.fixture(scope="module")
def slab(tmp_path_factory: pytest.TempPathFactory) -> Slab:
    """The pairs of a few jets, whole and cut, and what is no pairs."""
    rows = [pairs_of(particles) for particles in PARTICLES]
    columns = {
        "whole": np.stack(rows),
        "cut": ragged([cut(row) for row in rows], "float32", (FEATURES,)),
        "scalars": np.arange(6 * 10, dtype=np.int16).reshape(6, 10),
        "words": ["a"] * 6,
        "number": np.arange(6),
    }
    return open_slab(write_slab(tmp_path_factory.mktemp("pairs") / "a.slab", columns))


@pytest.mark.parametrize("field", ["whole", "cut"])
@pytest.mark.parametrize("fill", [0, -7.5])
def test_matrices(slab: Slab, field: str, fill: float) -> None:
    """Whole and cut rows give the symmetric matrices of 0, 1, 2, 100 and other numbers."""
    matrices = UpperTriangle(field, n=N, fill=fill, padding=PADDING)(slab.gather(range(6)))[field]
    assert isinstance(matrices, np.ndarray)
    assert matrices.dtype == np.float32
    assert np.array_equal(matrices, np.stack([matrix_of(count, fill) for count in PARTICLES]))


def test_pairs_as_they_are(slab: Slab) -> None:
    """Without `padding` every pair that is stored is kept, padding between others too."""
    batch = slab.gather(range(6))
    above = np.triu_indices(N, 1)
    for field in ("whole", "cut"):
        expected = np.zeros((6, N, N, FEATURES), np.float32)
        for index, row in enumerate(batch[field]):
            assert isinstance(row, np.ndarray)
            i, j = above[0][: len(row)], above[1][: len(row)]
            expected[index, i, j] = expected[index, j, i] = row
        matrices = UpperTriangle(field)(batch)[field]
        assert isinstance(matrices, np.ndarray)
        assert np.array_equal(matrices, expected)


def test_fill_as_padding_gives_the_same_pairs_back(slab: Slab) -> None:
    """Filled up with the padding, a cut field is the whole one."""
    batch = slab.gather([4, 2])
    above = np.triu_indices(N, 1)
    matrices = UpperTriangle("cut", fill=PADDING)(batch)["cut"]
    assert isinstance(matrices, np.ndarray)
    assert np.array_equal(matrices[:, above[0], above[1]], batch["whole"])


def test_scalars_and_nan() -> None:
    """Pairs may be single numbers of any dtype, and padding may be NaN."""
    for dtype, padding in [("i2", -1), ("f8", float("nan")), ("c8", 500)]:
        pairs = np.arange(2 * 3).reshape(2, 3).astype(dtype)
        pairs[1, 1] = padding
        batch: Any = {"x": pairs}
        matrices = UpperTriangle("x", n=3, fill=9, padding=padding)(batch)["x"]
        first, second = [0, 1, 2], [3, 9, 5]
        for matrix, (a, b, c) in zip(matrices, (first, second), strict=True):
            assert np.array_equal(matrix, np.array([[9, a, b], [a, 9, c], [b, c, 9]], dtype))


@pytest.mark.parametrize("n", [1, 2, 5])
def test_small_matrices(tmp_path: Path, n: int) -> None:
    """One row has no pair, two have one."""
    pairs = np.arange(3 * n * (n - 1) // 2, dtype=np.int64).reshape(3, n * (n - 1) // 2)
    matrices = UpperTriangle("x", n=n, fill=-1)({"x": pairs})["x"]  # type: ignore[arg-type]
    expected = np.full((3, n, n), -1)
    i, j = np.triu_indices(n, 1)
    expected[:, i, j] = expected[:, j, i] = pairs
    assert isinstance(matrices, np.ndarray)
    assert np.array_equal(matrices, expected)


def test_a_loader_makes_matrices(slab: Slab) -> None:
    """A loader takes the transform, which pickles, and recycles the memory of its results."""
    transform = pickle.loads(pickle.dumps(UpperTriangle("cut", padding=PADDING)))
    loader = Loader(slab, 2, Sequential(), fields=["cut"], transforms=[transform])
    actual = np.concatenate([np.array(batch["cut"]) for batch in loader])
    assert np.array_equal(actual, np.stack([matrix_of(count) for count in PARTICLES]))


def test_more_pairs_than_the_matrix_has(slab: Slab) -> None:
    """A row with too many pairs is an error that names the row of the slab."""
    with pytest.raises(UsageError, match=r"row 3, expected 4851, found 4950"):
        UpperTriangle("cut", n=99)(slab.gather([0, 3]))


@pytest.mark.parametrize(
    ("field", "n", "problem"),
    [
        ("whole", 99, "99 x 99 have 4851 pairs, not [4950, 6]"),
        ("scalars", 100, "4950 pairs, not [10]"),
        ("number", 1, "1 x 1 have 0 pairs, not []"),
        ("words", 100, "its rows are no pairs"),
    ],
)
def test_fields_without_pairs(slab: Slab, field: str, n: int, problem: str) -> None:
    """A loader refuses what holds no pairs before it reads anything."""
    with pytest.raises(UsageError) as caught:
        UpperTriangle(field, n=n).check(dict(slab.fields))
    assert problem in str(caught.value)


def test_wrong_arguments(slab: Slab) -> None:
    """A matrix without rows, and a field that is not there, are errors."""
    with pytest.raises(UsageError, match="at least one row"):
        UpperTriangle("whole", n=0)
    with pytest.raises(UnknownField):
        UpperTriangle("nothing").check(dict(slab.fields))
    with pytest.raises(UsageError, match="no rows of pairs"):
        UpperTriangle("words")(slab.gather([0]))
