"""Datasets as HuggingFace's own library writes them, with and without that library at hand."""

import io
import json
import subprocess
import sys
import wave
from pathlib import Path
from typing import Any

import datasets
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image
from tests.packer.readback import Readback, difference

from fieldslab.packer import pack
from fieldslab.schemas.errors import SourceInconsistent

ROWS = 6
RANDOM = np.random.default_rng(4)
NAMES = ["cat", "dog", "größer"]


def jpeg() -> bytes:
    """A small real image."""
    stream = io.BytesIO()
    Image.fromarray(RANDOM.integers(0, 256, (6, 8, 3), np.uint8)).save(stream, "jpeg")
    return stream.getvalue()


def sound() -> bytes:
    """A short WAV file."""
    stream = io.BytesIO()
    with wave.open(stream, "wb") as file:
        file.setparams((1, 2, 8000, 0, "NONE", ""))
        file.writeframes(RANDOM.bytes(64))
    return stream.getvalue()


IMAGES = [jpeg() for _ in range(ROWS)]
SOUNDS = [sound() for _ in range(ROWS)]
LABELS = [0, 2, 1, 1, 0, 2]
SEQUENCES = [[0, 1], [], [2], [1, 1, 1], [0], [2, 0]]
TRIPLES = [RANDOM.integers(0, 9, (row % 3, 3)) for row in range(ROWS)]
BLOCKS = {
    rank: RANDOM.normal(size=(ROWS, *range(2, 2 + rank))).astype("f4") for rank in range(2, 6)
}
FEATURES = datasets.Features(
    {
        "label": datasets.ClassLabel(names=NAMES),
        "labels": datasets.Sequence(datasets.ClassLabel(names=NAMES)),
        "part": {"label": datasets.ClassLabel(names=NAMES)},
        "image": datasets.Image(),
        "block2": datasets.Array2D((2, 3), "float32"),
        "block3": datasets.Array3D((2, 3, 4), "float32"),
        "block4": datasets.Array4D((2, 3, 4, 5), "float32"),
        "block5": datasets.Array5D((2, 3, 4, 5, 6), "float32"),
        "triples": datasets.Array2D((None, 3), "int64"),
        "fixed": datasets.List(datasets.Value("int8"), length=2),
        "large": datasets.LargeList(datasets.Value("float16")),
        "objects": datasets.Sequence({"x": datasets.Value("int32")}),
        "text": datasets.Translation(languages=["de", "en"]),
    }
)


def dataset() -> Any:
    """A dataset with every feature that is stored as numbers, bytes or text."""
    columns: dict[str, Any] = {
        "label": LABELS,
        "labels": SEQUENCES,
        "part": [{"label": index} for index in LABELS],
        "image": [{"bytes": data, "path": None} for data in IMAGES],
        "triples": [row.tolist() for row in TRIPLES],
        "fixed": [[row, -row] for row in range(ROWS)],
        "large": [[1.5] * row for row in range(ROWS)],
        "objects": [{"x": [1, row]} for row in range(ROWS)],
        "text": [{"de": f"ä{row}", "en": f"a{row}"} for row in range(ROWS)],
    }
    columns |= {f"block{rank}": block.tolist() for rank, block in BLOCKS.items()}
    dataset = datasets.Dataset.from_dict(columns, features=FEATURES)
    sounds = [{"bytes": data, "path": None} for data in SOUNDS]
    # Beside the others: to encode audio, the library would need another one.
    return dataset.add_column("audio", sounds, feature=datasets.Audio(sampling_rate=8000))


EXPECTED: dict[str, tuple[list[Any], dict[str, Any]]] = {
    "label": (list(np.array(LABELS)), {"logical": {"type": "class_label", "names": NAMES}}),
    "labels": (
        [np.array(row, "i8") for row in SEQUENCES],
        {"kind": "ragged", "logical": {"type": "class_label", "names": NAMES}},
    ),
    "part.label": (list(np.array(LABELS)), {"logical": {"type": "class_label", "names": NAMES}}),
    "image": (list(IMAGES), {"kind": "image", "codec": "jpeg"}),
    **{
        f"block{rank}": (list(block), {"kind": "fixed", "shape": list(block.shape[1:])})
        for rank, block in BLOCKS.items()
    },
    "triples": (list(TRIPLES), {"kind": "ragged", "shape": [3]}),
    "fixed": ([np.array([row, -row], "i1") for row in range(ROWS)], {"shape": [2]}),
    "large": ([np.full(row, 1.5, "f2") for row in range(ROWS)], {"kind": "ragged"}),
    "objects.x": ([np.array([1, row], "i4") for row in range(ROWS)], {"kind": "ragged"}),
    "text.de": ([f"ä{row}" for row in range(ROWS)], {"kind": "text"}),
    "text.en": ([f"a{row}" for row in range(ROWS)], {"kind": "text"}),
    "audio": (list(SOUNDS), {"kind": "binary", "logical": {"type": "audio"}}),
}


