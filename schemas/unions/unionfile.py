"""Union files: `NAME.slabs` lists slabs that are read as one; see FORMAT.md."""

import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NoReturn

import msgspec

from fieldslab.schemas.errors import (
    DamagedManifest,
    ObjectNotFound,
    SlabChanged,
    SlabNotFound,
    UnsupportedVersion,
    UsageError,
)
from fieldslab.schemas.folder import SlabFiles
from fieldslab.schemas.manifest import (
    MAX_BYTES,
    SEAL,
    Sha256,
    dump_json,
    make_seal,
    parse_strict_json,
)
from fieldslab.schemas.unions.members import compute_union_id
from fieldslab.schemas.urls import is_url, restore_url

if TYPE_CHECKING:
    from fieldslab.schemas.stores.store import Store

FORMAT = "fieldslab union"
VERSION = 1
ENDING = ".slabs"
_RESTORE = "Restore the file from a copy, or make it again: fieldslab union NAME.slabs add."


class UnionMember(
    msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True, kw_only=True
):
    """A slab of a union: its path, relative to the file's folder or absolute, or its URL.

    `name` is what it is called among the others; its path, if that is not given.
    """

    path: str
    id: Sha256
    name: str | None = None

    @property
    def label(self) -> str:
        """What it is called."""
        return self.path if self.name is None else self.name


class UnionFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What a union file says. Each change makes a new generation."""

    format: Literal["fieldslab union"] = "fieldslab union"
    version: Literal[1] = 1
    generation: int = 0
    members: tuple[UnionMember, ...] = ()

    @property
    def id(self) -> str:
        """The `id` of its slabs as one."""
        return compute_union_id([member.id for member in self.members])


def encode_union(union: UnionFile) -> bytes:
    """Encode a union file: a member a line, and the seal of a manifest at the end."""
    content = msgspec.to_builtins(union)
    members = b",\n  ".join(dump_json(member) for member in content.pop("members"))
    lines = [b'"%b": %b' % (key.encode(), dump_json(value)) for key, value in content.items()]
    lines.append(b'"members": [\n  %b\n]' % members if members else b'"members": []')
    body = b"{\n" + b",\n".join(lines)
    return body + make_seal(body)


def decode_union(data: bytes, file: object) -> UnionFile:
    """Parse and validate a union file. Raises UnsupportedVersion and DamagedManifest."""

    def raise_damaged(problem: str, **context: Any) -> NoReturn:
        raise DamagedManifest(problem, file=file, hint=_RESTORE, **context)

    if len(data) > MAX_BYTES:
        raise_damaged("union file is too large", expected=f"at most {MAX_BYTES} bytes")
    content = parse_strict_json(data, raise_damaged)
    if not isinstance(content, dict) or content.get("format") != FORMAT:
        raise_damaged("not a union file", expected=f'"format": "{FORMAT}"')
    if content.get("version") != VERSION:
        raise UnsupportedVersion(
            "unsupported version of union files",
            file=file,
            expected=VERSION,
            found=content.get("version"),
            hint="Upgrade fieldslab.",
        )
    end = data.rfind(SEAL)
    if end < 0 or data[end:] != make_seal(memoryview(data)[:end]):
        raise_damaged("the file's own checksum (`sha256`) does not match")
    del content["sha256"]
    try:
        return msgspec.convert(content, UnionFile)
    except msgspec.ValidationError as error:
        raise_damaged(f"invalid union file: {error}")


def is_union_file(place: str) -> bool:
    """Return whether a place is that of a union file, by its name."""
    return place.endswith(ENDING) and not os.path.isdir(place)


def open_folder(
    place: str, storage_options: Mapping[str, Any] | None = None
) -> tuple["Store", str]:
    """Open the store that a union file lies in, and return its key there. Raises UsageError."""
    from fieldslab.schemas.stores.store import open_store  # imports asyncio

    text = restore_url(place)
    if not text.endswith(ENDING) or os.path.basename(text) == ENDING:
        raise UsageError("the name of a union file ends with .slabs", found=place)
    if is_url(text):
        folder, _, name = text.rpartition("/")
        return open_store(folder, storage_options), name
    return open_store(os.path.dirname(os.path.abspath(text))), os.path.basename(text)


def read_union(place: str, storage_options: Mapping[str, Any] | None = None) -> UnionFile:
    """Read a union file. Raises SlabNotFound, what `decode_union` raises, and what stores raise."""
    return decode_union(read_bytes(place, storage_options), place)


def read_bytes(place: str, storage_options: Mapping[str, Any] | None = None) -> bytes:
    """Read the bytes of a union file. Raises SlabNotFound, and what stores raise."""
    try:
        if is_url(place):
            # Not by the store itself: this process may fork later.
            from fieldslab.schemas.mirror.channel import Channel

            folder, _, name = restore_url(place).rpartition("/")
            return Channel(folder, storage_options or {}).read_object(name)
        store, name = open_folder(place)
        return bytes(store.read(name))
    except ObjectNotFound as error:
        raise make_absent_error(place) from error


def make_absent_error(place: str) -> SlabNotFound:
    """Make the error for a union file that is not there."""
    hint = f"Make it: fieldslab union {place} add SLAB."
    return SlabNotFound("there is no such union file", file=place, hint=hint)


def list_members(union: UnionFile, place: str) -> Iterator[tuple[str, str, str]]:
    """List name, place and `id` of the slabs of a union file that lies at a place."""
    for member in union.members:
        yield member.label, locate_member(member.path, place), member.id


def locate_member(path: str, place: str) -> str:
    """Return where a member lies, by its path in the union file at a place."""
    if is_url(path) or os.path.isabs(path):
        return path
    text = restore_url(place)
    if is_url(text):
        folder = text.rpartition("/")[0]
        while path.startswith("../"):
            folder, path = folder.rpartition("/")[0], path[3:]
        return f"{folder}/{path}"
    return os.path.normpath(os.path.join(os.path.dirname(os.path.abspath(text)), path))


def make_relative(path: str, place: str) -> str:
    """Return how a union file at a place names a slab: relative to it, where that is possible."""
    text, folder = restore_url(path).rstrip("/"), os.path.dirname(restore_url(place))
    if is_url(text):
        inside = is_url(place) and text.startswith(folder + "/")
        return text[len(folder) + 1 :] if inside else text
    if is_url(place):
        raise UsageError(
            "a union file at a URL cannot list slabs of this machine",
            file=path,
            hint="Copy the slab there first: fieldslab copy.",
        )
    return Path(os.path.relpath(text, os.path.abspath(folder))).as_posix()


def find_labels(members: Sequence[UnionMember], names: Sequence[str], place: str) -> set[str]:
    """Find members by their names or paths. Raises UsageError for those that are not there."""
    labels = set()
    for name in names:
        paths = {name, *([] if is_url(name) else [make_relative(name, place)])}
        hits = [each.label for each in members if each.label == name or each.path in paths]
        if not hits:
            raise UsageError(
                "the union has no such slab",
                file=place,
                found=name,
                hint=f"List them: fieldslab union {place} list.",
            )
        labels.update(hits)
    return labels


def make_changed_error(files: SlabFiles, expected: str) -> SlabChanged:
    """Make the error for a slab that is not the one which a union file lists."""
    return SlabChanged(
        "is not the slab that the union file lists: its content has another `id`",
        file=files.path,
        expected=expected,
        found=files.manifest.id,
        hint="Remove it from the union and add it again: fieldslab union NAME.slabs remove, add.",
    )
