"""Files of AnnData: sparse matrices, categories and nulls, against what anndata itself reads."""

import gzip
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pyarrow as pa
import pytest
import scipy.sparse  # type: ignore[import-untyped,unused-ignore]
import torch
from tests.naming import case
from tests.packer.readback import Readback

from fieldslab.packer import pack, verify
from fieldslab.packer.sources.hdf5 import encoded
from fieldslab.reader import Dense, Loader, Sequential, Slab, open_slab, view_sparse
from fieldslab.schemas.errors import (
    DamagedArray,
    NullsFound,
    SourceInconsistent,
    SourceUnsupported,
    UnknownField,
    UsageError,
)

STORED = Path(__file__).parent
LAYOUTS = ("csr", "csc")
MASK = "*=mask"


def unpack(tmp_path: Path, layout: str) -> tuple[Path, dict[str, Any]]:
    """A stored file, and what anndata reads from it."""
    path = tmp_path / f"{layout}.h5ad"
    path.write_bytes(gzip.decompress((STORED / f"anndata_{layout}.h5ad.gz").read_bytes()))
    return path, json.loads((STORED / f"anndata_{layout}.json").read_text())


def make_dense(slab: Slab, name: str, columns: int) -> np.ndarray:
    """All rows of a matrix."""
    batch = slab.gather(range(len(slab)))
    return Dense(name, columns)(batch)[name]  # type: ignore[return-value]


@pytest.mark.parametrize("layout", LAYOUTS)
def test_as_anndata_reads_it(tmp_path: Path, layout: str) -> None:
    """Matrices, categories, nulls, names and embeddings are those that anndata reads."""
    path, expected = unpack(tmp_path, layout)
    with pytest.raises(NullsFound, match="obs/"):
        pack(path, tmp_path / "slab")
    packed = pack(path, tmp_path / "slab", nulls=MASK)
    slab = open_slab(tmp_path / "slab")
    for name, values in expected["matrices"].items():
        assert np.array_equal(make_dense(slab, name, 7), np.array(values)), name
        indices = slab.gather(range(len(slab)))[f"{name}.indices"]
        assert all((np.diff(row) > 0).all() for row in indices)
    for name, values in expected["obs"].items():
        rows = [row[f"obs/{name}"] for row in slab]
        assert [row.item() if isinstance(row, np.generic) else row for row in rows] == values, name
    for name, categories in expected["categories"].items():
        assert list(slab.categories(f"obs/{name}")) == categories
    assert slab.fields["obs/size"].attributes["ordered"] is True
    assert [row["obs/_index"] for row in slab] == expected["cells"]
    assert np.array_equal(slab["obsm/X_pca"][:], np.array(expected["pca"], "f4"))
    assert "var: left out" in " ".join(packed.warnings)
    assert verify(tmp_path / "slab", against=path).ok
    some = open_slab(tmp_path / "slab").gather([7, 0, 7])
    assert np.array_equal(Dense("X", 7)(some)["X"], make_dense(slab, "X", 7)[[7, 0, 7]])  # type: ignore[arg-type]


@pytest.mark.filterwarnings("ignore:Sparse CSR tensor support is in beta")
def test_views_of_a_batch(tmp_path: Path) -> None:
    """`Dense` works in a Loader; scipy and torch view the rows of a batch as CSR."""
    path, expected = unpack(tmp_path, "csr")
    pack(path, tmp_path / "slab", nulls=MASK)
    slab = open_slab(tmp_path / "slab")
    values = np.array(expected["matrices"]["X"], "f4")
    for output in ("numpy", "torch"):
        transforms = [Dense("X"), Dense("layers/counts")]
        batches = list(Loader(slab, 5, Sequential(), output=output, transforms=transforms))
        assert np.array_equal(np.concatenate([batch["X"] for batch in batches]), values)
        sparse = view_sparse(batches[1], "X", slab.fields)
        assert sparse.shape == (5, 7)
        assert np.array_equal(sparse.to_torch().to_dense(), torch.tensor(values[5:10]))
        matrix = sparse.to_scipy()
        assert isinstance(matrix, scipy.sparse.csr_array)
        assert np.array_equal(matrix.toarray(), values[5:10])
    batch = slab.gather(range(12))
    with pytest.raises(DamagedArray, match="outside"):
        Dense("X", 3)(batch)
    with pytest.raises(UnknownField, match=r"obs\.indices"):
        Loader(slab, 5, transforms=[Dense("obs")])
    with pytest.raises(UsageError, match="columns"):
        Dense("X")(batch)
    with pytest.raises(UnknownField):
        view_sparse(batch, "Y", slab.fields)