@pytest.fixture(scope="module")
def parquet(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The dataset as the library writes it to Parquet."""
    path = tmp_path_factory.mktemp("huggingface") / "train.parquet"
    dataset().to_parquet(path, batch_size=4)
    return path


def check(slab: Path) -> None:
    """Every feature came out as it must."""
    back = Readback(slab)
    assert set(back.fields) == set(EXPECTED)
    for name, (rows, told) in EXPECTED.items():
        assert difference(back.column(name), rows) is None, name
        assert {key: back.fields[name].get(key) for key in told} == told, name


def test_with_the_library(tmp_path: Path, parquet: Path) -> None:
    """With `datasets` imported, its types are registered with Arrow: nothing changes."""
    assert isinstance(pq.read_schema(parquet).field("block2").type, pa.ExtensionType)
    packed = pack(parquet, tmp_path / "slab")
    check(tmp_path / "slab")
    assert "audio.path: left out, all 6 values are null" in packed.warnings


def test_without_the_library(tmp_path: Path, parquet: Path) -> None:
    """Without `datasets`, the same slab comes out, with the same id."""
    program = (
        "import sys; from fieldslab.packer import pack; "
        "print(pack(sys.argv[1], sys.argv[2]).manifest.id); assert 'datasets' not in sys.modules"
    )
    child = subprocess.run(
        [sys.executable, "-c", program, str(parquet), str(tmp_path / "slab")],
        capture_output=True,
        text=True,
        check=True,
        env={"PYTHONPATH": ":".join(sys.path)},
    )
    check(tmp_path / "slab")
    assert child.stdout.strip() == pack(parquet, tmp_path / "other").manifest.id


def test_from_memory(tmp_path: Path) -> None:
    """A Dataset is a source, with the rows that were chosen of it, and so is its Arrow table."""
    options: dict[str, Any] = {"exclude": "image.path,audio.path"}
    pack(dataset().data.table, tmp_path / "slab", **options)
    check(tmp_path / "slab")
    pack(dataset(), tmp_path / "slab", force=True, **options)
    check(tmp_path / "slab")
    pack(dataset().select([4, 0, 1]), tmp_path / "slab", force=True, **options)
    back = Readback(tmp_path / "slab")
    for name, (rows, _) in EXPECTED.items():
        assert difference(back.column(name), [rows[4], rows[0], rows[1]]) is None, name
    streamed = dataset().to_iterable_dataset().skip(2)
    pack(streamed, tmp_path / "slab", force=True, **options)
    assert Readback(tmp_path / "slab").values("label").tolist() == LABELS[2:]


@pytest.mark.parametrize(
    "metadata",
    [
        "not json",
        "[]",
        "{}",
        '{"info": 7}',
        '{"info": {"features": []}}',
        "[" * 9999,
        json.dumps({"info": {"features": {"a": 3, "b": {"_type": "ClassLabel"}}}}),
        json.dumps({"info": {"features": {"a": {"_type": "ClassLabel", "names": 7}}}}),
        json.dumps({"info": {"features": {"c": {"shape": [2, 9]}}}}),
        json.dumps({"info": {"features": {"c": {"shape": ["2", -3]}, "a": {"feature": {}}}}}),
        json.dumps({"info": {"features": {"c": {"shape": [2**70, 3]}}}}),
    ],
    ids=range(11),
)
def test_senseless_metadata(tmp_path: Path, metadata: str) -> None:
    """Metadata that makes no sense is ignored, or contradicts the rows by name."""
    table = pa.table({"a": [1], "b": [2], "c": [[[1, 2, 3], [4, 5, 6]]]})
    pq.write_table(table.replace_schema_metadata({"huggingface": metadata}), tmp_path / "a.parquet")
    if "[2, 9]" in metadata:
        with pytest.raises(SourceInconsistent, match="field c, row 0"):
            pack(tmp_path / "a.parquet", tmp_path / "slab")
        return
    pack(tmp_path / "a.parquet", tmp_path / "slab")
    back = Readback(tmp_path / "slab")
    assert [back.fields[name].get("logical") for name in "abc"] == [None] * 3
    assert back.values("c").tolist() == [[[1, 2, 3], [4, 5, 6]]]


def test_later_row_of_another_shape(tmp_path: Path) -> None:
    """A row that breaks the shape of the sampled ones is named, with what admits it."""
    rows = [[[1, 2], [3, 4]]] * 4000
    rows[2777] = [[1, 2], [3, 4], [5, 6]]
    pq.write_table(pa.table({"a": rows}), tmp_path / "a.parquet", row_group_size=500)
    with pytest.raises(SourceInconsistent, match=r"row 2777.*tensor=.*int64\[\*,2\]"):
        pack(tmp_path / "a.parquet", tmp_path / "slab")
    pack(tmp_path / "a.parquet", tmp_path / "slab", tensor="a=i8[*,2]")
    column = Readback(tmp_path / "slab").column("a")
    assert difference(column, [np.array(row) for row in rows]) is None
    rows[2777] = [[1, 2], [3]]
    pq.write_table(pa.table({"a": rows}), tmp_path / "b.parquet", row_group_size=500)
    with pytest.raises(SourceInconsistent, match=r"row 2777.*cast=.*json"):
        pack(tmp_path / "b.parquet", tmp_path / "slab", force=True)
    pack(tmp_path / "b.parquet", tmp_path / "slab", cast="a=json", force=True)
    assert Readback(tmp_path / "slab").column("a")[2777] == "[[1, 2], [3]]"
