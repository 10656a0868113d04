"""Write the files of this folder: `python make.py`, where pandas and PyTables are installed.

They are kept, and not written by the tests, because nothing else here needs PyTables.
"""

import gzip
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd  # type: ignore[import-untyped,unused-ignore]
import tables  # type: ignore[import-not-found,unused-ignore]

HERE = Path(__file__).parent


class Payload:
    """Unpickling this makes a file `unpickled` in the current directory."""

    def __reduce__(self) -> tuple[Any, ...]:
        return Path.touch, (Path("unpickled"),)


ROW = {
    "flag": tables.BoolCol(pos=0),
    "number": tables.Int32Col(pos=1),
    "vector": tables.Float64Col(shape=(2, 3), pos=2),
    "word": tables.StringCol(6, pos=3),
    "pair": tables.ComplexCol(itemsize=8, pos=4),
}


def main() -> None:
    """Write two files of pandas, one for each layout, and one of PyTables."""
    frame = pd.DataFrame({"x": np.arange(5.0), "n": np.arange(5), "s": list("abcde")})
    for layout in ("fixed", "table"):
        path = HERE / f"pandas_{layout}.h5"
        frame.to_hdf(path, key="df", format=layout, data_columns=True)
        compress(path)
    with tables.open_file(HERE / "pytables.h5", "w") as file:
        table = file.create_table("/", "rows", ROW)
        for number in range(4):
            table.row["flag"] = number % 2
            table.row["number"] = number
            table.row["vector"] = np.full((2, 3), number)
            table.row["word"] = "abcd"[: number + 1]
            table.row["pair"] = complex(number, -number)
            table.row.append()
        table.cols.number.create_index()
        table.attrs.payload = Payload()
        objects = file.create_vlarray("/", "objects", tables.ObjectAtom())
        for _ in range(4):
            objects.append(Payload())
        file.create_carray("/", "flags", obj=np.array([True, False, True, True]))
    compress(HERE / "pytables.h5")


def compress(path: Path) -> None:
    """Replace a file, which is mostly zeros, by its gzip."""
    path.with_suffix(".h5.gz").write_bytes(gzip.compress(path.read_bytes(), 9, mtime=0))
    path.unlink()


if __name__ == "__main__":
    main()
