"""Files of numpy as a source: values as `numpy.load` gives them, and what is refused."""

import io
import warnings
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.naming import case
from tests.packer.readback import Readback, difference
from tests.servers.web import WebServer

import fieldslab.packer.sources.array_source as array_source
import fieldslab.packer.sources.npy.npy_files as npy_files
from fieldslab.packer import pack
from fieldslab.schemas.errors import (
    SourceInconsistent,
    SourceUnreadable,
    SourceUnsupported,
    UsageError,
)

ROWS = 50
RNG = np.random.default_rng(0)
BITS = RNG.bytes(ROWS * 6 * 16)
KINDS = ("i2", "i4", "i8", "u2", "u4", "u8", "f2", "f4", "f8", "c8", "c16")
NUMBERS = [order + kind for kind in KINDS for order in "<>"]


def make_array(dtype: str, shape: tuple[int, ...] = (ROWS, 2, 3)) -> np.ndarray:
    """Any bits as values of a dtype."""
    count = int(np.prod(shape))
    return np.frombuffer(BITS, dtype, count).reshape(shape)


def check_field(back: Readback, name: str, array: np.ndarray) -> None:
    """A field has the values of an array, little-endian."""
    assert difference(back.column(name), list(array.astype(array.dtype.newbyteorder("<")))) is None


