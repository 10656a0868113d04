"""Write streams with the litdata of this environment, and the values that it reads from them.

Nothing here needs fieldslab. For a version of litdata:

    python -m venv env
    env/bin/pip install litdata==0.2.40 torch pillow zstd cryptography tqdm 'setuptools<81'
    env/bin/python write.py v0_2_40

The folder then holds a stream for each function of `STREAMS`, and `expected.json`: each row as
`StreamingDataset[i]` of the same version gives it.
"""

import base64
import json
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import litdata
import numpy as np
import torch
from litdata import StreamingDataset, optimize
from litdata.streaming.cache import Cache
from litdata.streaming.item_loader import TokensLoader
from litdata.streaming.serializers import JPEGSerializer
from PIL import Image

ROWS = 7
PICTURES = Path("pictures").resolve()


def make_item(row: int) -> dict[str, Any]:
    """An item with a leaf of every type that all versions can write."""
    return {
        "whole": row - 3,
        "number": row / 3,
        "flag": row % 2 == 0,
        "text": f"żółw {row}" * row,
        "blob": bytes(range(row, 2 * row)),
        "matrix": torch.arange(6.0).reshape(2, 3) + row,
        "vector": torch.arange(3) + row,
        "half": torch.full((2, 2), row / 8, dtype=torch.float16),
        "grid": np.arange(4, dtype=np.uint8).reshape(2, 2) + row,
        "line": np.arange(row % 4, dtype=np.float32),
        "boxes": np.full((row % 3, 4), row, np.int16),
        "nested": {"id": row, "pair": [row, f"r{row}"], "deep": {"x": np.array([row], np.int64)}},
        "jpeg": Image.open(PICTURES / f"{row}.jpg"),
        "pixels": Image.new("RGB", (3, 2), (row, 2 * row, 255 - row)),
    }


def make_small_item(row: int) -> dict[str, Any]:
    """An item of few bytes."""
    return {"n": row, "name": f"row {row}", "x": np.arange(4, dtype=np.float32) + row}


def write_leaves(folder: Path) -> None:
    """Write chunks of three items with every leaf."""
    cache = Cache(str(folder), chunk_size=3)
    for row in range(ROWS):
        cache[row] = make_item(row)
    cache.done()
    cache.merge()


def write_zstd(folder: Path) -> None:
    """Write chunks that are compressed."""
    optimize(
        make_small_item,
        [*range(ROWS)],
        str(folder),
        chunk_size=3,
        compression="zstd",
        num_workers=1,
    )


def write_workers(folder: Path) -> None:
    """Write with two processes."""
    optimize(make_small_item, [*range(ROWS)], str(folder), chunk_bytes=200, num_workers=2)


def write_appended(folder: Path) -> None:
    """Write a stream, and append to it."""
    optimize(make_small_item, [*range(4)], str(folder), chunk_size=3, num_workers=1)
    optimize(
        make_small_item, [*range(4, ROWS)], str(folder), chunk_size=3, num_workers=1, mode="append"
    )


def write_merged(folder: Path) -> None:
    """Merge two streams into one."""
    from litdata import merge_datasets

    parts = [folder.parent / f"merged-part-{part}" for part in range(2)]
    optimize(make_small_item, [*range(4)], str(parts[0]), chunk_size=3, num_workers=1)
    optimize(make_small_item, [*range(4, ROWS)], str(parts[1]), chunk_size=3, num_workers=1)
    merge_datasets([str(part) for part in parts], str(folder))
    for part in parts:
        shutil.rmtree(part)


def write_tokens(folder: Path) -> None:
    """Write documents of tokens."""
    cache = Cache(str(folder), chunk_size=30, item_loader=TokensLoader(block_size=5))
    for row in range(ROWS):
        cache[row] = torch.arange(row, row + 10, dtype=torch.int32)
    cache.done()
    cache.merge()


def _write_encrypted(folder: Path, level: str) -> Any:
    from litdata.utilities.encryption import FernetEncryption

    encryption = FernetEncryption(password="correct horse", level=level)
    optimize(
        make_small_item,
        [*range(ROWS)],
        str(folder),
        chunk_size=3,
        num_workers=1,
        encryption=encryption,
    )
    encryption.save(str(folder / "fernet.pem"))
    return encryption


def write_encrypted_items(folder: Path) -> Any:
    """Encrypt item by item."""
    return _write_encrypted(folder, "sample")


def write_encrypted_chunks(folder: Path) -> Any:
    """Encrypt chunk by chunk."""
    return _write_encrypted(folder, "chunk")


STREAMS: dict[str, Callable[[Path], Any]] = {
    "leaves": write_leaves,
    "zstd": write_zstd,
    "workers": write_workers,
    "appended": write_appended,
    "merged": write_merged,
    "tokens": write_tokens,
    "encrypted_items": write_encrypted_items,
    "encrypted_chunks": write_encrypted_chunks,
}


def describe(value: Any) -> Any:
    """Tell a value in JSON: arrays with dtype and shape, bytes in base64."""
    if isinstance(value, dict):
        return {str(key): describe(member) for key, member in value.items()}
    if isinstance(value, (list, tuple)):
        return [describe(member) for member in value]
    if isinstance(value, torch.Tensor):
        value = value.numpy()
    if isinstance(value, Image.Image):
        value = np.asarray(value)
    if isinstance(value, (np.ndarray, np.generic)):
        value = np.asarray(value)
        data = base64.b64encode(np.ascontiguousarray(value).tobytes()).decode()
        return {"dtype": value.dtype.str, "shape": list(value.shape), "data": data}
    if isinstance(value, (bytes, bytearray, memoryview)):
        return {"bytes": base64.b64encode(bytes(value)).decode()}
    return value


def read(folder: Path, encryption: Any, name: str) -> Any:
    """Read each row as this version reads it, and describe it."""
    if name == "tokens":
        stream = StreamingDataset(str(folder), item_loader=TokensLoader(block_size=5))
    elif encryption is not None:
        stream = StreamingDataset(str(folder), encryption=encryption)
    else:
        stream = StreamingDataset(str(folder))
    # Decoding needs torchvision: the file is kept as it was stored.
    JPEGSerializer.deserialize = lambda self, data: bytes(data)
    return describe([stream[row] for row in range(len(stream))])


def main(target: Path) -> None:
    """Write all streams below a folder."""
    target.mkdir(parents=True)
    PICTURES.mkdir(exist_ok=True)
    for row in range(ROWS):
        Image.new("RGB", (16, 8), (30 * row, 10, 200)).save(PICTURES / f"{row}.jpg", quality=80)
    rows: dict[str, Any] = {}
    for name, write in STREAMS.items():
        folder = target / name
        rows[name] = read(folder, write(folder), name)
        unpacked = [
            path.with_name(path.name.replace(".zstd", "")) for path in folder.rglob("*.zstd.bin")
        ]
        for leftover in [*target.rglob("*.lock"), *target.rglob("*.cnt"), *unpacked]:
            leftover.unlink(missing_ok=True)
    expected = {"version": litdata.__version__, "streams": rows}
    (target / "expected.json").write_text(json.dumps(expected, indent=1) + "\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
