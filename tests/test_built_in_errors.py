"""What Python users catch: the built-in exceptions of such cases."""

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from fieldslab.packer.pack_source import pack
from fieldslab.reader.open_slab import open_slab

TABLE = pa.table({"x": [1, 2, 3]})


def test_missing_paths_are_not_found(tmp_path: Path) -> None:
    """A slab or a source that is not there is a FileNotFoundError that names the file."""
    missing = tmp_path / "missing"
    for call in (
        lambda: open_slab(missing),
        lambda: open_slab(tmp_path),
        lambda: pack(missing, tmp_path / "out"),
        lambda: pack(str(missing / "*.parquet"), tmp_path / "out"),
        lambda: pack(TABLE, tmp_path / "out", tokenize={"x": missing}),
    ):
        with pytest.raises(FileNotFoundError) as caught:
            call()
        assert Path(caught.value.filename).is_relative_to(tmp_path)


def test_bad_arguments_are_value_errors(tmp_path: Path) -> None:
    """Wrong arguments are ValueErrors, unknown fields KeyErrors, rows too far IndexErrors."""
    with pytest.raises(ValueError, match="jobs"):
        pack(TABLE, tmp_path / "out", jobs=0)
    pack(TABLE, tmp_path / "out")
    slab = open_slab(tmp_path / "out")
    with pytest.raises(KeyError, match="y"):
        slab.gather([0], fields=["y"])
    with pytest.raises(IndexError):
        slab.gather([3])


def test_an_output_that_exists(tmp_path: Path) -> None:
    """A pack that would replace something is a FileExistsError."""
    pack(TABLE, tmp_path / "out")
    with pytest.raises(FileExistsError):
        pack(TABLE, tmp_path / "out")


def test_an_error_of_the_source_passes_every_guard(tmp_path: Path) -> None:
    """A file that vanishes while it is read is not taken for a failure to write the slab."""

    def batches() -> Iterator[pa.RecordBatch]:
        yield from TABLE.to_batches()
        pq.read_table(tmp_path / "missing.parquet")

    with pytest.raises(FileNotFoundError) as caught:
        pack(batches(), tmp_path / "out")
    assert type(caught.value).__name__ == "SourceNotFound"
    assert not (tmp_path / "out").exists()
