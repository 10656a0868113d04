"""Makes the frozen slabs of format version 1; run by hand: `python -m tests.golden.make`.

Beside each slab stands what it holds: `NAME.json`, made from the values here and not by any
reader. Slabs that are there already are frozen and left alone: remove one to make it anew, and
only as long as the format has not been released.
"""

import contextlib
import datetime
import io
import json
import random
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, get_args

import h5py
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from PIL import Image
from tests.contents import Row, nested_row

from fieldslab.packer import pack
from fieldslab.schemas.fields import DtypeName

HERE = Path(__file__).parent
FOLDER = HERE / "v1"
IMAGES = {path.suffix[1:]: path.read_bytes() for path in sorted((HERE / "images").iterdir())}
PHOTOS = {path.name: path.read_bytes() for path in sorted((HERE / "photos").iterdir())}


@dataclass
class Golden:
    """A slab: its columns as Arrow, the options to pack them with, and each row that it holds.

    `rows` has for each field its rows: text and the names of categories as `str`, all else as
    the bytes of the row (little-endian, in C order), null as None. `features` is HuggingFace's
    description of columns, `group` the rows of a row group, and so of a shard. Where not
    `reproducible`, another version of a library may write other bytes.
    """

    columns: dict[str, Any] = field(default_factory=dict)
    rows: dict[str, list[Row]] = field(default_factory=dict)
    options: dict[str, Any] = field(default_factory=lambda: {"shard_size": 1})
    features: dict[str, Any] = field(default_factory=dict)
    group: int = 4
    reproducible: bool = True

    def add(self, name: str, column: Any, rows: Sequence[Row]) -> None:
        """Add a column and what becomes of it."""
        self.columns[name] = column
        self.rows[name] = list(rows)

    def option(self, name: str, column: str, value: str) -> None:
        """Add an option of `pack` for a column."""
        self.options.setdefault(name, {})[column] = value

    def pack(self, folder: Path, out: Path) -> str:
        """Pack the slab by way of a file in `folder`; returns its id."""
        with contextlib.chdir(folder):  # no path of this machine gets into the manifest
            source = Path(self.write_source())
            packed = pack(source, out, **self.options)
            source.unlink()
        return packed.manifest.id

    def write_source(self) -> str:
        """Write the columns to a Parquet file in the working directory; returns its name."""
        table = pa.table(self.columns)
        if self.features:
            described = json.dumps({"info": {"features": self.features}})
            table = table.replace_schema_metadata({"huggingface": described})
        pq.write_table(table, "source.parquet", row_group_size=self.group)
        return "source.parquet"


class GoldenHdf5(Golden):
    """The same from an HDF5 file; columns are numpy arrays."""

    def write_source(self) -> str:
        """Write the columns to an HDF5 file in the working directory; returns its name."""
        with h5py.File("source.h5", "w") as file:
            for name, values in self.columns.items():
                file.create_dataset(name, data=values)
        return "source.h5"


def dtypes() -> Golden:
    """Every dtype: scalars, arrays of two axes, and ragged ones with a trailing axis."""
    golden = Golden()
    rng = random.Random(1)
    for name in get_args(DtypeName):
        dtype = np.dtype(name).newbyteorder("<")
        for form, shape in (("scalar", ""), ("nd", "2,3"), ("ragged", "*,2")):
            rows: list[Row] = []
            for row in range(golden.group):
                items = {"scalar": 1, "nd": 6, "ragged": 2 * (row % 3)}[form]
                data = rng.randbytes(items * dtype.itemsize)
                if name == "bool":
                    data = bytes(byte & 1 for byte in data)
                rows.append(data)
            column = f"{name} {form}"
            golden.add(column, pa.array(rows, pa.binary()), rows)
            golden.option("tensor", column, f"{name}[{shape}]")
    return golden


def some(pattern: str, value: Callable[[int], Any]) -> list[Any]:
    """A value for each `x` of a pattern, None for each `-`; a shard for each group."""
    letters = pattern.replace(" ", "")
    return [value(row) if letter == "x" else None for row, letter in enumerate(letters)]


