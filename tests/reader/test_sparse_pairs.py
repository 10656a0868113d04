"""Sparse rows of Parquet: a struct of the lists indices and values, or two columns."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from fieldslab.packer import pack
from fieldslab.reader import Dense, Loader, Sequential, open_slab, view_sparse
from fieldslab.schemas.errors import DamagedArray, UsageError

KIND = pa.struct({"indices": pa.list_(pa.int32()), "values": pa.list_(pa.float32())})
ROWS = [([0, 3], [1.5, 2.0]), ([], []), ([4, 1, 1], [1.0, 0.5, 0.25])]
DENSE = [[1.5, 0, 0, 2, 0], [0] * 5, [0, 0.75, 0, 0, 1]]


@pytest.mark.filterwarnings("ignore:Sparse CSR tensor support is in beta")
@pytest.mark.parametrize("form", ["struct", "columns"])
def test_pairs_are_a_matrix(tmp_path: Path, form: str) -> None:
    """Both forms give dense rows, and matrices of scipy and torch."""
    pairs = pa.array([{"indices": i, "values": v} for i, v in ROWS], KIND)
    columns = dict(zip(["x.indices", "x.values"], pairs.flatten(), strict=True))
    table = pa.table({"x": pairs} if form == "struct" else columns)
    pq.write_table(table, tmp_path / "a.parquet")
    pack(tmp_path / "a.parquet", tmp_path / "slab")
    slab = open_slab(tmp_path / "slab")
    for output in ("numpy", "torch"):
        (batch,) = Loader(slab, 3, Sequential(), output=output)
        sparse = view_sparse(batch, "x", columns=5)
        assert sparse.to_scipy().toarray().tolist() == DENSE
        assert sparse.to_torch().to_dense().tolist() == DENSE
    (batch,) = Loader(slab, 3, Sequential(), transforms=[Dense("x", 5)])
    assert batch["x"].tolist() == DENSE
    with pytest.raises(UsageError, match="columns=n"):
        view_sparse(batch, "x", slab.fields)


def test_unequal_lists_are_named(tmp_path: Path) -> None:
    """A row with more indices than values is an error with its number."""
    pairs = [{"indices": i, "values": v} for i, v in [*ROWS, ([1, 2], [1.0])]]
    pack(pa.table({"x": pa.array(pairs, KIND)}), tmp_path / "slab")
    slab = open_slab(tmp_path / "slab")
    assert np.array_equal(Dense("x", 5)(slab.gather([2, 0]))["x"], [DENSE[2], DENSE[0]])  # type: ignore[arg-type]
    for call in (Dense("x", 5), lambda batch: view_sparse(batch, "x", columns=5)):
        with pytest.raises(DamagedArray, match="differ in number") as caught:
            call(slab.gather([1, 3, 0]))
        assert caught.value.context["row"] == 3
