"""What lies in a Zarr hierarchy, by its metadata alone: arrays, their codecs, their files."""

import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from fieldslab.packer.sources.batches import make_damage_error
from fieldslab.packer.sources.zarr.trees import METADATA, Tree, name_zip_errors
from fieldslab.schemas.errors import FieldslabError
from fieldslab.schemas.optiontext import mark_option

_CODECS = (
    *("adler32", "crc32", "crc32c", "fletcher32", "jenkins_lookup3"),
    *("blosc", "bz2", "gzip", "lz4", "lzma", "zlib", "zstd"),
    *("astype", "bitround", "delta", "fixedscaleoffset", "packbits", "quantize", "shuffle"),
    *("bytes", "sharding_indexed", "transpose", "vlen-bytes", "vlen-utf8"),
)
"""Codecs whose values are numbers or text. Others may hold objects of Python."""


@dataclass(frozen=True)
class Node:
    """An array: its path below the root, its metadata, and its attributes."""

    path: str
    version: int
    metadata: Mapping[str, Any]
    attributes: Mapping[str, Any]

    @property
    def dimensions(self) -> list[str] | None:
        """The names of its axes, where all have one."""
        names = self.metadata.get("dimension_names", self.attributes.get("_ARRAY_DIMENSIONS"))
        are_names = isinstance(names, list) and all(isinstance(name, str) for name in names)
        return names if are_names else None

    @property
    def ends_with_blosc(self) -> bool:
        """Whether chunks begin with a header of blosc, which tells their size."""
        if self.version == 2:
            return (self.metadata.get("compressor") or {}).get("id") == "blosc"
        last = (self.metadata.get("codecs") or [{}])[-1]
        return isinstance(last, dict) and str(last.get("name")).endswith("blosc")

    @property
    def holds_bytes(self) -> bool:
        """Whether its values are bytes of any length."""
        return "vlen-bytes" in _list_codecs(self.metadata)

    def find_refusal(self) -> tuple[str, str] | None:
        """Find why it is not read: a codec or a dtype that may hold objects of Python."""
        advice = f"{mark_option('exclude', ['{}'])} leaves it out."
        names = list(_list_codecs(self.metadata))
        for name in names:
            if name.removeprefix("numcodecs.") not in _CODECS:
                return f"the codec {name!r} is not read, it may hold objects of Python", advice
        objects = self.version == 2 and self.metadata.get("dtype") == "|O"
        if objects and not {"vlen-utf8", "vlen-bytes"} & set(names):
            return "an array of Python objects is not read", advice
        return None


def _list_codecs(metadata: Any) -> Iterator[str]:
    codecs = metadata.get("codecs") or []
    codecs = [*codecs, *(metadata.get("index_codecs") or []), *(metadata.get("filters") or [])]
    for codec in [*codecs, *([metadata["compressor"]] if metadata.get("compressor") else [])]:
        name = codec if isinstance(codec, str) else codec.get("name", codec.get("id"))
        yield str(name)
        if isinstance(codec, dict):
            yield from _list_codecs(codec.get("configuration") or {})


@dataclass(frozen=True)
class Hierarchy:
    """A tree with Zarr in it: a group, or an array alone, whose node has no path."""

    tree: Tree

    @property
    def path(self) -> str:
        """The path or URL of the root."""
        return self.tree.path

    @cached_property
    def nodes(self) -> list[Node]:
        """All arrays, sorted by path. Raises SourceUnreadable where metadata is damaged."""
        return [self._parse_array(path, name) for path, name in self._walk() if name != ".zgroup"]

    @cached_property
    def attributes(self) -> dict[str, Any]:
        """The attributes of the root."""
        if self.has("zarr.json"):
            with name_bad_metadata(os.path.join(self.path, "zarr.json")):
                return dict(self._parse("zarr.json").get("attributes") or {})
        return self._parse(".zattrs") if self.has(".zattrs") else {}

    def has(self, name: str) -> bool:
        """Return whether there is such a file."""
        with name_zip_errors(self.path):
            return self.tree.has(name)

    def describe(self) -> list[dict[str, Any]]:
        """Return the fingerprint: of each array the number, size and digest of its files."""
        return self.tree.describe([node.path for node in self.nodes])

    def _walk(self, folder: str = "") -> Iterator[tuple[str, str]]:
        """Yield path and kind of metadata of all arrays and groups of version 2."""
        name = next((name for name in METADATA if self.has(os.path.join(folder, name))), None)
        if name is None:
            return
        group = name == ".zgroup"
        if name == "zarr.json":
            kind = self._parse(os.path.join(folder, name)).get("node_type")
            group = kind == "group"
        if not group:
            yield folder, name
            return
        for child in self.tree.list_folders(folder):
            yield from self._walk(os.path.join(folder, child))

    def _parse_array(self, path: str, name: str) -> Node:
        metadata = self._parse(os.path.join(path, name))
        if name == "zarr.json":
            return Node(path, 3, metadata, metadata.get("attributes") or {})
        attributes = os.path.join(path, ".zattrs")
        return Node(path, 2, metadata, self._parse(attributes) if self.has(attributes) else {})

    def _parse(self, name: str) -> dict[str, Any]:
        with name_bad_metadata(os.path.join(self.path, name)):
            with name_zip_errors(self.path):
                data = self.tree.read(name)
            metadata = json.loads(data, parse_constant=str)  # writers of version 2 leave NaN bare
            if not isinstance(metadata, dict):
                raise ValueError("it is no object")
            return metadata


@contextmanager
def name_bad_metadata(file: str) -> Iterator[None]:
    """Turn what is raised on metadata that is not as it should be into SourceUnreadable."""
    try:
        yield
    except FieldslabError:
        raise
    except (AttributeError, LookupError, OSError, RecursionError, TypeError, ValueError) as error:
        raise make_damage_error(error, "metadata of Zarr", file) from error
