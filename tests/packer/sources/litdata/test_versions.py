"""Streams of other versions of litdata than the installed one, as they were written then."""

from pathlib import Path

import numpy as np
import pytest
from tests.packer.readback import Readback
from tests.packer.sources.litdata.streams import litdata_rows, write_stream

from fieldslab.packer import pack
from fieldslab.schemas.errors import SourceUnreadable, SourceUnsupported

OLD = Path(__file__).parent / "v0_2_40"
"""What `litdata.streaming.cache.Cache(folder, chunk_size=3)` of version 0.2.40 made of these items:

    {"x": torch.arange(6.0).reshape(2, 3) + i, "meta": {"id": i, "tag": f"r{i}"},
     "blob": bytes([i, i + 1]), "flag": i % 2 == 0, "none": None,
     "u8": np.arange(4, dtype=np.uint8).reshape(2, 2) + i, "empty": [], "f": float(i),
     "n1": np.arange(3, dtype=np.int32), "s": "text"}
"""


def test_headers_in_the_other_byte_order(tmp_path: Path) -> None:
    """Every leaf of a stream of 0.2.40 is read as it was written, tensors in either byte order."""
    pack(OLD, tmp_path / "slab", exclude="none")
    back = Readback(tmp_path / "slab")
    assert back.rows == 5
    grid = np.arange(6, dtype=np.float32).reshape(2, 3)
    assert np.array_equal(back.values("x"), [grid + row for row in range(5)])
    assert back.values("meta.id").tolist() == [0, 1, 2, 3, 4]
    assert back.column("meta.tag") == ["r0", "r1", "r2", "r3", "r4"]
    assert back.column("blob") == [bytes([row, row + 1]) for row in range(5)]
    assert back.values("flag").tolist() == [True, False, True, False, True]
    square = np.arange(4, dtype=np.uint8).reshape(2, 2)
    assert np.array_equal(back.values("u8"), [square + row for row in range(5)])
    assert back.values("f").tolist() == [0.0, 1.0, 2.0, 3.0, 4.0]
    assert back.values("n1").tolist() == [[0, 1, 2]] * 5
    assert back.column("s") == ["text"] * 5


def test_none_is_pickled_there(tmp_path: Path) -> None:
    """None was stored as a pickle by 0.2.40: refused by name, and never unpickled."""
    with pytest.raises(SourceUnsupported, match="unpickling runs code") as caught:
        pack(OLD, tmp_path / "slab")
    assert caught.value.context["field"] == "none"
    assert not caught.value.others


def test_a_rank_that_is_none_in_either_order(tmp_path: Path) -> None:
    """A tensor whose rank is too large in both byte orders is damage, which names the row."""
    stream = tmp_path / "stream"
    stream.mkdir()
    for file in OLD.iterdir():
        (stream / file.name).write_bytes(file.read_bytes())
    chunk = stream / "chunk-0-0.bin"
    head = np.array([1, 2, 2, 3], "<u4").tobytes()  # float32 of rank 2, 2 x 3
    data = chunk.read_bytes()
    assert data.count(head) == 3
    chunk.write_bytes(data.replace(head, head[:4] + b"\x01\x02\x03\x04" + head[8:]))
    with pytest.raises(SourceUnsupported, match="rank is out of range"):
        pack(stream, tmp_path / "slab", fields="x")


@pytest.mark.parametrize("old", [False, True])
def test_empty_lists_and_dicts_are_told(tmp_path: Path, old: bool) -> None:
    """A list or dict without items in every row has no field, and a warning says so."""
    stream, names = OLD, ["empty"]
    if not old:
        stream = write_stream(tmp_path / "stream", lambda row: (row, [], {"x": {}, "y": row}), 4)
        names = ["1", "2.x"]
        assert set(litdata_rows(stream)[0]) == {"0", "2.y"}
    packed = pack(stream, tmp_path / "slab", exclude="none" if old else ())
    empty = [f"{name}: left out, a list or dict that is empty in every row" for name in names]
    assert [text for text in packed.warnings if "empty" in text] == empty


def test_chunks_that_are_links(tmp_path: Path) -> None:
    """A chunk that leads out of the stream's directory is refused; other links are followed."""
    stream = write_stream(tmp_path / "stream", lambda row: {"n": row}, 8, 4)
    (tmp_path / "link").symlink_to("stream")
    pack(tmp_path / "link", tmp_path / "slab")
    assert Readback(tmp_path / "slab").values("n").tolist() == list(range(8))
    chunk = sorted(stream.glob("*.bin"))[0]
    chunk.rename(stream / "elsewhere")
    chunk.symlink_to("elsewhere")
    pack(stream, tmp_path / "slab", force=True)
    (stream / "elsewhere").rename(tmp_path / "outside")
    chunk.unlink()
    chunk.symlink_to("../outside")
    with pytest.raises(SourceUnreadable, match="out of the directory") as caught:
        pack(stream, tmp_path / "slab", force=True)
    assert caught.value.context["file"] == str(chunk)
    assert caught.value.context["found"] == str(tmp_path / "outside")
    assert "cp -RL" in str(caught.value)
