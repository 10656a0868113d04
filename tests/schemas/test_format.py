"""FORMAT.md: what it says of constants and bytes is what the code does."""

import re
from pathlib import Path
from typing import Any, get_args, get_type_hints

import numpy as np
import pyarrow as pa
import pytest

from fieldslab.packer import pack
from fieldslab.schemas import arrays, digest, fields, manifest
from fieldslab.schemas.fields import Field

TEXT = (Path(__file__).parents[2] / "schemas" / "FORMAT.md").read_text("utf-8")
CONSTANT = re.compile(r"^\| (.+?) \| (\d+) \| `(\w+)\.(\w+)` \|$", re.MULTILINE)
DUMP = re.compile(r"^`([\w./-]+)`, (\d+) bytes:\n\n```\n(.*?)```$", re.MULTILINE | re.DOTALL)
DUMP_LINE = re.compile(r"^([0-9a-f]{4})  ((?:[0-9a-f]{2} )*[0-9a-f]{2})(?: {2,}.*)?$")
TOLD = re.compile(r"`([\w./-]+)`, (\d+) bytes: the header\s+with `'(\S+)'` and `(\(\S*\))`")

CONSTANTS = [(what, int(value), home, name) for what, value, home, name in CONSTANT.findall(TEXT)]
OF_FIELDS = {
    "bytes of an offset": Field(name="", stem="00-x", kind="text").list_arrays()[1].dtype.itemsize,
    "bytes of a category code": np.dtype("int32").itemsize,
}


def test_the_table_of_constants_is_found() -> None:
    """Every line of the table is understood by these tests."""
    table = TEXT.split("## Constants")[1].split("##")[0]
    assert len(CONSTANTS) == table.count("\n|") - 2 >= 10


def test_constants_are_those_of_the_code() -> None:
    """A number in FORMAT.md is the number that the code uses."""
    modules: dict[str, Any] = {
        "arrays": arrays,
        "digest": digest,
        "fields": fields,
        "manifest": manifest,
    }
    for what, value, home, name in CONSTANTS:
        if home == "Field":
            assert value == OF_FIELDS[what], what
        else:
            assert value == getattr(modules[home], name), what


@pytest.fixture(scope="module")
def slab(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The slab of the worked example, packed now."""
    path = tmp_path_factory.mktemp("format") / "two.slab"
    columns = {"x": pa.array([1.5, -2.0], pa.float32()), "s": ["a", "bc"]}
    pack(pa.table(columns), path)
    return path


def test_example_manifest(slab: Path) -> None:
    """The manifest in FORMAT.md is, but for `made` and the seal, the one that is packed."""
    shown = TEXT.split("```json\n")[1].split("```")[0].splitlines()
    packed = (slab / "manifest.json").read_text().splitlines()
    assert len(shown) == len(packed)
    for line, expected in zip(shown, packed, strict=True):
        if line.startswith('"made"'):
            assert line.split(", ...")[0] == expected[: len(line.split(", ...")[0])]
        elif not line.startswith('"sha256"'):
            assert line == expected


def test_example_files_are_all_there_are(slab: Path) -> None:
    """Every file of the worked slab is shown or told in FORMAT.md."""
    files = {str(path.relative_to(slab)) for path in slab.rglob("*.npy")}
    assert {name for name, *_ in [*DUMP.findall(TEXT), *TOLD.findall(TEXT)]} == files


@pytest.mark.parametrize(("name", "size", "lines"), DUMP.findall(TEXT))
def test_example_dumps(name: str, size: str, lines: str, slab: Path) -> None:
    """Each line of a dump shows the bytes of the packed file at that place, up to its end."""
    data = (slab / name).read_bytes()
    assert len(data) == int(size)
    shown = [match for line in lines.splitlines() if (match := DUMP_LINE.match(line))]
    assert len(shown) >= 2
    for match in shown:
        index, expected = int(match[1], 16), bytes.fromhex(match[2])
        assert data[index : index + len(expected)] == expected
    assert index + len(expected) == len(data)


@pytest.mark.parametrize(("name", "size", "descr", "shape"), TOLD.findall(TEXT))
def test_example_files_that_are_told(
    name: str, size: str, descr: str, shape: str, slab: Path
) -> None:
    """What FORMAT.md tells of a file in words is so."""
    actual = np.load(slab / name)
    assert (slab / name).stat().st_size == int(size)
    assert (actual.dtype.str, str(actual.shape)) == (descr, shape)


def test_example_values(slab: Path) -> None:
    """The values that FORMAT.md tells in words are those in the files."""
    folder = slab / "shard-00000"
    assert np.load(folder / "01-s.values.npy").tobytes().hex(" ") in TEXT
    assert np.load(folder / "01-s.offsets.npy").tolist() == [0, 1, 3]


def literals(annotation: Any) -> list[str]:
    """The strings that a Literal allows."""
    return list(get_args(annotation))


def test_every_kind_is_told() -> None:
    """Each kind has a line in the table of fields."""
    for kind in literals(fields.Kind):
        assert f"| `{kind}` |" in TEXT, kind


def test_every_dtype_is_told() -> None:
    """Each dtype stands in the list of `descr`."""
    for name in literals(fields.DtypeName):
        descr = np.dtype(name).newbyteorder("<").str
        assert re.search(rf"[ `]{re.escape(descr)}[ `]", TEXT), name


def test_every_logical_type_is_told() -> None:
    """Each logical type is explained."""
    for name in literals(get_type_hints(fields.Logical)["type"]):
        assert f"`{name}`" in TEXT, name


@pytest.mark.parametrize("struct", [manifest.Manifest, manifest.Shard, fields.Field])
def test_every_member_is_told(struct: Any) -> None:
    """Each member of the manifest, of a field and of a shard is told."""
    for member in struct.__struct_fields__:
        assert f"`{member}`" in TEXT