def kinds() -> Golden:
    """Every kind and every logical type, with and without nulls, in two shards."""
    golden = Golden(group=6)
    golden.options["jpeg_index"] = None
    all_rows, late, early = "xxxxxx xxxxxx", "xxxxxx x-xx-x", "------ xxxxx-"
    golden.option("nulls", "*", "mask")

    def number(name: str, kind: pa.DataType, code: str, pattern: str, step: int = 1) -> None:
        values = some(pattern, lambda row: row * step - 3)
        rows = [None if value is None else struct.pack(f"<{code}", value) for value in values]
        golden.add(name, pa.array(values, pa.int64()).cast(kind), rows)

    number("int16", pa.int16(), "h", all_rows)
    number("größe 🐈 / ../x", pa.float32(), "f", late)
    number("all null first", pa.float64(), "d", early)
    times: dict[str, tuple[Any, str]] = {
        "timestamp": (pa.timestamp("us", "Europe/Zurich"), "q"),
        "duration": (pa.duration("ms"), "q"),
    }
    for name, (kind, code) in times.items():
        number(name, kind, code, late, step=10**11)
    days = some(all_rows, lambda row: datetime.date(2000 + row, 2, 1 + row))
    epoch = [(day - datetime.date(1970, 1, 1)).days for day in days]
    golden.add("date", pa.array(days, pa.date32()), [struct.pack("<i", day) for day in epoch])
    clock = [3_600_000 * row for row in range(12)]
    golden.add(
        "time",
        pa.array(clock, pa.int32()).cast(pa.time32("ms")),
        [struct.pack("<i", time) for time in clock],
    )
    uuids: list[Row] = [bytes([row]) * 16 for row in range(12)]
    golden.add(
        "uuid", pa.ExtensionArray.from_storage(pa.uuid(), pa.array(uuids, pa.binary(16))), uuids
    )
    codes: list[Row] = [bytes([row, 255]) for row in range(12)]
    golden.add("bytes", pa.array(codes, pa.binary(2)), codes)
    halves: list[Row] = [struct.pack("<2H", 0x3F80 + row, 0x8000) for row in range(12)]
    golden.add("bfloat16", pa.array(halves, pa.binary()), halves)
    golden.option("tensor", "bfloat16", "bf16[2]")

    texts: list[Row] = some(late, lambda row: ["", "a", "größe\n", "🐈" * 5, "\x00"][row % 5])
    golden.add("text", pa.array(texts, pa.string()), texts)
    documents: list[Row] = [json.dumps({"row": row}) for row in range(12)]
    golden.add("json", pa.ExtensionArray.from_storage(pa.json_(), pa.array(documents)), documents)
    binary: list[Row] = some(early, lambda row: bytes(range(row * 7 % 20)))
    golden.add("binary", pa.array(binary, pa.binary()), binary)
    lists = some(late, lambda row: list(range(row % 4)))
    golden.add(
        "ragged",
        pa.array(lists, pa.list_(pa.int32())),
        [None if row is None else struct.pack(f"<{len(row)}i", *row) for row in lists],
    )
    long: list[Row] = [bytes(range(256)) * (400 if row == 6 else row % 2) for row in range(12)]
    golden.add("blocks", pa.array(long, pa.binary()), long)
    golden.option("tensor", "blocks", "u2[*]")

    codecs = ["jpeg", "png", "webp"]
    images: list[Row] = some(late, lambda row: IMAGES[codecs[row % 3]])
    golden.add("image", pa.array(images, pa.binary()), images)
    jpegs: list[Row] = [IMAGES["jpeg"]] * 12
    golden.add("jpeg", pa.array(jpegs, pa.binary()), jpegs)

    few: list[Row] = some(late, lambda row: ["ja", "nein", "größe"][row % 3])
    golden.add("few", pa.array(few).dictionary_encode(), few)
    many: list[Row] = [f"category {row}" for row in range(1100)]
    codes_of = pa.array([1099 - 90 * row for row in range(12)], pa.int32())
    golden.add(
        "many",
        pa.DictionaryArray.from_arrays(codes_of, pa.array(many)),
        [many[1099 - 90 * row] for row in range(12)],
    )
    labels: list[Row] = [struct.pack("<q", row % 2) for row in range(12)]
    golden.add("label", pa.array([row % 2 for row in range(12)]), labels)
    golden.features["label"] = {"_type": "ClassLabel", "names": ["cat", "dog"]}
    sounds: list[Row] = [b"RIFF" + bytes(row) for row in range(12)]
    media = pa.array(
        [{"bytes": sound, "path": None} for sound in sounds],
        pa.struct({"bytes": pa.binary(), "path": pa.string()}),
    )
    golden.add("sound", media, sounds)
    golden.features["sound"] = {"_type": "Audio"}
    return golden


