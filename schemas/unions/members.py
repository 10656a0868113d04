"""Slabs whose rows are read one behind the other, as those of one slab. Often it is just one."""

import hashlib
from collections.abc import Mapping, Sequence
from itertools import accumulate, chain
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import numpy as np

from fieldslab.schemas.access import Folder, find_shard_folder, find_table_folder
from fieldslab.schemas.digest import BLOCK_DIGESTS
from fieldslab.schemas.episodes import find_episode_lengths, replace_episodes
from fieldslab.schemas.fields import Field, Role
from fieldslab.schemas.folder import SlabFiles
from fieldslab.schemas.images import CODES
from fieldslab.schemas.manifest import COUNTS, SHUFFLE_ATTRIBUTE, Manifest, Provenance, Shard
from fieldslab.schemas.unions.merging import MergedField, merge_fields

DETECT = 255
"""In the place of the code of a codec: the first bytes of each image tell it."""


class Member(NamedTuple):
    """An open slab, and what it is called; several with one name follow each other."""

    name: str
    files: SlabFiles


class CodeTable(NamedTuple):
    """What codes of the shards of several slabs are in all of them together.

    Code k of a shard is `codes[starts[shard] + k]`, and the same where `starts` is -1; there are
    `counts[shard]` of them. int64 each.
    """

    starts: np.ndarray
    counts: np.ndarray
    codes: np.ndarray

    def translate(self, values: np.ndarray, shards: np.ndarray) -> int:
        """Replace codes, any integers[n], of rows in these shards, int64[n]; negative ones stay.

        Returns the position of one that is too large, and has changed nothing then, or -1.
        """
        starts = self.starts[shards]
        changing = np.flatnonzero((starts >= 0) & (values >= 0))
        stored = values[changing].astype(np.int64)
        wrong = stored >= self.counts[shards[changing]]
        if wrong.any():
            return int(changing[wrong.argmax()])
        values[changing] = self.codes[starts[changing] + stored]
        return -1


class _MergedManifest(Manifest, frozen=True, kw_only=True, dict=True):
    """What the manifests of several slabs say together; each was checked by itself."""

    def __post_init__(self) -> None:
        """Check nothing."""


class Members:
    """Slabs that are read as one.

    Attributes
    ----------
    names, files
        Name and files of each of them.
    is_union
        Whether they were joined; False for a slab that was opened alone.
    path
        Its path, or for messages, those of all.
    missing
        "null" if fields that a slab lacks are null in its rows.
    manifest
        What the manifest of such a slab would say.
    first_shards
        The first shard of each: int64[slabs + 1].
    codes, categories
        By name of field, where categories or classes differ: what codes become, and the
        categories that were joined of tables.
    """

    def __init__(
        self,
        members: Sequence[Member],
        *,
        is_union: bool = True,
        missing: str | None = None,
        path: Path | None = None,
    ) -> None:
        """Join slabs. Raises UsageError where their fields contradict each other."""
        self.names = [member.name for member in members]
        self.files = [member.files for member in members]
        self.is_union = is_union
        self.missing = missing
        self.codes: dict[str, CodeTable] = {}
        self.categories: dict[str, list[str]] = {}
        self._fields: dict[str, MergedField] = {}
        counts = [len(files.manifest.shards) for files in self.files]
        self.first_shards = np.array([0, *accumulate(counts)], np.int64)
        first, others = self.files[0], len(members) - 1
        if not is_union:
            self.path, self.manifest = first.path, first.manifest
            return
        joined = f"{first.path} and {others:,} more" if others else str(first.path)
        self.path = path or Path(joined)
        merged = merge_fields(self.files, missing)
        self._fields = {each.field.name: each for each in merged}
        self.manifest = _merge_manifests([files.manifest for files in self.files], merged)
        for name, each in self._fields.items():
            if each.codes is not None:
                self.codes[name] = self._make_code_table(each, each.codes)
            if each.categories is not None:
                self.categories[name] = each.categories

    def find_folder(self, shard: int, first_row: int, *, mapped: bool = True) -> Folder:
        """Return the folder of a shard, whose first row in all of them is this one."""
        member = self.find_member(shard) if self.is_union else 0
        within = shard - int(self.first_shards[member])
        return find_shard_folder(self.files[member], within, first_row, mapped)

    def find_member(self, shard: int) -> int:
        """Return the slab that has a shard."""
        return int(self.first_shards.searchsorted(shard, side="right")) - 1

    def find_tables(self, member: int, *, mapped: bool = True) -> Folder | None:
        """Return the folder `tables` of a slab, if it has one."""
        first_row = sum(files.manifest.rows for files in self.files[:member])
        return find_table_folder(self.files[member], mapped, first_row)

    def get_field(self, member: int, name: str) -> Field | None:
        """Return a field as a slab has it, None where it lacks it."""
        if not self.is_union:
            return next(field for field in self.manifest.fields if field.name == name)
        return self._fields[name].parts[member]

    def find_absent(self, name: str, role: Role) -> np.ndarray | None:
        """Find the shards that lack an array which others have: bool[shards], None for no shard.

        All of its items are 0. Without nulls, shards lack the array `valid` in any case.
        """
        parts = self._fields[name].parts if self.is_union else ()
        lacks = [part is None or (role != "valid" and not _has_array(part, role)) for part in parts]
        return self._spread(lacks) if any(lacks) else None

    def find_codecs(self, name: str) -> np.ndarray | None:
        """Find the codec of the images of shards that do not store it for each: uint8[shards].

        0 for all others; None where no shard has any other.
        """
        parts = self._fields[name].parts if self.is_union else ()
        codes = [
            0 if part is None or part.coded else CODES.get(part.codec, DETECT) for part in parts
        ]
        return self._spread(codes).astype(np.uint8) if any(codes) else None

    def _spread(self, values: Sequence[Any]) -> np.ndarray:
        """Give each shard the value of its slab."""
        return np.repeat(np.array(values), np.diff(self.first_shards))

    def _make_code_table(
        self, merged: MergedField, codes: Sequence[np.ndarray | None]
    ) -> CodeTable:
        """Put the codes of all slabs behind each other; those that are the same once.

        Categories that stay have codes, too: a kernel is faster without the choice.
        """
        starts, counts, parts, end = [], [], [], 0
        places: dict[int, int] = {}
        unchanged: dict[int, np.ndarray] = {}
        for part, member_codes in zip(merged.parts, codes, strict=True):
            if member_codes is None and part is not None and part.kind == "categorical":
                size = part.category_count
                member_codes = unchanged.setdefault(size, np.arange(size))
            if member_codes is None:
                starts.append(-1)
                counts.append(0)
                continue
            if id(member_codes) not in places:
                places[id(member_codes)] = end
                parts.append(member_codes)
                end += len(member_codes)
            starts.append(places[id(member_codes)])
            counts.append(len(member_codes))
        return CodeTable(self._spread(starts), self._spread(counts), np.concatenate(parts))


