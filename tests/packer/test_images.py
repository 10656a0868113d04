"""Columns of encoded images: when they are recognised, and what is stored beside the bytes."""

import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image
from tests.packer.readback import Readback

from fieldslab.packer import pack
from fieldslab.schemas.errors import NullsFound, UsageError

RANDOM = np.random.default_rng(2)


def picture(codec: str, height: int, width: int, **options: Any) -> bytes:
    """A real image, encoded by Pillow."""
    pixels = RANDOM.integers(0, 256, (height, width, 3), np.uint8)
    stream = io.BytesIO()
    Image.fromarray(pixels).save(stream, codec, **options)
    return stream.getvalue()


def sizes(rows: Sequence[bytes | None]) -> list[list[int]]:
    """Height and width by Pillow; 0, 0 where it finds none."""
    results = []
    for row in rows:
        try:
            with Image.open(io.BytesIO(row or b"")) as image:
                results.append([image.height, image.width])
        except OSError:
            results.append([0, 0])
    return results


def stored_sizes(back: Readback, name: str) -> list[list[int]]:
    """The array `size` of all shards."""
    parts = [back.array(name, "size", index) for index in range(len(back.manifest["shards"]))]
    return [size for part in parts if part is not None for size in part.tolist()]


JPEGS = [picture("jpeg", 5 + index, 40 - index, progressive=bool(index % 2)) for index in range(20)]
ALL = [
    *JPEGS[:3],
    picture("png", 7, 9),
    picture("webp", 11, 13),
    picture("webp", 3, 4, lossless=True),
]
VARIANTS = {
    "binary": pa.binary(),
    "large": pa.large_binary(),
    "views": pa.binary_view(),
}


@pytest.mark.parametrize("options", [{"exclude": "a"}, {"fields": "n"}])
def test_asked_for_and_left_out(tmp_path: Path, options: dict[str, Any]) -> None:
    """`--image` for a column that is left out is a contradiction; a pattern may match others."""
    table = pa.table({"a": [picture("png", 3, 4)], "b": [picture("png", 5, 6)], "n": [1]})
    with pytest.raises(UsageError, match="the column is left out") as caught:
        pack(table, tmp_path / "a.slab", image="a:rgb", **options)
    assert caught.value.context["field"] == "a"
    pack(table, tmp_path / "b.slab", image="[ab]:rgb", exclude="a")
    assert list(Readback(tmp_path / "b.slab").fields) == ["b", "n"]


@pytest.mark.parametrize("kind", VARIANTS)
@pytest.mark.parametrize("rows", [JPEGS, ALL, ALL[3:4]], ids=["jpeg", "mixed", "png"])
def test_recognised(tmp_path: Path, kind: str, rows: list[bytes]) -> None:
    """A column of JPEG, PNG and WebP becomes an image field, byte for byte, with sizes."""
    pq.write_table(
        pa.table({"i": pa.array(rows, VARIANTS[kind])}), tmp_path / "a.parquet", row_group_size=7
    )
    for source in (tmp_path / "a.parquet", pq.read_table(tmp_path / "a.parquet")):
        packed = pack(source, tmp_path / "slab", shard_size=1, force=True)
        back = Readback(tmp_path / "slab")
        assert back.fields["i"]["kind"] == "image"
        assert back.fields["i"]["codec"] == {3: "jpeg", 6: "mixed", 1: "png"}.get(len(rows), "jpeg")
        assert back.column("i") == rows
        assert stored_sizes(back, "i") == sizes(rows)
        assert "sampled values are" in packed.manifest.made.reasons["i"]
        progressive = [warning for warning in packed.warnings if "image form `baseline`" in warning]
        assert len(packed.warnings) == len(progressive) == (len(rows) > 1)


def test_other_bytes_stay_bytes(tmp_path: Path) -> None:
    """Bytes of which some are no image stay binary; the reason says how to make them images."""
    mixed = pa.array([*JPEGS[:3], b"no image"])
    table = pa.table({"a": mixed, "b": [b"GIF89a"] * 4, "c": [b""] * 4})
    packed = pack(table, tmp_path / "slab")
    assert {field.kind for field in packed.manifest.fields} == {"binary"}
    assert "the option `image`" in packed.manifest.made.reasons["a"]
    assert "3 of 4 sampled values are jpeg" in packed.manifest.made.reasons["a"]


