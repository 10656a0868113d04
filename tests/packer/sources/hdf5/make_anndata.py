"""Write the AnnData files of this folder: `python make_anndata.py`, with anndata 0.12.

The JSON files say what `anndata.read_h5ad` reads from them. They are kept, and not written by the
tests, because nothing else here needs anndata, pandas' nullable types and scipy's matrices.
"""

import gzip
import json
from pathlib import Path

import anndata  # type: ignore[import-not-found,unused-ignore]
import numpy as np
import pandas as pd  # type: ignore[import-untyped,unused-ignore]
import scipy.sparse  # type: ignore[import-untyped,unused-ignore]

HERE = Path(__file__).parent
CELLS, GENES = 12, 7


def main() -> None:
    """Write one file with matrices in CSR, one in CSC, and what they hold."""
    rng = np.random.default_rng(0)
    cells = [f"cell{index}" for index in range(CELLS)]
    kinds = pd.Categorical(rng.choice(["B", "T"], CELLS), categories=["T", "unused", "B"])
    obs = pd.DataFrame(
        {
            "kind": kinds,
            "stage": pd.Categorical(rng.choice([3, 1], CELLS), categories=[3, 1]),
            "size": pd.Categorical(rng.choice(["s", "l"], CELLS), ["s", "l"], ordered=True),
            "count": rng.integers(0, 100, CELLS).astype("i4"),
            "score": rng.random(CELLS),
            "good": rng.random(CELLS) > 0.5,
            "age": pd.array([None, *range(1, CELLS)], dtype="Int64"),
            "smoker": pd.array([True, None, *[False] * (CELLS - 2)], dtype="boolean"),
        },
        index=cells,
    )
    obs.loc["cell3", "kind"] = np.nan
    for layout in ("csr", "csc"):
        values = rng.random((CELLS, GENES)).astype("f4") * (rng.random((CELLS, GENES)) < 0.4)
        data = anndata.AnnData(
            scipy.sparse.coo_matrix(values).asformat(layout),
            obs=obs,
            var=pd.DataFrame({"long": np.arange(GENES)}, index=[f"gene{n}" for n in range(GENES)]),
            obsm={"X_pca": rng.random((CELLS, 3)).astype("f4")},
            layers={"counts": scipy.sparse.coo_matrix(np.ceil(values * 9)).asformat(layout)},
            uns={"title": "a test"},
        )
        path = HERE / f"anndata_{layout}.h5ad"
        data.write_h5ad(path, compression="gzip")
        write_expected(anndata.read_h5ad(path), path.with_suffix(".json"))
        path.with_suffix(".h5ad.gz").write_bytes(gzip.compress(path.read_bytes(), 9, mtime=0))
        path.unlink()


def write_expected(data: anndata.AnnData, path: Path) -> None:
    """Write the values that anndata reads."""
    obs = data.obs
    content = {
        "matrices": {
            "X": data.X.toarray().tolist(),
            "layers/counts": data.layers["counts"].toarray().tolist(),
        },
        "pca": data.obsm["X_pca"].tolist(),
        "cells": list(data.obs_names),
        "obs": {
            name: [None if pd.isna(value) else value for value in obs[name].tolist()]
            for name in obs
        },
        "categories": {name: list(obs[name].cat.categories) for name in ("kind", "size")},
    }
    path.write_text(json.dumps(content))


if __name__ == "__main__":
    main()