def enum() -> Golden:
    """Names of numbers, as HDF5 has them."""
    golden = GoldenHdf5()
    kind = h5py.enum_dtype({"red": 3, "green": -1, "größe": 100}, basetype="i1")
    codes = np.array([3, -1, 100, 3, -1], "i1")
    golden.add("colour", codes.astype(kind), [bytes(code) for code in codes.reshape(-1, 1)])
    return golden


def dictionary() -> Golden:
    """Many short texts that are alike, compressed with a trained dictionary."""
    golden = Golden(group=1000, reproducible=False)
    golden.options["compress"] = ["text"]
    words = ["a", "photograph", "of", "two", "small", "brown", "dogs", "near", "the", "lake"]
    rng = random.Random(2)
    texts: list[Row] = [" ".join(rng.choices(words, k=rng.randrange(12))) for _ in range(900)]
    golden.add("text", pa.array(texts), texts)
    return golden


def compressed() -> Golden:
    """Compressed fields: fixed, ragged, text and binary, with nulls.

    Another version of the zstd library may write other frames, so that the id may differ.
    """
    golden = Golden(group=8, reproducible=False)
    golden.option("nulls", "*", "mask")
    golden.options["compress"] = ["*"]
    for name, kind in (("text", pa.string()), ("binary", pa.binary())):
        texts = some("xxxxxxxx x-x-", lambda row: f"row {row} " * row)
        rows = [t if t is None or name == "text" else t.encode() for t in texts]
        golden.add(name, pa.array(rows, kind), rows)
    fixed: list[Row] = [np.full(100, row, "<f4").tobytes() for row in range(12)]
    golden.add("fixed", pa.array(fixed, pa.binary()), fixed)
    golden.option("tensor", "fixed", "f4[10,10]")
    ragged: list[Row] = [np.arange(row % 5 * 3, dtype="<i8").tobytes() for row in range(12)]
    golden.add("ragged", pa.array(ragged, pa.binary()), ragged)
    golden.option("tensor", "ragged", "i8[*,3]")
    return golden


def indexed() -> Golden:
    """JPEG images with index points, and images that have none."""
    golden = Golden(group=5)
    golden.option("nulls", "photo", "mask")
    names = [name for name in PHOTOS if name.endswith(".jpeg")]
    photos: list[Row] = [PHOTOS[name] for name in names]
    photos += [photos[0][:-300], None, PHOTOS["colour.png"], photos[0]]  # type: ignore[index]
    golden.add("photo", pa.array(photos, pa.binary()), photos)
    return golden


def pixels() -> Golden:
    """Images as pixels: all of them, and some beside JPEG images with one point a row."""
    golden = Golden(group=4)
    golden.options |= {
        "image": {"rgb": "rgb", "yuv420": "yuv420", "some": "rgb,fraction=0.5"},
        "jpeg_index": "rows",
    }
    golden.option("nulls", "yuv420", "mask")
    colour = np.asarray(Image.open(io.BytesIO(PHOTOS["colour.png"]))).tobytes()
    grey = np.asarray(Image.open(io.BytesIO(PHOTOS["grey.png"]))).tobytes()
    golden.add("rgb", pa.array([PHOTOS["colour.png"]] * 8), [colour] * 8)
    golden.add("yuv420", pa.array([PHOTOS["grey.png"], None] * 4), [grey + b"\x80" * 40, None] * 4)
    jpeg = PHOTOS["420.jpeg"]
    half = [row in (1, 2, 4, 5, 6) for row in range(8)]  # as SplitMix64 of the row's number has it
    images = [PHOTOS["colour.png"] if chosen else jpeg for chosen in half]
    golden.add("some", pa.array(images), [colour if chosen else jpeg for chosen in half])
    return golden


def sha256() -> Golden:
    """Blocks with SHA-256 digests: of arrays of several blocks, of images and of tables."""
    golden = Golden(group=4)
    golden.options["digest"] = "sha256"
    golden.option("nulls", "*", "mask")
    blobs: list[Row] = [bytes([row]) * 256 * (60 * row) if row % 4 else None for row in range(7)]
    golden.add("blob", pa.array(blobs, pa.binary()), blobs)
    photos: list[Row] = [PHOTOS["420.jpeg"], None, PHOTOS["colour.png"], *[PHOTOS["420.jpeg"]] * 4]
    golden.add("photo", pa.array(photos, pa.binary()), photos)
    cities: list[Row] = ["Elm " * 9000, "Oak " * 9000, *[None] * 5]
    golden.add("city", pa.array(cities).dictionary_encode(), cities)
    numbers: list[Row] = [np.int64(row).tobytes() for row in range(7)]
    golden.add("number", pa.array(range(7)), numbers)
    return golden