def test_asked_for(tmp_path: Path) -> None:
    """`--image` makes images of any bytes; those without a header are counted and kept."""
    rows = [*JPEGS[:2], b"no image", b"", JPEGS[2][:100], b"GIF89a" + bytes(50)]
    packed = pack(pa.table({"a": rows}), tmp_path / "slab", image="a")
    back = Readback(tmp_path / "slab")
    assert back.column("a") == rows
    actual = stored_sizes(back, "a")
    assert actual[:2] == sizes(rows[:2])
    assert actual[2:4] == [[0, 0], [0, 0]]
    assert actual[5] == [0, 0]
    without = sum(size == [0, 0] for size in actual)
    assert packed.warnings[0].startswith(
        f"a: {without} of 6 values have no JPEG, PNG or WebP header"
    )


def test_few_among_many(tmp_path: Path) -> None:
    """What the sample does not show is counted when it is met."""
    rows = JPEGS * 20
    rows[77], rows[201] = b"broken", b""
    packed = pack(iter(pa.table({"a": rows}).to_batches(50)), tmp_path / "slab")
    back = Readback(tmp_path / "slab")
    assert back.fields["a"]["kind"] == "image"
    assert back.column("a") == rows
    assert packed.warnings[0].startswith("a: 2 of 400 values")


def test_nulls(tmp_path: Path) -> None:
    """A null image has no bytes and size 0, 0; it is no image without a header."""
    rows = [None, JPEGS[0], None, JPEGS[1]]
    with pytest.raises(NullsFound, match="field a, row 0"):
        pack(pa.table({"a": rows}), tmp_path / "slab")
    packed = pack(pa.table({"a": rows}), tmp_path / "slab", nulls="a=mask")
    back = Readback(tmp_path / "slab")
    assert back.column("a") == rows
    assert stored_sizes(back, "a") == sizes(rows)
    assert back.fields["a"]["codec"] == "jpeg"
    assert packed.warnings[0].startswith("a: 1 of 2 images are JPEG without an index")


@pytest.mark.parametrize("options", [{"image": "t"}, {"image": "n"}], ids=repr)
def test_no_bytes(tmp_path: Path, options: dict[str, Any]) -> None:
    """`--image` is for bytes."""
    table = pa.table({"a": JPEGS[:1], "t": ["x"], "n": [1]})
    with pytest.raises(UsageError, match="not a column of bytes"):
        pack(table, tmp_path / "slab", **options)


@pytest.mark.parametrize("kind", ["text", "binary"])
def test_no_cast(tmp_path: Path, kind: str) -> None:
    """What is an image is not cast, to bytes neither."""
    with pytest.raises(UsageError, match="use either image or cast, not both"):
        pack(pa.table({"a": JPEGS[:1]}), tmp_path / "slab", image="a", cast={"a": kind})


def test_structs_of_bytes_and_path(tmp_path: Path) -> None:
    """HuggingFace keeps images as struct{bytes, path}: one image field, and the path if any."""
    rows = [
        {"bytes": JPEGS[index], "path": f"{index}.jpg" if index % 2 else None} for index in range(6)
    ]
    table = pa.table({"i": pa.array(rows), "j": pa.array([row | {"path": None} for row in rows])})
    schema = table.schema.set(1, pa.field("j", table.schema.field("i").type))
    pq.write_table(table.cast(schema), tmp_path / "a.parquet")
    packed = pack(tmp_path / "a.parquet", tmp_path / "slab")
    back = Readback(tmp_path / "slab")
    assert list(back.fields) == ["i", "i.path", "j"]
    assert back.column("i") == back.column("j") == [row["bytes"] for row in rows]
    assert back.column("i.path") == [row["path"] for row in rows]
    assert packed.warnings[0] == "j.path: left out, all 6 values are null"


def test_odd_files(tmp_path: Path) -> None:
    """Sizes are those that Pillow finds, for files that are odd but can be opened."""
    exif = Image.Exif()
    exif[0x0112] = 6
    plain = picture("jpeg", 21, 34)
    large_comment = b"\xff\xfe\xff\xff" + bytes(65533)
    rows = [
        picture("jpeg", 30, 50, exif=exif),
        picture("jpeg", 64, 64, restart_marker_blocks=2),
        plain[:2] + b"\xff" * 9 + plain[2:],
        plain[:2] + large_comment + plain[2:],
        plain[:20] + b"stray" + plain[20:],
        plain + b"trailing",
        picture("png", 1, 65535),
        picture("jpeg", 65500, 1),
    ]
    assert [0, 0] not in sizes(rows)
    pack(pa.table({"a": rows}), tmp_path / "slab")
    back = Readback(tmp_path / "slab")
    assert back.fields["a"]["kind"] == "image"
    assert stored_sizes(back, "a") == sizes(rows)
