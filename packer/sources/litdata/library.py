"""The one file that imports litdata: its dtypes, downloads, and the chunks that only it opens.

litdata is never given a serializer of its own, so none of them runs: it hands over the bytes of
an item, and what they mean is found out elsewhere.
"""

import json
import os
from collections.abc import Iterator
from contextlib import closing, contextmanager
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import zstandard

from fieldslab.packer.sources.batches import describe_exception
from fieldslab.packer.sources.litdata.stream_index import INDEX, Chunk, Index
from fieldslab.schemas.errors import (
    SourceNeedsLibrary,
    SourceUnreadable,
    SourceUnsupported,
    UsageError,
)
from fieldslab.schemas.optiontext import mark_option

Dtypes = dict[int, np.dtype[Any]]
"""The dtype for each number that stands in a stream."""

SCHEMES = ("s3://", "gs://", "r2://", "azure://", "hf://", "local:")
"""What litdata downloads from."""

_LARGEST_ITEM = 2**32


class EncryptionKey(NamedTuple):
    """What opens an encrypted stream: the file that litdata saved, and the file of its password."""

    file: str
    password_file: str | None


class NotInstalled(SourceNeedsLibrary):
    """The stream needs litdata itself."""


@contextmanager
def _require_litdata() -> Iterator[None]:
    """Raise NotInstalled where an import says that the library is not there."""
    try:
        yield
    except ImportError as error:
        raise NotInstalled(
            f"this LitData stream needs the library litdata: {error}",
            hint="pip install 'litdata>=0.2.76' 'zstd>=1.5'",
        ) from error


@cache
def load_torch_dtypes() -> Dtypes:
    """Load the dtypes of tensor leaves, without those that numpy does not know."""
    with _require_litdata():
        from litdata.constants import _TORCH_DTYPES_MAPPING
    dtypes: Dtypes = {}
    for number, dtype in _TORCH_DTYPES_MAPPING.items():
        name = str(dtype).removeprefix("torch.")
        if name in np.sctypeDict:
            dtypes[number] = np.dtype(name)
    return dtypes


@cache
def load_numpy_dtypes() -> Dtypes:
    """Load the dtypes of numpy leaves."""
    with _require_litdata():
        from litdata.constants import _NUMPY_DTYPES_MAPPING
    return dict(_NUMPY_DTYPES_MAPPING)


def download_file(url: str, name: str, folder: str) -> str:
    """Fetch a file of a remote stream into a local folder; returns its path there.

    Raises SourceUnreadable where that fails.
    """
    local = os.path.join(folder, os.path.basename(name))
    remote = os.path.join(url, name)
    with _require_litdata():
        from litdata.streaming.downloader import get_downloader
    hint = "Check the URL and the network."
    with _name_library_errors(remote, "cannot be downloaded", hint):
        chunks = [] if name == INDEX else [{"filename": name, "chunk_bytes": 0}]
        get_downloader(url, folder, chunks).download_file(remote, local)
    if not os.path.isfile(local):
        raise SourceUnreadable("cannot be downloaded", file=remote, hint=hint)
    return local


def read_library_items(
    path: str, label: str, index: Index, chunk: Chunk, key: EncryptionKey | None
) -> Iterator[bytes]:
    """Read the bytes of every item of a chunk file, as litdata inflates and decrypts them.

    litdata maps the file at `path`, which nobody else may change; `label` is its name in messages.

    Raises
    ------
    UsageError
        The chunk is encrypted and no key, or not the right one, was given.
    SourceUnreadable
        The chunk is damaged, or a zstd frame does not state a size that fits.
    """
    encryption = _load_encryption(index, key)
    problem, hint = "damaged chunk", "Restore it from a copy, or run litdata.optimize again."
    if encryption is not None:
        problem, hint = f"wrong key or password, or a {problem}", f"Check the key. {hint}"
    with _name_library_errors(label, problem, hint):
        if encryption is None:
            _check_frames(path, index, chunk)
        with closing(_RawChunk(path, index, chunk)) as raw:
            for row in range(chunk.rows):
                yield raw.read_item(row, encryption)


