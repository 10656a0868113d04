"""Where a LitData stream is: its index and its chunk files, local or fetched as they are read."""

import hashlib
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import accumulate
from pathlib import Path
from typing import Any

import numpy as np

from fieldslab.packer.sources.litdata.chunks import ChunkFile, inflate_chunk, is_zstd
from fieldslab.packer.sources.litdata.items import RowBytes
from fieldslab.packer.sources.litdata.library import (
    SCHEMES,
    EncryptionKey,
    download_file,
    read_library_items,
)
from fieldslab.packer.sources.litdata.stream_index import INDEX, parse_index
from fieldslab.packer.sources.path_lookup import name_disk_errors
from fieldslab.schemas.errors import SourceChanged, SourceUnreadable, make_unreadable_source_error


class LitDataStream:
    """The index of a stream, and how to open each chunk. Pickles by what it says, not by files."""

    def __init__(self, path: str, key: EncryptionKey | None = None) -> None:
        """Read the index at `path`, a directory, the file itself or a URL; look at the chunks.

        Raises
        ------
        SourceUnreadable
            The index or a chunk is missing or damaged.
        SourceUnsupported
            The stream is in a layout that is not read.
        """
        self.where = path.removesuffix(INDEX).rstrip("/") or "/"
        if path == INDEX:
            self.where = "."
        self.remote = self.where.startswith(SCHEMES)
        self.key = key
        self._index_file = None if self.remote else self._stat_file(INDEX)
        data = self._read_index()
        self._digest = hashlib.sha256(data).hexdigest()
        self.index = parse_index(data, self.get_location(INDEX))
        rows = (chunk.rows for chunk in self.index.chunks)
        self._first_rows = list(accumulate(rows, initial=0))
        names = [] if self.remote else [chunk.name for chunk in self.index.chunks]
        self._refuse_outside_links(names)
        self._files = [self._stat_file(name) for name in names]
        self._check_lengths()

    @property
    def _is_plain(self) -> bool:
        return self.index.encryption is None and self.index.level == "chunk"

    def needs_litdata_library(self, file: ChunkFile) -> bool:
        """Return True if litdata must read a chunk: encrypted, or compressed by item or inside."""
        index = self.index
        return index.encryption is not None or index.level == "sample" or file.has_zstd_frames

    def get_location(self, name: str) -> str:
        """Return the path or URL of a file of the stream."""
        return os.path.join(self.where, name)

    @contextmanager
    def open_chunk(self, number: int) -> Iterator[ChunkFile]:
        """Open a chunk; download and decompress it if needed.

        Raises SourceUnreadable where it is damaged, SourceChanged where it is not what it was
        when the stream was opened.
        """
        chunk = self.index.chunks[number]
        path = label = self.get_location(chunk.name)
        self._check_unchanged(number)
        with tempfile.TemporaryDirectory(prefix="fieldslab-") as folder:
            if self.remote:
                path = download_file(self.where, chunk.name, folder)
            if self.index.compression and self.index.level == "chunk" and is_zstd(path):
                path = inflate_chunk(path, chunk, label, folder)
            if not self._is_plain and Path(path).parent != Path(folder):
                # litdata maps the file: a copy of ours cannot be cut off meanwhile.
                path = shutil.copy(path, os.path.join(folder, "copy"))
            with ChunkFile(str(path), chunk, label, self._first_rows[number]) as file:
                yield file
        self._check_unchanged(number)

    def read_items(self, file: ChunkFile, batch_bytes: int) -> Iterator[tuple[int, RowBytes]]:
        """Read about so many bytes of serialised items at a time; yield pieces with first rows."""
        if self.needs_litdata_library(file):
            return self._group_library_items(file, batch_bytes)
        return file.read_items(batch_bytes)

    def compute_fingerprint(self) -> list[dict[str, Any]]:
        """Return path and digest of the index, then path, size and time of each local chunk."""
        return [{"path": self.get_location(INDEX), "sha256": self._digest}] + [
            {"path": self.get_location(chunk.name), "bytes": size, "modified": modified}
            for chunk, (size, modified) in zip(self.index.chunks, self._files, strict=False)
        ]

    def _group_library_items(
        self, file: ChunkFile, batch_bytes: int
    ) -> Iterator[tuple[int, RowBytes]]:
        first, size, items = 0, 0, list[bytes]()
        for item in read_library_items(file.path, file.label, self.index, file.chunk, self.key):
            if items and size + len(item) > batch_bytes:
                yield first, _join_items(items)
                first, size, items = first + len(items), 0, []
            items.append(item)
            size += len(item)
        if items:
            yield first, _join_items(items)

    def _read_index(self) -> bytes:
        if self.remote:
            with tempfile.TemporaryDirectory(prefix="fieldslab-") as folder:
                return Path(download_file(self.where, INDEX, folder)).read_bytes()
        with name_disk_errors(), open(self.get_location(INDEX), "rb") as file:
            return file.read()

    def _stat_file(self, name: str) -> tuple[int, int]:
        try:
            info = os.stat(self.get_location(name))
        except OSError as error:
            raise make_unreadable_source_error(
                error,
                f"a file of the stream cannot be read: {error.strerror}",
                file=self.get_location(name),
                hint="litdata.optimize writes the index last, when it is done.",
            ) from error
        return info.st_size, info.st_mtime_ns

    def _refuse_outside_links(self, names: list[str]) -> None:
        """Raise SourceUnreadable for a chunk that is a link to somewhere else.

        The index names the chunks, and may come from anywhere: it must not choose among the files
        of this machine.
        """
        folder = os.path.realpath(self.where)
        for name in names:
            target = os.path.realpath(self.get_location(name))
            if os.path.commonpath([folder, target]) != folder:
                raise SourceUnreadable(
                    "a chunk is a link out of the directory of the stream",
                    file=self.get_location(name),
                    expected=f"a file in {folder}",
                    found=target,
                    hint="If you trust the link, copy the stream and the files its links point to: "
                    f"cp -RL {self.where} COPY",
                )

    def _check_unchanged(self, number: int) -> None:
        if self.remote:
            return
        name = self.index.chunks[number].name
        for part, recorded in ((INDEX, self._index_file), (name, self._files[number])):
            try:
                changed = self._stat_file(part) != recorded
            except SourceUnreadable as error:
                raise SourceChanged(
                    "the file disappeared while the stream was read", file=self.get_location(part)
                ) from error
            if changed:
                raise SourceChanged(
                    "the file changed while the stream was read",
                    file=self.get_location(part),
                    hint="Pack again when nothing writes to it.",
                )

    def _check_lengths(self) -> None:
        """Find chunks that are cut off before the work begins."""
        for number, (size, _) in enumerate(self._files):
            chunk = self.index.chunks[number]
            if size >= chunk.bytes or is_zstd(self.get_location(chunk.name)):
                continue
            label = self.get_location(chunk.name)
            with ChunkFile(label, chunk, label, self._first_rows[number]) as file:
                if self._is_plain:
                    file.read_item_offsets()  # tells the row
                file.refuse_damaged(
                    "cut off", expected=f"{chunk.bytes} bytes", found=f"{size} bytes"
                )


def count_tokens(file: ChunkFile, itemsize: int) -> int:
    """Count the tokens in a chunk for TokensLoader; they must be as many as the index says."""
    table = file.read_item_offsets()
    tokens, rest = divmod(int(table[-1] - table[0]), itemsize)
    if rest or tokens != file.chunk.tokens:
        actual = f"{table[-1] - table[0]} bytes"
        file.refuse_damaged(
            "the number of tokens differs from the index",
            expected=f"{file.chunk.tokens} of {itemsize} bytes",
            found=actual,
        )
    return tokens


def _join_items(items: list[bytes]) -> RowBytes:
    lengths = np.array([len(item) for item in items], np.int64)
    data = np.frombuffer(b"".join(items), np.uint8)
    return RowBytes(data, np.cumsum(lengths) - lengths, lengths)
