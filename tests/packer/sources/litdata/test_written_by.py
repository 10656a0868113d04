"""Streams that four versions of litdata wrote, each beside what that version reads.

`versions/write.py` wrote them with 0.2.17, 0.2.40, 0.2.61 and 0.2.76, and says how.
"""

import base64
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fieldslab.packer import pack
from fieldslab.reader import open_slab

VERSIONS = sorted((Path(__file__).parent / "versions").glob("v*"))
STREAMS = (
    "leaves",
    "zstd",
    "workers",
    "appended",
    "merged",
    "encrypted_items",
    "encrypted_chunks",
)


@pytest.fixture(params=VERSIONS, ids=lambda folder: folder.name)
def version(request: pytest.FixtureRequest) -> Path:
    """A folder of streams of one version."""
    folder: Path = request.param
    return folder


@pytest.mark.parametrize("stream", STREAMS)
def test_rows_are_those_that_litdata_reads(version: Path, stream: str, tmp_path: Path) -> None:
    """Each value of each row is that of `StreamingDataset[i]` of the version that wrote it."""
    expected = load_expected(version, stream)
    settings: dict[str, str] = {}
    if stream.startswith("encrypted"):
        password = tmp_path / "password"
        password.write_text("correct horse\n")
        key = version / stream / "fernet.pem"
        settings = {"key": str(key), "key_password_file": str(password)}
    pack(version / stream, tmp_path / "slab", settings=settings)
    slab = open_slab(tmp_path / "slab")
    assert len(slab) == len(expected)
    seen = set()
    for row, item in enumerate(expected):
        for name, value in slab[row].items():
            compare(value, find_leaf(item, name), f"row {row}, field {name}")
            seen.add(name.split(".")[0])
    assert seen == set(expected[0])


def test_tokens_are_those_that_litdata_reads(version: Path, tmp_path: Path) -> None:
    """Blocks of tokens are those of `TokensLoader(block_size=5)` of the version that wrote them."""
    expected = load_expected(version, "tokens")
    pack(version / "tokens", tmp_path / "slab", settings={"block": 5})
    slab = open_slab(tmp_path / "slab")
    (name,) = slab.fields
    blocks = slab.gather(np.arange(len(slab)))[name]
    assert np.array_equal(blocks, [decode(block) for block in expected])


def load_expected(version: Path, stream: str) -> list[Any]:
    """Load the rows of a stream as its version of litdata read them."""
    rows: list[Any] = json.loads((version / "expected.json").read_text())["streams"][stream]
    assert rows
    return rows


def find_leaf(item: Any, name: str) -> Any:
    """Find a member of nested dicts and lists by a name such as `nested.pair.0`."""
    for key in name.split("."):
        item = item[int(key)] if isinstance(item, list) else item[key]
    return decode(item)


def decode(value: Any) -> Any:
    """Turn what `versions/write.py` describes back into arrays, bytes and plain values."""
    if isinstance(value, dict) and set(value) == {"dtype", "shape", "data"}:
        data = base64.b64decode(value["data"])
        return np.frombuffer(data, value["dtype"]).reshape(value["shape"])
    if isinstance(value, dict) and set(value) == {"bytes"}:
        return base64.b64decode(value["bytes"])
    if isinstance(value, list):
        return [decode(member) for member in value]
    return value


def compare(value: Any, expected: Any, where: str) -> None:
    """Compare a value of a slab: lists and dicts are kept as JSON text."""
    if isinstance(expected, np.ndarray):
        assert np.asarray(value).dtype == expected.dtype, where
        assert np.asarray(value).tobytes() == expected.tobytes(), where
        assert np.shape(value) == expected.shape, where
    elif isinstance(expected, bytes):
        assert bytes(value) == expected, where
    elif isinstance(expected, list | dict):
        assert json.loads(value) == expected, where
    else:
        assert value == expected, where