def compute_union_id(ids: Sequence[str]) -> str:
    """Compute the `id` of slabs that are read as one: SHA-256 of theirs, each with a newline."""
    return hashlib.sha256("".join(f"{each}\n" for each in ids).encode()).hexdigest()


def _has_array(field: Field, role: Role) -> bool:
    return any(spec.role == role for spec in field.list_arrays())


def _merge_manifests(manifests: Sequence[Manifest], merged: Sequence[MergedField]) -> Manifest:
    """Make what the manifest of all slabs would say. Attributes stay where all have them.

    Its `digest` is the strongest that one has; each slab has its own.
    """
    first = manifests[0]
    fields = tuple(each.field for each in merged)
    shards: list[Shard] = []
    for index, manifest in enumerate(manifests):
        parts = [each.parts[index] for each in merged]
        shards += _convert_shards(manifest, parts, fields)
    attributes = {
        name: value
        for name, value in first.attributes.items()
        if name != SHUFFLE_ATTRIBUTE  # each was shuffled by itself
        and all(other.attributes.get(name) == value for other in manifests)
    }
    lengths = [find_episode_lengths(each.attributes, each.rows) for each in manifests]
    known_lengths = [each for each in lengths if each is not None]
    episodes = (
        list(chain.from_iterable(known_lengths)) if len(known_lengths) == len(lengths) else None
    )
    content = compute_union_id([manifest.id for manifest in manifests])
    return _MergedManifest(
        format=first.format,
        version=first.version,
        rows=sum(manifest.rows for manifest in manifests),
        fields=fields,
        shards=tuple(shards),
        attributes=replace_episodes(attributes, episodes),
        digest=max((each.digest for each in manifests), key=list(BLOCK_DIGESTS).index),
        made=Provenance(tool="union", time="", plan=content),
        id=content,
    )


def _convert_shards(
    manifest: Manifest, parts: Sequence[Field | None], fields: Sequence[Field]
) -> Sequence[Shard]:
    """Say of the shards of a slab what belongs to the fields of all slabs, in their order."""
    columns = _list_columns(manifest.fields)
    needed = _list_columns(fields)
    if columns == needed:
        return manifest.shards
    lacking = {field.name for field, part in zip(fields, parts, strict=True) if part is None}

    def choose(shard: Shard, member: str) -> tuple[int, ...]:
        stored = dict(zip(columns[member], getattr(shard, member), strict=True))
        if member == "nulls":
            return tuple(
                shard.rows if name in lacking else stored.get(name, 0) for name in needed[member]
            )
        return tuple(stored.get(name, 0) for name in needed[member])

    return [
        msgspec.structs.replace(shard, **{member: choose(shard, member) for member in needed})
        for shard in manifest.shards
    ]


def _list_columns(fields: Sequence[Field]) -> Mapping[str, list[str]]:
    """List the fields that each count of a `Shard` is about."""
    columns = {member: [] for member in (*COUNTS.values(), "nulls")}  # type: dict[str, list[str]]
    for field in fields:
        pers = {spec.per for spec in field.list_arrays()}
        for per, member in COUNTS.items():
            if per in pers:
                columns[member].append(field.name)
        if field.nullable:
            columns["nulls"].append(field.name)
    return columns
