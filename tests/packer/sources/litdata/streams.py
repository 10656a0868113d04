"""LitData streams for tests, written by the installed litdata."""

import gc
import json
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import torch
from litdata import StreamingDataset
from litdata.streaming.cache import Cache
from litdata.streaming.item_loader import TokensLoader
from litdata.streaming.serializers import BytesSerializer

from fieldslab.packer.source import Source

FOOTER = b"LDARW01\0"


def write_stream(
    folder: Path, item: Callable[[int], Any], rows: int = 20, chunk: int = 8, **options: Any
) -> Path:
    """Write `item(0)`, `item(1)`, ... in chunks of `chunk` items; returns the folder."""
    cache = Cache(str(folder), chunk_size=chunk, **options)
    for row in range(rows):
        cache[row] = item(row)
    cache.done()
    cache.merge()
    return folder


def write_tokens(
    folder: Path, item: Callable[[int], Any], rows: int, chunk_tokens: int, **options: Any
) -> Path:
    """Write documents for TokensLoader, about `chunk_tokens` tokens a chunk."""
    return write_stream(folder, item, rows, chunk_tokens, item_loader=TokensLoader(), **options)


def change_index(folder: Path, change: Callable[[dict[str, Any]], None]) -> None:
    """Rewrite the index as `change` leaves it."""
    path = folder / "index.json"
    index = json.loads(path.read_text())
    change(index)
    path.write_text(json.dumps(index))


def chunks(folder: Path) -> list[Path]:
    """The chunk files in the order of the index."""
    index = json.loads((folder / "index.json").read_text())
    return [folder / entry["filename"] for entry in index["chunks"]]


def is_arrow(folder: Path) -> bool:
    """Whether litdata wrote the Arrow layout."""
    return all(path.read_bytes().endswith(FOOTER) for path in chunks(folder))


def read_all(source: Source, columns: list[int] | None = None, batch: int = 2**16) -> pa.Table:
    """Every row of a source, through `read`, which may give several types for a column."""
    chosen = list(range(len(source.schema))) if columns is None else columns
    batches = [b for unit in source.units for b in source.read(unit, chosen, batch)]
    for record_batch in batches:
        record_batch.validate(full=True)
    return pa.concat_tables(
        [pa.Table.from_batches([batch]) for batch in batches], promote_options="permissive"
    )


def litdata_rows(folder: Path, **options: Any) -> list[dict[str, Any]]:
    """Every row as litdata itself reads it, media as bytes, with fieldslab's names."""
    media = {name: BytesSerializer() for name in ("jpeg", "image", "file", "video", "audio")}
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "The given buffer is not writable")  # of torch
        warnings.simplefilter("ignore", ResourceWarning)  # files that litdata leaves open
        stream = StreamingDataset(str(folder), serializers=media, **options)
        rows = [dict(_flat(stream[row], ())) for row in range(len(stream))]
        del stream
        gc.collect()
    return rows


def _flat(value: Any, keys: tuple[str, ...]) -> Iterator[tuple[str, Any]]:
    if isinstance(value, dict):
        for key, item in value.items():
            yield from _flat(item, (*keys, str(key)))
    elif isinstance(value, tuple | list):
        for number, item in enumerate(value):
            yield from _flat(item, (*keys, str(number)))
    else:
        plain = value.numpy() if isinstance(value, torch.Tensor) else value
        plain = plain.tolist() if isinstance(plain, np.ndarray) else plain
        plain = bytes(plain) if isinstance(plain, memoryview) else plain
        yield ".".join(keys) or "value", plain