class _RawChunk:
    """One chunk in the hands of litdata's own loader, which is told that a leaf is its bytes."""

    def __init__(self, path: str, index: Index, chunk: Chunk) -> None:
        with _require_litdata():
            from litdata.streaming.item_loader import PyTreeLoader
            from litdata.streaming.serializers import BytesSerializer

        class Raw(PyTreeLoader):  # type: ignore[misc]
            def deserialize(self, raw_item_data: Any) -> Any:
                return raw_item_data

        self._loader = Raw()
        self._path = path
        config = {
            "data_format": ["bytes"],
            "data_spec": None,
            "compression": index.compression,
            "compression_level": None if index.level == "chunk" else index.level,
            "encryption": index.encryption,
        }
        entry = {"filename": chunk.name, "chunk_size": chunk.rows, "chunk_bytes": chunk.bytes}
        self._loader.setup(config, [entry], {"bytes": BytesSerializer()})
        self._loader.set_mmap_allowed_chunks({0})

    def read_item(self, row: int, encryption: Any) -> bytes:
        return bytes(self._loader.load_item_from_chunk(row, 0, self._path, 0, 1, encryption))

    def close(self) -> None:
        handle = getattr(self._loader, "_open_handle", None)
        self._loader.close(0)
        if handle is not None:
            handle.close()


def _check_frames(path: str, index: Index, chunk: Chunk) -> None:
    """Check that every zstd frame states its decompressed size, before one is decompressed."""
    with open(path, "rb") as file:
        data = np.memmap(file, np.uint8, "r")
    if index.level == "batch":
        with _require_litdata():
            from litdata.streaming.framed_zstd import parse_framed_header
        header = parse_framed_header(memoryview(data.data))
        if header.num_items != chunk.rows:
            raise ValueError(f"{header.num_items} items, the index says {chunk.rows}")
        for frame in header.frames:
            last = frame.first_item + frame.n_items
            size = header.offsets[last] - header.offsets[frame.first_item]
            stated = _read_frame_size(data, frame.compressed_off, frame.compressed_len)
            if not stated == size == frame.uncompressed_len:
                raise ValueError(f"a zstd frame of {stated} bytes for items of {size}")
    elif index.level == "sample":
        offsets = np.frombuffer(data, "<u4", chunk.rows + 1, 4).tolist()
        for start, end in pairwise(offsets):
            stated = _read_frame_size(data, start, end - start)
            if not 0 <= stated < _LARGEST_ITEM:
                raise ValueError("a zstd frame does not state its size")


def _read_frame_size(data: np.ndarray, start: int, length: int) -> int:
    if not 0 <= start <= start + length <= len(data):
        raise ValueError("a zstd frame lies outside the file")
    return zstandard.frame_content_size(data[start : start + min(length, 18)].tobytes())


def _load_encryption(index: Index, key: EncryptionKey | None) -> Any:
    """litdata's object that decrypts the stream; None where it is not encrypted."""
    if index.encryption is None:
        return None
    if key is None:
        raise UsageError(
            "the stream is encrypted",
            file=index.path,
            found=index.encryption.get("algorithm"),
            hint=f"{mark_option('key', 'FILE')} names the file that litdata's Encryption.save "
            f"wrote, {mark_option('key_password_file', 'FILE')} the file with its password.",
        )
    return _load_key(key)


@cache
def _load_key(key: EncryptionKey) -> Any:
    """litdata's object for a key; making one takes it a good part of a second."""
    password = ""
    with _require_litdata():
        from litdata.utilities import encryption
    try:
        if key.password_file is not None:
            password = Path(key.password_file).read_text(encoding="utf-8").partition("\n")[0]
        state = json.loads(Path(key.file).read_text(encoding="utf-8"))
        kind = "FernetEncryption" if "salt" in state else "RSAEncryption"
        return getattr(encryption, kind).load(key.file, password.rstrip("\r"))
    except OSError as error:
        raise UsageError(
            f"{mark_option('key')}: cannot be opened: {error.strerror}", file=error.filename
        ) from error
    except (ValueError, KeyError, TypeError) as error:
        raise UsageError(
            f"{mark_option('key')}: not a key that litdata saved, or another password: {error}",
            file=key.file,
        ) from error


@contextmanager
def _name_library_errors(path: str, what: str, hint: str) -> Iterator[None]:
    """Turn what litdata raises on a bad file into a named error."""
    try:
        yield
    except (UsageError, SourceUnsupported, SourceUnreadable, GeneratorExit):
        raise
    except Exception as error:  # the library raises whatever it likes
        problem = f"{what}: {describe_exception(error)}"
        raise SourceUnreadable(problem, file=path, hint=hint) from error
