"""What parses bytes of strangers: each takes any bytes, or raises a FieldslabError."""

import io
import tarfile
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path

import h5py
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import zstandard
from tests.golden.make import FOLDER as GOLDEN
from tests.golden.make import IMAGES
from tests.hostile.forks import FOLDER
from tests.jpegs import encode, photograph
from tests.reader.decoders.decoding import crops_of, decode, encoded

from fieldslab.packer import pack
from fieldslab.reader.decoders.roi import Roi
from fieldslab.schemas.errors import FieldslabError
from fieldslab.schemas.fields import Field
from fieldslab.schemas.frames import FrameReader
from fieldslab.schemas.images import CODES, read_image_size
from fieldslab.schemas.manifest import decode_manifest, make_seal

_SMALL = encode(photograph(40, 56, 1), quality=70)
_SIZE = (40, 56)
_MOST_PIXELS = 2**20


def _parse_manifest(data: bytes) -> None:
    body = data.partition(b',\n"sha256"')[0]
    decode_manifest(body + make_seal(body))


def _parse_jpeg(data: bytes) -> None:
    if not data:
        return
    _, height, width = read_image_size(memoryview(data))
    if not 0 < height * width <= _MOST_PIXELS:
        height, width = _SIZE
    images, _kept = encoded([data], [(height, width)], CODES["jpeg"])
    decode(Roi(), images, crops_of([(0, 0, height, width)]), (16, 16), 0, _MOST_PIXELS)


def _parse_points(data: bytes) -> None:
    images, (_values, points) = encoded([_SMALL], [_SIZE], CODES["jpeg"])
    lies = np.frombuffer(data[: points.nbytes], np.uint8)
    points.reshape(-1).view(np.uint8)[: len(lies)] = lies
    decode(Roi(), images, crops_of([(9, 9, 20, 30)]), (16, 16), 0, _MOST_PIXELS)


def _parse_frame(data: bytes) -> None:
    count, frame = np.array([data[0] if data else 0], np.uint64), np.frombuffer(data[1:], np.uint8)
    field = Field(name="x", stem="00-x", kind="ragged", dtype="int32")
    FrameReader("x").read_values(frame, np.array([0, len(frame)]), count, field)


def _pack_file(name: str, data: bytes) -> None:
    with tempfile.TemporaryDirectory(dir=FOLDER) as folder:
        path = Path(folder, name)
        path.write_bytes(data)
        pack(path, Path(folder, "out.slab"), nulls={"*": "mask"}, jobs=1)


def _make_table() -> pa.Table:
    return pa.table({"i": [1, 2, None], "s": ["a", "bc", ""], "l": [[1.5], [], None]})


def _make_parquet() -> bytes:
    out = io.BytesIO()
    pq.write_table(_make_table(), out)
    return out.getvalue()


def _make_ipc() -> bytes:
    out = io.BytesIO()
    with pa.ipc.new_file(out, _make_table().schema) as writer:
        writer.write_table(_make_table())
    return out.getvalue()


def _make_hdf5() -> bytes:
    out = io.BytesIO()
    with h5py.File(out, "w") as file:
        file["x"] = np.arange(6).reshape(3, 2)
        file.create_dataset("y", data=np.arange(3.0), chunks=(2,), compression="gzip")
    return out.getvalue()


def _make_tar() -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as tar:
        for number, image in enumerate([IMAGES["png"], IMAGES["jpeg"]]):
            for suffix, data in ((".img", image), (".cls", b"3"), (".json", b'{"a": 1}')):
                info = tarfile.TarInfo(f"sample{number}{suffix}".replace(".img", ".png"))
                info.size = len(data)
                tar.addfile(info, io.BytesIO(data))
    return out.getvalue()


def _read_manifest() -> bytes:
    return (GOLDEN / "enum.slab" / "manifest.json").read_bytes()


def _make_frame() -> bytes:
    return b"\x05" + zstandard.compress(np.arange(5, dtype=np.int32).tobytes())


def _make_points() -> bytes:
    _, (_values, points) = encoded([_SMALL], [_SIZE], CODES["jpeg"])
    return bytes(points.tobytes())


PARSERS: dict[str, tuple[Callable[[bytes], None], Callable[[], bytes]]] = {
    "manifest": (_parse_manifest, _read_manifest),
    "jpeg": (_parse_jpeg, lambda: _SMALL),
    "points": (_parse_points, _make_points),
    "frame": (_parse_frame, _make_frame),
    "parquet": (partial(_pack_file, "x.parquet"), _make_parquet),
    "ipc": (partial(_pack_file, "x.arrow"), _make_ipc),
    "hdf5": (partial(_pack_file, "x.h5"), _make_hdf5),
    "csv": (partial(_pack_file, "x.csv"), lambda: b'a,b\n1,"x y"\n2.5,\n'),
    "tar": (partial(_pack_file, "x.tar"), _make_tar),
}
"""What parses, and an example of what it takes."""


def try_parser(name: str, data: bytes) -> bool:
    """Parse: True if it was taken, False for a named error. Whatever else is raised is a bug."""
    try:
        PARSERS[name][0](data)
    except FieldslabError:
        return False
    return True
