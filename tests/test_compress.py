"""Compressed fields, from Parquet through a slab to batches."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from fieldslab.packer import pack
from fieldslab.reader import ByLength, Slab, open_slab
from fieldslab.schemas.arrays import ArrayWriter
from fieldslab.schemas.errors import DamagedArray, UnknownField, UsageError

ROWS = 1200
WORDS = ["alpha", "beta", "gamma", "delta", "training", "slab"]


def table() -> pa.Table:
    """Short texts, lists, wide vectors and bytes with nulls, that all repeat themselves."""
    rng = np.random.default_rng(0)
    vectors = np.repeat(rng.integers(0, 5, ROWS * 8), 32).astype(np.float32)
    return pa.table(
        {
            "text": [" ".join(rng.choice(WORDS, rng.integers(0, 30))) for _ in range(ROWS)],
            "list": pa.array(
                [rng.integers(0, 9, rng.integers(0, 50)).tolist() for _ in range(ROWS)],
                pa.list_(pa.int32()),
            ),
            "vector": pa.FixedSizeListArray.from_arrays(pa.array(vectors), 256),
            "bytes": [None if row % 7 == 0 else b"x" * (row % 100) for row in range(ROWS)],
            "number": np.arange(ROWS),
        }
    )


@pytest.fixture(scope="module")
def packed(tmp_path_factory: pytest.TempPathFactory) -> Slab:
    """The table, packed into several shards with four compressed fields."""
    folder = tmp_path_factory.mktemp("compress")
    pq.write_table(table(), folder / "t.parquet", row_group_size=300)
    pack(
        folder / "t.parquet",
        folder / "t.slab",
        nulls={"bytes": "mask"},
        shard_size=20_000,
        compress=["text", "list=9", "vector", "bytes"],
    )
    return open_slab(folder / "t.slab")


def test_batches_are_what_was_packed(packed: Slab) -> None:
    """Gathered rows of compressed fields equal the source, over shards and in any order."""
    rows = np.random.default_rng(1).permutation(ROWS)[:500]
    expected = table().take(rows)
    batch = packed.gather(rows)
    assert len(packed.manifest.shards) > 1
    for name in ("text", "list", "vector", "number"):
        assert batch[name].tolist() == expected[name].to_pylist()
    assert batch["list"].values.dtype == np.int32
    pairs = zip(batch["bytes"].tolist(), batch.valid["bytes"], strict=True)
    assert [value if valid else None for value, valid in pairs] == expected["bytes"].to_pylist()
    out = packed.buffers(500)
    assert packed.gather(rows, out=out)["text"].tolist() == expected["text"].to_pylist()


def test_rows_and_columns_are_what_was_packed(packed: Slab) -> None:
    """Single rows and column slices decompress too."""
    source = table().to_pylist()
    for row in (0, 7, 299, 300, ROWS - 1):
        actual = packed[row]
        assert {**actual, "list": actual["list"].tolist(), "vector": actual["vector"].tolist()} == (
            source[row]
        )
    assert packed["text"][5:8].tolist() == [source[row]["text"] for row in (5, 6, 7)]
    assert packed["vector"][3:5].shape == (2, 256)


def test_small_rows_share_a_dictionary(packed: Slab) -> None:
    """Texts get a trained dictionary, wide vectors none, and both get smaller."""
    text, vector = packed.fields["text"].compression, packed.fields["vector"].compression
    assert text is not None
    assert vector is not None
    assert text.dictionary > 0
    assert vector.dictionary == 0
    assert vector.decoded == ROWS * 1024
    stored = sum(file.stat().st_size for file in packed.path.rglob("*vector.values*"))
    assert stored < vector.decoded / 3


def test_compression_that_does_not_pay_is_said(tmp_path: Path) -> None:
    """A field that grows is a warning with its bytes; so is a field without any value."""
    rows = pa.table({"f": [1.0, 2.0], "n": pa.array([None, None], pa.int32())})
    packed = pack(rows, tmp_path / "t.slab", compress="f", nulls={"n": "mask"})
    assert packed.warnings[0] == "n: all 2 rows are null"
    assert packed.warnings[1].startswith("f: 16 bytes became 50")


def test_compressed_rows_have_no_address(packed: Slab) -> None:
    """`addresses` of a compressed field is refused by name."""
    with pytest.raises(UsageError, match="no addresses"):
        packed.addresses([0], "text")


def test_lengths_are_those_before_compression(packed: Slab) -> None:
    """`lengths` counts elements of rows, not bytes of frames; so does an order by length."""
    rows = [900, 0, 3]
    expected = [len(row_values) for row_values in table().take(rows)["list"].to_pylist()]
    assert packed.lengths(rows, "list").tolist() == expected
    order = ByLength("list", bucket=ROWS // 4).attach(packed)
    spread = packed.lengths(order.rows(0, 0, ROWS // 4, ROWS), "list")
    assert np.ptp(spread) < 20


@pytest.mark.parametrize(
    ("option", "error"),
    [("txt", UnknownField), ("text=99", UsageError), ("text=high", UsageError)],
)
def test_wrong_options_are_refused(tmp_path: Path, option: str, error: type[Exception]) -> None:
    """An unknown column or level is a named error before anything is written."""
    pq.write_table(table(), tmp_path / "t.parquet")
    with pytest.raises(error):
        pack(
            tmp_path / "t.parquet", tmp_path / "t.slab", nulls={"bytes": "mask"}, compress=[option]
        )
    assert not (tmp_path / "t.slab").exists()


@pytest.mark.parametrize("length", [3, 2**40, 2**63, 2**64 - 1])
def test_a_lie_about_a_length_takes_no_memory(tmp_path: Path, length: int) -> None:
    """Lengths that contradict the frames are damage, whatever they say, with digests off too."""
    pack(pa.table({"list": [[1, 2], [3]]}), tmp_path / "t.slab", compress="list")
    file = tmp_path / "t.slab" / "shard-00000" / "00-list.lengths.npy"
    file.unlink()
    writer = ArrayWriter(file, np.dtype("<u8"))
    writer.append(np.array([length, 1], "<u8"))
    writer.close()
    for verify in (True, False):
        slab = open_slab(tmp_path / "t.slab", verify=verify)
        with pytest.raises(DamagedArray):
            slab.gather([0])
        with pytest.raises(DamagedArray):
            slab[0]


def test_damaged_frames_are_found(tmp_path: Path) -> None:
    """A flipped bit in a frame is an error with digests off too, or gives another text."""
    pack(pa.table({"text": ["a long text " * 50]}), tmp_path / "t.slab", compress="text")
    file = tmp_path / "t.slab" / "shard-00000" / "00-text.values.npy"
    data = bytearray(file.read_bytes())
    for index in range(4096, 4106):
        file.write_bytes(data[:index] + bytes([data[index] ^ 0x41]) + data[index + 1 :])
        with pytest.raises(DamagedArray):
            open_slab(tmp_path / "t.slab").gather([0])
    file.write_bytes(data[:4096] + b"\0" * (len(data) - 4096))
    with pytest.raises(DamagedArray):
        open_slab(tmp_path / "t.slab", verify=False).gather([0])