def nested() -> Golden:
    """Lists of text, of bytes and of lists, with nulls of all three sorts, and structs in lists."""
    golden = Golden(group=6, reproducible=False)
    golden.option("nulls", "*", "mask")
    all_rows, late = "xxxxxx xxxxxx", "xxxxxx x-xx-x"

    def add(name: str, kind: pa.DataType, rows: list[Any], encode: Callable[[Any], Row]) -> None:
        texts = [
            None if row is None else nested_row([None if x is None else encode(x) for x in row])
            for row in rows
        ]
        golden.add(name, pa.array(rows, pa.list_(kind)), texts)

    def keep(text: Any) -> Row:
        kept: Row = text
        return kept

    words = ["", "a", "größe", "🐈" * 5, None]
    add("texts", pa.string(), some(all_rows, lambda row: words[: row % 4]), keep)
    add("texts or null", pa.string(), some(late, lambda row: words[row % 3 :]), keep)
    blobs = some(late, lambda row: [bytes(range(k)) for k in range(row % 5)])
    add("blobs", pa.binary(), blobs, keep)
    lists = some(all_rows, lambda row: [list(range(k, row)) for k in range(row % 4)])
    add("lists", pa.list_(pa.int16()), lists, lambda x: struct.pack(f"<{len(x)}h", *x))
    holes = some(late, lambda row: [None if k == 1 else [k / 3] * k for k in range(row % 4)])
    add("lists or null", pa.list_(pa.float64()), holes, lambda x: struct.pack(f"<{len(x)}d", *x))
    pairs = some(all_rows, lambda row: [[[k, row]] * k for k in range(row % 3)])
    add(
        "pairs",
        pa.list_(pa.list_(pa.int32(), 2)),
        pairs,
        lambda x: b"".join(struct.pack("<2i", *pair) for pair in x),
    )
    long = some(all_rows, lambda row: ["row " * (20_000 if row == 7 else row % 3)] * (row % 3))
    add("compressed", pa.string(), long, keep)
    golden.options["compress"] = ["compressed"]
    structs: list[list[dict[str, Any]]] = [
        [{"name": f"n{k}", "score": k / 2} for k in range(row % 3)] for row in range(12)
    ]
    golden.columns["structs"] = pa.array(structs)
    golden.rows["structs.name"] = [nested_row([x["name"] for x in row]) for row in structs]
    golden.rows["structs.score"] = [
        np.array([x["score"] for x in row], "<f8").tobytes() for row in structs
    ]
    return golden


def empty() -> Golden:
    """No rows: no shards."""
    golden = Golden()
    golden.add("x", pa.array([], pa.float32()), [])
    golden.add("s", pa.array([], pa.string()), [])
    golden.add("c", pa.array([], pa.string()).dictionary_encode(), [])
    return golden


SLABS: dict[str, Callable[[], Golden]] = {
    "dtypes": dtypes,
    "kinds": kinds,
    "enum": enum,
    "compressed": compressed,
    "dictionary": dictionary,
    "empty": empty,
    "indexed": indexed,
    "pixels": pixels,
    "sha256": sha256,
    "nested": nested,
}


def plain(row: Row) -> Any:
    """A row as JSON: text as it is, bytes in hexadecimal digits."""
    if not isinstance(row, bytes):
        return row
    start = row[:256]
    times = len(row) // 256
    if times > 1 and start * times == row:
        return {"hex": start.hex(), "times": times}
    return {"hex": row.hex()}


def main() -> None:
    """Pack every slab that is not there yet, and write what it holds beside it."""
    FOLDER.mkdir(exist_ok=True)
    for name, make in SLABS.items():
        slab = FOLDER / f"{name}.slab"
        if slab.exists():
            continue
        golden = make()
        golden.pack(FOLDER, slab)
        rows = {field: [plain(row) for row in rows] for field, rows in golden.rows.items()}
        text = json.dumps(rows, ensure_ascii=False, indent=0)
        (FOLDER / f"{name}.json").write_text(text + "\n", "utf-8")


if __name__ == "__main__":
    main()