def test_pairs_of_lists_of_arrow(tmp_path: Path) -> None:
    """A struct of two lists is a sparse matrix for `Dense`; lists of other lengths are named."""
    rows: list[dict[str, Any]] = [
        {"indices": [2, 0], "values": [1.5, 2.0]},
        {"indices": [], "values": []},
    ]
    kind = pa.struct([("indices", pa.list_(pa.int32())), ("values", pa.list_(pa.float32()))])
    pack(pa.table({"X": pa.array(rows, kind)}), tmp_path / "slab")
    (batch,) = Loader(open_slab(tmp_path / "slab"), 2, Sequential(), transforms=[Dense("X", 3)])
    assert batch["X"].tolist() == [[2.0, 0.0, 1.5], [0.0, 0.0, 0.0]]
    rows[1]["indices"] = [1]
    pack(pa.table({"X": pa.array(rows, kind)}), tmp_path / "slab", force=True)
    with pytest.raises(DamagedArray, match="differ in number"):
        Dense("X", 3)(open_slab(tmp_path / "slab").gather([0, 1]))


def test_any_matrix(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """CSR and CSC of any dtype, with empty rows and columns, give the rows that scipy makes."""
    monkeypatch.setattr(encoded, "_BLOCK", 37)  # so that columns are cut in between
    rng = np.random.default_rng(1)
    for dtype, index in ((">f8", "i8"), ("u1", "u4"), ("?", ">i4")):
        values = (rng.random((50, 9)) < 0.3) * rng.integers(1, 100, (50, 9))
        values[10:20], values[:, 4] = 0, 0
        values = values.astype(dtype)
        for layout in LAYOUTS:
            native = values.astype(values.dtype.newbyteorder("="))
            matrix = scipy.sparse.coo_matrix(native).asformat(layout)
            with h5py.File(tmp_path / "a.h5", "w") as file:
                group = file.create_group("g/m")
                group.attrs.update({"encoding-type": f"{layout}_matrix", "shape": matrix.shape})
                group["data"] = matrix.data.astype(dtype)
                group["indices"], group["indptr"] = matrix.indices.astype(index), matrix.indptr
            pack(tmp_path / "a.h5", tmp_path / "slab", force=True)
            with case(dtype, index, layout):
                slab = open_slab(tmp_path / "slab")
                assert slab.fields["g/m.values"].dtype == np.dtype(dtype).name
                assert slab.fields["g/m.indices"].dtype == np.dtype(index).name
                assert np.array_equal(make_dense(slab, "g/m", 9), values)
                pack(tmp_path / "a.h5", tmp_path / "slab", force=True, rows="15:33")
                assert np.array_equal(
                    make_dense(open_slab(tmp_path / "slab"), "g/m", 9), values[15:33]
                )


def _break_index(group: h5py.Group) -> None:
    group["indices"][3] = 99


def _break_ends(group: h5py.Group) -> None:
    group["indptr"][4] = 0


def _break_lengths(group: h5py.Group) -> None:
    del group["data"]
    group["data"] = np.zeros(3, "f4")


def _break_shape(group: h5py.Group) -> None:
    group.attrs["shape"] = [12]


@pytest.mark.parametrize("layout", LAYOUTS)
def test_damage(tmp_path: Path, layout: str) -> None:
    """Indices, ends, shapes and codes that contradict each other are named errors."""
    path, _ = unpack(tmp_path, layout)
    damages: dict[Callable[[h5py.Group], None], tuple[type[Exception], str]] = {
        _break_index: (SourceInconsistent, "lies outside of the matrix"),
        _break_ends: (SourceInconsistent, "`indptr` does not ascend"),
        _break_lengths: (SourceUnsupported, "a damaged cs"),
        _break_shape: (SourceUnsupported, "a damaged cs"),
    }
    for damage, (kind, text) in damages.items():
        shutil.copy(path, tmp_path / "a.h5ad")
        with h5py.File(tmp_path / "a.h5ad", "a") as file:
            damage(file["X"])
        with case(damage.__name__), pytest.raises(kind, match=text) as caught:
            pack(tmp_path / "a.h5ad", tmp_path / "slab", nulls=MASK)
        assert "X" in str(caught.value)
    with h5py.File(path, "a") as file:
        file["obs/kind/codes"][5] = 17
    with pytest.raises(SourceInconsistent, match="a code has no category") as error:
        pack(path, tmp_path / "slab", nulls=MASK)
    assert error.value.context["row"] == 5


def test_several_files(tmp_path: Path) -> None:
    """Files with the same variables are joined; others are refused, and so are old encodings."""
    csr, expected = unpack(tmp_path, "csr")
    csc, more = unpack(tmp_path, "csc")
    pack([csr, csc], tmp_path / "slab", nulls=MASK)
    both = expected["matrices"]["X"] + more["matrices"]["X"]
    assert np.array_equal(make_dense(open_slab(tmp_path / "slab"), "X", 7), np.array(both))
    with h5py.File(csc, "a") as file:
        file["var/_index"][0] = "other"
    with pytest.raises(SourceInconsistent, match="variables"):
        pack([csr, csc], tmp_path / "other", nulls=MASK)
    with h5py.File(csr, "a") as file:
        file["X"].attrs["h5sparse_format"] = "csr"
    with pytest.raises(SourceUnsupported, match=r"before 0\.8"):
        pack(csr, tmp_path / "other", nulls=MASK)
    pack(csr, tmp_path / "other", nulls=MASK, exclude="X")
    assert "layers/counts.indices" in Readback(tmp_path / "other").fields