def test_numbers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every dtype of numbers keeps its bits, of rows and columns order, in files and archives."""
    monkeypatch.setattr(array_source, "WINDOW_BYTES", 20_000)
    monkeypatch.setattr(npy_files, "PIECE_BYTES", 9000)
    arrays = {dtype[1:] + dtype[:1].replace("<", "l"): make_array(dtype) for dtype in NUMBERS}
    arrays |= {name + "F": np.asfortranarray(array) for name, array in arrays.items()}
    arrays |= {"bool": RNG.random(ROWS) < 0.5, "i1": make_array("i1", (ROWS,))}
    (tmp_path / "raw").mkdir()
    for name, array in arrays.items():
        np.save(tmp_path / "raw" / f"{name}.npy", array)
    save: Any = np.savez_compressed
    save(tmp_path / "all.npz", **arrays)
    pack(tmp_path / "raw", tmp_path / "slab", settings={"npy_files": "fields"})
    pack(tmp_path / "all.npz", tmp_path / "other")
    for out in ("slab", "other"):
        back = Readback(tmp_path / out)
        assert back.rows == ROWS
        for name, array in arrays.items():
            with case(out, name):
                check_field(back, name, array)


def test_text_times_and_members(tmp_path: Path) -> None:
    """Text loses its padding, times of other units become seconds, members are fields."""
    texts = ["", "ü 漢 🙂", "a" * 9] * 2
    days = np.array(["2024-02-29", "NaT", "1816-03-30"] * 2)
    members: Any = [("a", "<i2"), ("b", [("c", ">f4", (2,)), ("d", "U3")])]
    table = np.zeros(6, members)
    table["b"]["c"] = RNG.random((6, 2))
    table["b"]["d"] = ["x", "", "yyy"] * 2
    arrays = {
        "text": np.array(texts),
        "big": np.array(texts).astype(">U9"),
        "bytes": np.array([text.encode() for text in texts]),
        "days": days.astype("M8[D]"),
        "ms": np.arange(6).astype("m8[ms]"),
        "void": np.frombuffer(BITS, "V3", 6),
        "漢": table,
    }
    save: Any = np.savez
    save(tmp_path / "x.npz", **arrays)
    pack(tmp_path / "x.npz", tmp_path / "slab")
    back = Readback(tmp_path / "slab")
    for name in ("text", "big", "bytes"):
        assert back.column(name) == texts
    assert back.values("days").tolist() == arrays["days"].astype("M8[s]").view("i8").tolist()
    assert back.fields["days"]["logical"] == {"type": "timestamp", "unit": "s"}
    assert back.values("ms").tolist() == list(range(6))
    assert back.values("void").tobytes() == arrays["void"].tobytes()
    check_field(back, "漢.b.c", table["b"]["c"])
    assert back.column("漢.b.d") == table["b"]["d"].tolist()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about version 3 of the header
        np.save(tmp_path / "alone.npy", table.astype([("ä漢", "i2"), ("b", members[1][1])]))
    pack(tmp_path / "alone.npy", tmp_path / "alone")
    assert list(Readback(tmp_path / "alone").fields) == ["ä漢", "b.c", "b.d"]


def test_several_files(tmp_path: Path) -> None:
    """Folders and archives are rows behind each other; numbered names need a word of the user."""
    for number in range(2):
        (tmp_path / f"p{number}").mkdir()
        np.save(tmp_path / f"p{number}" / "x.npy", np.arange(3) + 3 * number)
        np.save(tmp_path / f"p{number}" / "y.npy", np.arange(3.0))
        np.save(tmp_path / f"shard_{number}.npy", np.arange(3) + 3 * number)
    pack(f"{tmp_path}/p*/*.npy", tmp_path / "slab")
    assert Readback(tmp_path / "slab").values("x").tolist() == list(range(6))
    assert sorted(Readback(tmp_path / "slab").fields) == ["x", "y"]
    with pytest.raises(SourceInconsistent, match=r"npy_files.*rows.*npy_files.*fields"):
        pack(f"{tmp_path}/shard_*.npy", tmp_path / "slab", force=True)
    pack(f"{tmp_path}/shard_*.npy", tmp_path / "rows", settings={"npy_files": "rows"})
    assert Readback(tmp_path / "rows").values("shard").tolist() == list(range(6))
    pack(f"{tmp_path}/shard_*.npy", tmp_path / "side", settings={"npy_files": "fields"})
    assert list(Readback(tmp_path / "side").fields) == ["shard_0", "shard_1"]
    np.save(tmp_path / "p1" / "y.npy", np.arange(3))
    with pytest.raises(SourceInconsistent, match="y: float64 there, int64 here"):
        pack(f"{tmp_path}/p*/*.npy", tmp_path / "slab", force=True)
    with pytest.raises(UsageError, match="must be 'fields' or 'rows'"):
        pack(f"{tmp_path}/p*/*.npy", tmp_path / "other", settings={"npy_files": "x"})
    with pytest.raises(SourceUnreadable, match="belongs to a slab"):
        pack(tmp_path / "slab", tmp_path / "copy", from_="npy")
    path = tmp_path / "p0" / "x.npy"
    with pytest.raises(SourceInconsistent, match="two files would be the field x"):
        pack([path, path], tmp_path / "twice")


def test_refused(tmp_path: Path) -> None:
    """Objects are never unpickled; what has no rows, or other lengths, is named with the option."""
    objects = np.array([print, 1], object)
    arrays = {"o": objects, "one": np.float64(3), "empty": np.empty((2, 0)), "x": np.arange(2)}
    save: Any = np.savez
    save(tmp_path / "x.npz", **arrays, days=np.arange(2).astype("M8[Y]"))
    with pytest.raises(SourceUnsupported) as caught:
        pack(tmp_path / "x.npz", tmp_path / "slab")
    for text in ("field o", "never read", "field one", "no rows", "field empty", "field days"):
        assert text in str(caught.value)
    pack(tmp_path / "x.npz", tmp_path / "slab", fields="x")
    assert list(Readback(tmp_path / "slab").fields) == ["x"]
    np.save(tmp_path / "o.npy", objects)
    with pytest.raises(SourceUnsupported, match="is a pickle, which is never read"):
        pack(tmp_path / "o.npy", tmp_path / "other")
    save(tmp_path / "y.npz", a=np.arange(3), b=np.arange(3), c=np.arange(4))
    with pytest.raises(SourceInconsistent, match="3 rows, as a, b") as lengths:
        pack(tmp_path / "y.npz", tmp_path / "other")
    assert lengths.value.context["found"] == "c: 4"


def test_damage(tmp_path: Path) -> None:
    """Files that are cut off, have bytes behind, or other members are named with what is wrong."""
    path = tmp_path / "x.npy"
    np.save(path, np.arange(9))
    whole = path.read_bytes()
    shaped = io.BytesIO()
    np.save(shaped, np.zeros((2, 3)))
    quoted = (
        shaped.getvalue().replace(b"False,", b"'no', ").replace(b"\x93NUMPY\1\0", b"\x93NUMPY\3\0")
    )
    quoted = quoted[:10] + bytes(2) + quoted[10:]
    flag = io.BytesIO()
    np.save(flag, np.frombuffer(b"\1\0\2", bool))
    letters = io.BytesIO()
    np.save(letters, np.frombuffer(b"x\0\0\0\0\0\x12\0", "<U1"))  # beyond Unicode
    for data, problem in (
        (whole[:-1], "its header says 200 bytes, and it has 199"),
        (whole + whole, "200 bytes behind the array"),
        (whole[:40], "damaged or unreadable"),
        (whole.replace(b"(9,)", b"(-9,)"), "its shape is"),
        (whole[:6] + b"\7" + whole[7:], "version"),
        (quoted, "its order is 'no'"),
        (flag.getvalue(), "neither 0 nor 1"),
        (letters.getvalue(), "is no large_string"),
        (b"", "damaged or unreadable"),
    ):
        path.write_bytes(data)
        with case(problem), pytest.raises(SourceUnreadable, match=problem) as caught:
            pack(path, tmp_path / "slab")
        assert str(caught.value.context["file"]) == str(path)
    archive = tmp_path / "y.npz"
    np.savez(archive, x=np.arange(9))
    with zipfile.ZipFile(archive, "a") as opened:
        opened.writestr("notes.txt", "no array")
    with pytest.raises(SourceUnreadable, match=r"the member notes.txt is no .npy"):
        pack(archive, tmp_path / "slab")
    np.savez(archive, x=np.arange(9))
    nameless = bytearray(archive.read_bytes())
    lengths = nameless.index(b"PK\1\2") + 28
    nameless[lengths], nameless[lengths + 4] = 0, nameless[lengths]  # the name is a comment
    archive.write_bytes(nameless)
    with pytest.raises(SourceUnreadable, match="a member has no name"):
        pack(archive, tmp_path / "slab")
    np.savez(archive, x=np.arange(999))
    changed = bytearray(archive.read_bytes())
    changed[changed.index(b"\1\0\0\0\0\0\0\0\2") + 8] ^= 1
    archive.write_bytes(changed)
    with pytest.raises(SourceUnreadable, match="Bad CRC-32"):
        pack(archive, tmp_path / "slab")


def test_few_bytes_are_fetched(
    tmp_path: Path, serve: Callable[..., WebServer], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of arrays at a URL, those that are packed are fetched once, and headers and samples."""
    monkeypatch.setattr(array_source, "WINDOW_BYTES", 1_000_000)
    rng = np.random.default_rng(0)
    arrays = {name: rng.integers(0, 9, (20_000, 50), np.int32) for name in ("a", "b", "c")}
    np.savez(tmp_path / "stored.npz", **arrays)  # type: ignore[arg-type]
    np.savez_compressed(tmp_path / "deflated.npz", **arrays)  # type: ignore[arg-type]
    np.save(tmp_path / "rows.npy", arrays["b"])
    np.save(tmp_path / "columns.npy", np.asfortranarray(arrays["b"]))
    web = serve(tmp_path)
    for name, stored in (("stored.npz", 3), ("deflated.npz", 3), ("rows.npy", 1)):
        with case(name):
            chosen = {"fields": "b"} if name.endswith(".npz") else {}
            pack(f"{web.url}/{name}", tmp_path / "slabs" / name, **chosen)  # type: ignore[arg-type]
            needed = (tmp_path / name).stat().st_size / stored
            assert web.count_bytes() < 1.05 * needed + 5 * 2**16
            web.requests.clear()
    pack(f"{web.url}/columns.npy", tmp_path / "slabs" / "columns")
    assert Readback(tmp_path / "slabs" / "columns").values("columns").tobytes() == (
        arrays["b"].tobytes()
    )
    assert web.count_bytes() < 1.2 * arrays["b"].nbytes + 5 * 2**16
