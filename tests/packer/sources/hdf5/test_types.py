"""HDF5 types: what each becomes, bit for bit, and which are refused."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from h5py import h5d, h5s, h5t
from tests.packer.readback import Readback

from fieldslab.packer import pack
from fieldslab.schemas.errors import SourceInconsistent, SourceUnsupported

ROWS = 11
RANDOM = np.random.default_rng(5)

NUMBERS = ["i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f2", "f4", "f8", "c8", "c16"]


def noise(dtype: str, *shape: int) -> np.ndarray:
    """Random bits: any number, any NaN."""
    count = ROWS * int(np.prod(shape)) * np.dtype(dtype).itemsize
    return np.frombuffer(RANDOM.bytes(count), dtype).reshape(ROWS, *shape)


def packed(path: Path, write: Callable[[h5py.File], object], **options: Any) -> Readback:
    """Write a file, pack it, read the slab back with numpy alone."""
    with h5py.File(path / "x.h5", "w") as file:
        write(file)
    pack(path / "x.h5", path / "slab", force=True, **options)
    return Readback(path / "slab")


def refused(path: Path, write: Callable[[h5py.File], object], **options: Any) -> str:
    """What the error says that packing raises; nothing is left behind."""
    with pytest.raises(SourceUnsupported) as caught:
        packed(path, write, **options)
    assert [entry.name for entry in path.iterdir()] == ["x.h5"]
    return str(caught.value)


def low_level(file: h5py.File, kind: h5t.TypeID, values: np.ndarray, name: bytes = b"x") -> None:
    """A dataset of a type that h5py itself does not write; `values` are its raw bytes."""
    space = h5s.create_simple((len(values),))
    h5d.create(file.id, name, kind, space).write(space, space, values, kind)


def kind_of(slab: Readback, name: str) -> tuple[str, str]:
    """Kind and dtype of a field."""
    return slab.fields[name]["kind"], slab.fields[name].get("dtype", "uint8")


def same_bits(actual: Sequence[Any], expected: np.ndarray) -> None:
    """Rows equal an array whose bytes are little-endian once it is told so."""
    little = expected.astype(expected.dtype.newbyteorder("<"))
    rows = np.stack(list(actual))
    assert rows.dtype == little.dtype
    assert rows.shape == little.shape
    assert rows.tobytes() == little.tobytes()


@pytest.mark.parametrize("shape", [(), (3,), (2, 0), (2, 3, 2)], ids=str)
@pytest.mark.parametrize("order", "<>")
def test_numbers(tmp_path: Path, order: str, shape: tuple[int, ...]) -> None:
    """Numbers of both byte orders arrive bit for bit, with the shape of their rows."""
    columns = {dtype: noise(order + dtype, *shape) for dtype in NUMBERS}
    slab = packed(tmp_path, lambda file: file.update(columns))
    for dtype, values in columns.items():
        assert kind_of(slab, dtype) == ("fixed", np.dtype(dtype).name)
        assert "logical" not in slab.fields[dtype]
        same_bits(slab.column(dtype), values)


def test_bool(tmp_path: Path) -> None:
    """The bool of h5py, an enum in the file, is a bool in the slab."""
    values = RANDOM.integers(0, 2, (ROWS, 3)).astype(bool)
    slab = packed(tmp_path, lambda file: file.create_dataset("x", data=values))
    assert slab.fields["x"]["dtype"] == "bool"
    same_bits(slab.column("x"), values)


def test_bool_of_two(tmp_path: Path) -> None:
    """A bool that is neither 0 nor 1 is an error that names its row, and no bool in a slab."""

    def write(file: h5py.File) -> None:
        kind = h5t.py_create(np.dtype(bool), logical=True)
        low_level(file, kind, np.array([0, 1, 1, 7, 1], np.uint8))

    with pytest.raises(SourceInconsistent, match=r"row 3.*found 7"):
        packed(tmp_path, write)


@pytest.mark.parametrize("base", ["i1", "<i2", ">i2", ">u4", "<i8"])
def test_enums(tmp_path: Path, base: str) -> None:
    """An enum is its numbers, with names and codes; numbers without a name stay what they are."""
    names = {"QUARK": 3, "GLUON": -1 if "i" in base else 1, "HIGGS": 25}
    values = np.array([3, 25, 7, 0, 3], base)
    kind = h5py.enum_dtype(names, base)
    slab = packed(tmp_path, lambda file: file.create_dataset("x", data=values, dtype=kind))
    told = slab.fields["x"]["logical"]
    assert dict(zip(told["names"], told["codes"], strict=True)) == names
    assert told["type"] == "enum"
    same_bits(slab.column("x"), values)


@pytest.mark.parametrize("padding", ["null", "space", "first"])
def test_fixed_text(tmp_path: Path, padding: str) -> None:
    """Text of fixed length loses its padding, and nothing else."""
    pads = {"null": h5t.STR_NULLPAD, "space": h5t.STR_SPACEPAD, "first": h5t.STR_NULLTERM}
    fill = b" " if padding == "space" else b"\0"
    words = [b"", b"a", b" lead", b"in side", b"seven77", "süß".encode(), b"x"]
    rows = [word.ljust(8, fill) for word in words]
    expected = [word.decode() for word in words]
    if padding == "first":
        rows.append(b"abc\0rest")
        expected.append("abc")
    else:
        rows.append(b"no_space")
        expected.append("no_space")

    def write(file: h5py.File) -> None:
        kind = h5t.C_S1.copy()
        kind.set_size(8)
        kind.set_strpad(pads[padding])
        low_level(file, kind, np.frombuffer(b"".join(rows), "V8"))

    slab = packed(tmp_path, write)
    assert slab.fields["x"]["kind"] == "text"
    assert slab.column("x") == expected


def test_text_of_any_length(tmp_path: Path) -> None:
    """Text of any length arrives as UTF-8; what was never written is empty."""
    words = ["", "a", "ü" * 300, "line\nbreak", "x" * 70_000]

    def write(file: h5py.File) -> None:
        file.create_dataset("x", (6,), h5py.string_dtype())[:5] = words

    slab = packed(tmp_path, write)
    assert slab.column("x") == [*words, ""]


def test_text_that_is_not_utf8(tmp_path: Path) -> None:
    """Text that is not UTF-8 is an error that names the row, and --cast binary admits it."""
    words = np.array([b"fine", b"l\xe4tin", b"fine"], "S6")
    with pytest.raises(SourceInconsistent, match=r"not UTF-8.*row 1.*cast=.*binary"):
        packed(tmp_path, lambda file: file.create_dataset("x", data=words))
    slab = packed(tmp_path, lambda file: file.create_dataset("x", data=words), cast=["x=binary"])
    assert slab.column("x") == words.tolist()


@pytest.mark.parametrize("dtype", ["<i4", ">i4", ">i2", "<f4", ">f8", "u1", "i1"])
def test_arrays_of_any_length(tmp_path: Path, dtype: str) -> None:
    """Arrays of any length are a ragged field, bit for bit, in both byte orders."""
    rows = [noise(dtype, 4).reshape(-1)[:length] for length in (3, 0, 1, 9)]

    def write(file: h5py.File) -> None:
        dataset = file.create_dataset("x", (5,), h5py.vlen_dtype(np.dtype(dtype)))
        for index, row in enumerate(rows):
            dataset[index] = row

    slab = packed(tmp_path, write)
    assert kind_of(slab, "x") == ("ragged", np.dtype(dtype).name)
    column = slab.column("x")
    assert len(column[4]) == 0
    for row, expected in zip(column, rows, strict=False):
        assert row.tobytes() == expected.astype(expected.dtype.newbyteorder("<")).tobytes()


def test_images(tmp_path: Path) -> None:
    """Arrays of uint8 that all are JPEG or PNG are images; --image makes images of others."""
    png = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR" + (5).to_bytes(4, "big") + (3).to_bytes(4, "big")

    def write(file: h5py.File) -> None:
        for name, rows in {"x": [png, png + b"!"], "y": [b"abc", png]}.items():
            dataset = file.create_dataset(name, (2,), h5py.vlen_dtype("u1"))
            for index, row in enumerate(rows):
                dataset[index] = np.frombuffer(row, np.uint8)

    slab = packed(tmp_path, write)
    assert slab.fields["x"]["kind"] == "image"
    assert slab.column("x") == [png, png + b"!"]
    assert slab.array("x", "size", 0).tolist() == [[3, 5], [3, 5]]  # type: ignore[union-attr]
    assert slab.fields["y"]["kind"] == "ragged"
    assert packed(tmp_path, write, image="y").fields["y"]["kind"] == "image"


def test_compounds(tmp_path: Path) -> None:
    """The members of a compound are columns; array types keep their shape, nesting its names."""
    inner = np.dtype([("x", ">f4"), ("name", "S5")])
    kind = np.dtype(
        [
            ("a", ">i2"),
            ("in", inner),
            ("m", "<f8", (2, 3)),
            ("flag", "?"),
            ("z", "<c8"),
            ("many", inner, (2,)),
            ("word", h5py.string_dtype()),
            ("list", h5py.vlen_dtype("i4")),
        ]
    )
    rows = np.zeros(4, kind)
    for name, dtype, shape in [("a", ">i2", ()), ("m", "<f8", (2, 3)), ("z", "<c8", ())]:
        rows[name] = noise(dtype, *shape)[:4]
    rows["in"]["x"] = noise(">f4")[:4]
    rows["in"]["name"] = [b"one", b"two", b"", b"five5"]
    rows["flag"] = [True, False, True, True]
    rows["many"]["x"] = noise(">f4", 2)[:4]
    rows["word"] = ["w", "", "ö", "wwww"]
    for index in range(4):
        rows["list"][index] = np.arange(index, dtype="i4")
    slab = packed(
        tmp_path, lambda file: file.create_dataset("d", data=rows), exclude=["d.many.name"]
    )
    names = ["a", "in.x", "in.name", "m", "flag", "z", "many.x", "word", "list"]
    assert list(slab.fields) == [f"d.{name}" for name in names]
    for name in ("a", "m", "flag", "z"):
        same_bits(slab.column(f"d.{name}"), rows[name])
    same_bits(slab.column("d.in.x"), rows["in"]["x"])
    same_bits(slab.column("d.many.x"), rows["many"]["x"])
    assert slab.column("d.in.name") == ["one", "two", "", "five5"]
    assert slab.column("d.word") == ["w", "", "ö", "wwww"]
    assert [row.tolist() for row in slab.column("d.list")] == [[], [0], [0, 1], [0, 1, 2]]


def test_array_types(tmp_path: Path) -> None:
    """An array type adds its axes behind those of the dataset."""
    values = noise(">i4", 2, 3, 4)

    def write(file: h5py.File) -> None:
        kind = np.dtype((">i4", (3, 4)))
        file.create_dataset("x", (ROWS, 2), kind)[...] = values

    same_bits(packed(tmp_path, write).column("x"), values)


@pytest.mark.parametrize("order", "<>")
def test_times_of_numpy(tmp_path: Path, order: str) -> None:
    """Opaque bytes that h5py tagged as datetime64 or timedelta64 are times, NaT included."""
    times = np.array(["2026-01-02T03:04:05", "NaT", "1900-01-01"], f"{order}M8[us]")
    spans = np.array([5, "NaT", -7], f"{order}m8[ms]")

    def write(file: h5py.File) -> None:
        file["t"] = times.astype(h5py.opaque_dtype(times.dtype))
        file["d"] = spans.astype(h5py.opaque_dtype(spans.dtype))

    slab = packed(tmp_path, write)
    assert slab.fields["t"]["logical"] == {"type": "timestamp", "unit": "us"}
    assert slab.fields["d"]["logical"] == {"type": "duration", "unit": "ms"}
    same_bits(slab.column("t"), times.view(f"{order}i8"))
    same_bits(slab.column("d"), spans.view(f"{order}i8"))


@pytest.mark.parametrize("order", [h5t.ORDER_LE, h5t.ORDER_BE])
def test_bfloat16(tmp_path: Path, order: int) -> None:
    """bfloat16 keeps its bits and its name."""
    values = noise("<u2")

    def write(file: h5py.File) -> None:
        kind = h5t.IEEE_F16LE.copy()
        kind.set_fields(15, 7, 8, 0, 7)
        kind.set_ebias(127)
        kind.set_order(order)
        low_level(file, kind, values if order == h5t.ORDER_LE else values.byteswap())

    slab = packed(tmp_path, write)
    assert slab.fields["x"]["logical"] == {"type": "bfloat16"}
    same_bits(slab.column("x"), values)


def test_numbers_that_do_not_fill_their_bytes(tmp_path: Path) -> None:
    """Integers of 12 bits keep their values."""
    values = np.array([-2048, -1, 0, 5, 2047], "<i2")

    def write(file: h5py.File) -> None:
        kind = h5t.STD_I16BE.copy()
        kind.set_precision(12)
        kind.set_offset(2)
        space = h5s.create_simple((len(values),))
        h5d.create(file.id, b"x", kind, space).write(space, space, values, h5t.STD_I16LE)

    same_bits(packed(tmp_path, write).column("x"), values)


def opaque(file: h5py.File) -> None:
    """A dataset of opaque bytes."""
    kind = h5t.create(h5t.OPAQUE, 5)
    kind.set_tag(b"calibration")
    low_level(file, kind, np.frombuffer(bytes(range(15)), "V5"))


def test_opaque_bytes(tmp_path: Path) -> None:
    """Opaque bytes need --raw, and arrive as they are."""
    assert 'settings={"raw": True} packs them as uint8[5]' in refused(tmp_path, opaque)
    slab = packed(tmp_path, opaque, settings={"raw": True})
    assert [bytes(row) for row in slab.column("x")] == [
        b"\0\1\2\3\4",
        b"\5\6\7\x08\t",
        b"\n\v\f\r\x0e",
    ]


def references(file: h5py.File) -> None:
    """A dataset of references to a group."""
    file.create_dataset("x", data=[file.ref, file.ref], dtype=h5py.ref_dtype)


def regions(file: h5py.File) -> None:
    """A dataset of references to regions of another."""
    other = file.create_dataset("other", data=np.arange(3))
    file.create_dataset("x", data=[other.regionref[:2]], dtype=h5py.regionref_dtype)


def long_doubles(file: h5py.File) -> None:
    """A dataset of numbers with more than 64 bits."""
    file.create_dataset("x", data=np.arange(3, dtype=np.longdouble))


def old_times(file: h5py.File) -> None:
    """A dataset of the time type that HDF5 never finished."""
    low_level(file, h5t.UNIX_D32LE.copy(), np.arange(3, dtype="<i4"))


def lists_of_texts(file: h5py.File) -> None:
    """A dataset of variable-length arrays of strings."""
    h5d.create(file.id, b"x", h5t.vlen_create(h5t.C_S1.copy()), h5s.create_simple((3,)))


REFUSED: dict[Callable[[h5py.File], None], str] = {
    references: "references point into the file",
    regions: "references point into the file",
    long_doubles: "floating point numbers of",
    old_times: "a time type, which HDF5 never finished",
    lists_of_texts: "only variable-length arrays of plain numbers",
}


@pytest.mark.parametrize("write", REFUSED, ids=lambda write: write.__name__)
def test_refused(tmp_path: Path, write: Callable[[h5py.File], None]) -> None:
    """What cannot be packed is refused by name, and packed without it once it is excluded."""
    text = refused(tmp_path, write, fields=["x"])
    assert REFUSED[write] in text
    assert "field x" in text
    assert 'exclude=["x"]' in text

    def both(file: h5py.File) -> None:
        write(file)
        file["y"] = np.arange(ROWS)

    assert list(
        packed(tmp_path, both, exclude=["x", "other*"][: 1 + (write is regions)]).fields
    ) == ["y"]


def test_the_plan_tells_types(tmp_path: Path) -> None:
    """The type of every field is told as HDF5 has it, byte order included."""

    def write(file: h5py.File) -> None:
        file["z"] = noise(">c8")
        file["b"] = noise("u1") > 99
        file["e"] = np.ones(ROWS, h5py.enum_dtype({"A": 1}, "i1"))
        file["n"] = noise(">f2", 3)
        file["t"] = np.array([b"abc"] * ROWS)

    assert packed(tmp_path, write).manifest["made"]["reasons"] == {
        "b": "HDF5 bool",
        "e": "HDF5 enum of int8",
        "n": "HDF5 float16, big-endian",
        "t": "HDF5 text of 3 bytes",
        "z": "HDF5 complex64, big-endian",
    }
