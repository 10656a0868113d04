"""Zarr of versions 2 and 3, in folders and zip archives: arrays are columns, axis 0 the rows."""

import os
from collections.abc import Iterator, Mapping, Sequence
from hashlib import sha256
from typing import Any

import numpy as np

from fieldslab.packer.sources.array_source import ArrayPart, ArraySource, StoredArray
from fieldslab.packer.sources.path_lookup import NoFiles
from fieldslab.packer.sources.remote_lookup import is_remote_source
from fieldslab.packer.sources.zarr.find_trees import find_trees
from fieldslab.packer.sources.zarr.hierarchy import Hierarchy, Node, name_bad_metadata
from fieldslab.packer.sources.zarr.library import OpenedArray
from fieldslab.schemas.errors import SourceChanged, SourceUnreadable


class ZarrSource(ArraySource):
    """Arrays of one or many hierarchies."""

    name = "zarr"
    libraries = ("zarr", "numcodecs")

    def __init__(
        self, paths: list[str], *, storage_options: Mapping[str, Any] | None = None
    ) -> None:
        """Read the metadata of all arrays.

        Raises
        ------
        SourceUnreadable
            There is no Zarr, or its metadata is damaged.
        SourceNeedsLibrary
            The library zarr is not here.
        AccessDenied, RemoteUnreadable, MissingLibrary
            The store of a URL refuses, fails, or needs a library.
        """
        trees = [tree for path in paths for tree in find_trees(path, storage_options)]
        self._hierarchies = [Hierarchy(tree) for tree in trees]
        self._fingerprint = [file for each in self._hierarchies for file in each.describe()]
        self._opened: dict[tuple[int, str], OpenedArray] = {}
        self._states: dict[tuple[int, str, int, int], bytes] = {}
        parts = [self._make_part(number) for number in range(len(self._hierarchies))]
        self.attributes = self._hierarchies[0].attributes
        self.set_parts(parts)

    @staticmethod
    def accepts(paths: list[str]) -> bool:
        """Return whether the first path is a folder or an archive with metadata of Zarr."""
        try:
            return not is_remote_source(paths[0]) and bool(find_trees(paths[0]))
        except (NoFiles, SourceUnreadable):
            return False

    def __getstate__(self) -> dict[str, Any]:
        """Pickle without open arrays: another process opens them again."""
        return self.__dict__ | {"_opened": {}}

    def check(self, columns: list[int]) -> None:
        """Settle on these columns; warn of chunks that are not stored."""
        super().check(columns)
        chosen = self._list_wanted(columns)
        warnings = []
        for number, name in chosen:
            opened = self._open(number, name)
            missing, total = opened.count_missing()
            if missing:
                warnings.append(
                    f"{opened.where}: {missing:,} of {total:,} chunks are not stored: their rows "
                    "are the fill value"
                )
        self.warnings = warnings
        self._states = {
            (number, name, start, stop): self._compute_state(number, name, start, stop)
            for number, start, stop in (unit.key for unit in self.units)
            for other, name in chosen
            if other == number
        }

    def read_arrays(
        self, part: int, names: Sequence[str], start: int, stop: int
    ) -> Iterator[dict[str, np.ndarray]]:
        """Read rows of some arrays, in whole chunks where they fit."""
        try:
            yield {name: self._open(part, name).read(start, stop) for name in names}
        except SourceUnreadable:
            self._check_unchanged(part, names, start, stop)
            raise
        self._check_unchanged(part, names, start, stop)

    def fingerprint(self) -> list[dict[str, Any]]:
        """Return size and state of the files of each array; of an archive its size and time."""
        return self._fingerprint

    def _make_part(self, number: int) -> ArrayPart:
        hierarchy = self._hierarchies[number]
        nodes = [(node, _get_name(hierarchy, node)) for node in hierarchy.nodes]
        arrays = {}
        for node, name in nodes:
            with name_bad_metadata(os.path.join(hierarchy.path, node.path)):
                arrays[name] = self._describe_array(number, node, name)
        return ArrayPart(hierarchy.path, arrays)

    def _describe_array(self, number: int, node: Node, name: str) -> StoredArray:
        attributes = dict(node.attributes)
        if node.dimensions:
            attributes.pop("_ARRAY_DIMENSIONS", None)
            attributes["dimensions"] = node.dimensions
        refusal = node.find_refusal()
        if refusal is not None:
            shape = tuple(map(int, node.metadata.get("shape") or ()))
            return StoredArray(name, shape, np.dtype("V1"), attributes, refusal=refusal)
        opened = self._opened[number, name] = OpenedArray(self._hierarchies[number], node)
        chunk_rows = opened.chunks[0] if opened.chunks else 1
        value_bytes = opened.sample_value_bytes()
        return StoredArray(
            name, opened.shape, opened.dtype, attributes, chunk_rows, value_bytes=value_bytes
        )

    def _open(self, number: int, name: str) -> OpenedArray:
        if (number, name) not in self._opened:
            hierarchy = self._hierarchies[number]
            node = next(node for node in hierarchy.nodes if _get_name(hierarchy, node) == name)
            self._opened[number, name] = OpenedArray(hierarchy, node)
        return self._opened[number, name]

    def _list_wanted(self, columns: list[int]) -> list[tuple[int, str]]:
        names = [self.schema.names[column] for column in columns]
        return list(
            dict.fromkeys(
                (number, part.columns[name].array)
                for number, part in enumerate(self._parts)
                for name in names
            )
        )

    def _compute_state(self, number: int, name: str, start: int, stop: int) -> bytes:
        digest = sha256()
        for path, info in self._open(number, name).list_chunks(start, stop):
            state = "" if info is None else f"{info.st_size} {info.st_mtime_ns}"
            digest.update(f"{path} {state}\n".encode("utf-8", "replace"))
        return digest.digest()[:16]

    def _check_unchanged(self, number: int, names: Sequence[str], start: int, stop: int) -> None:
        """Raise SourceChanged where files of these rows are not as they were planned."""
        self._hierarchies[number].tree.check_unchanged()
        for name in names:
            planned = self._states.get((number, name, start, stop))
            if planned not in (None, self._compute_state(number, name, start, stop)):
                raise SourceChanged(
                    "files of the array changed while it was read",
                    file=self._open(number, name).where,
                    row=f"{start}-{stop - 1}",
                    hint="Pack again when nothing writes to it.",
                )


def _get_name(hierarchy: Hierarchy, node: Node) -> str:
    """Return the path of an array; of one without a group, the name of its folder."""
    if node.path:
        return node.path
    name = os.path.basename(os.path.abspath(hierarchy.path)).removesuffix(".zip")
    return name.removesuffix(".zarr") or "values"
