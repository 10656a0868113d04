"""The manifest: `manifest.json`, the one file that says what all the others must be."""

import hashlib
import json
import math
import re
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, Literal, NoReturn

import msgspec

from fieldslab.schemas.errors import DamagedManifest, UnsupportedVersion
from fieldslab.schemas.fields import MAX_COUNT, ArraySpec, Count, Field
from fieldslab.schemas.files import RESTORE

FORMAT = "fieldslab"
VERSION = 1
MANIFEST = "manifest.json"
SHUFFLE_ATTRIBUTE = "shuffle"
"""The member of `attributes` that says how rows were shuffled when the slab was packed."""
MAX_BYTES = 16 * 1024 * 1024
MAX_ARRAY_BYTES = 2**62
"""No array may be larger, not even in lengths beside a 0: no program could map it."""

COUNTS = {"element": "elements", "point": "points"}
"""What arrays of a field may have items per, and the member of `Shard` that counts these."""

Sha256 = Annotated[str, msgspec.Meta(pattern=r"^[0-9a-f]{64}\Z")]

_SURROGATE = re.compile(rb"\\u[dD][89a-fA-F]")
_SEAL = b',\n"sha256": "'
_SEAL_END = b'"\n}\n'


class Shard(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """A run of rows with its own arrays.

    `elements` has one count per variable-length field (bytes for text, binary and image), `nulls`
    one per nullable field and `points` one per indexed field, in field order: with `rows` they
    fix the size of every file. `root` is the SHA-256 over the shard's digests.
    """

    rows: Annotated[int, msgspec.Meta(ge=1, le=MAX_COUNT)]
    elements: tuple[Count, ...]
    nulls: tuple[Count, ...]
    root: Sha256
    points: tuple[Count, ...] = ()


class Provenance(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """How the slab was packed. No reader needs it, and `id` does not cover it."""

    tool: str
    time: str
    plan: str
    sources: tuple[dict[str, Any], ...] = ()
    options: dict[str, Any] = {}
    reasons: dict[str, str] = {}
    warnings: tuple[str, ...] = ()


class Content(
    msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True, kw_only=True
):
    """The part of a manifest that `id` covers: all but how and when the slab was packed."""

    format: Literal["fieldslab"]
    version: Literal[1]
    rows: Count
    fields: tuple[Field, ...]
    shards: tuple[Shard, ...]
    tables: Sha256 | None = None
    attributes: dict[str, Any] = {}

    def to_canonical_json(self) -> bytes:
        """Encode these members as RFC 8259 JSON: sorted keys, no spaces, defaults left out."""
        members = msgspec.to_builtins(self)
        content = {key: members[key] for key in Content.__struct_fields__ if key in members}
        return json.dumps(
            content, sort_keys=True, ensure_ascii=False, separators=(",", ":"), allow_nan=False
        ).encode()

    def compute_id(self) -> str:
        """Compute the SHA-256, in hex, of `to_canonical_json()`: packs of equal content agree."""
        return hashlib.sha256(self.to_canonical_json()).hexdigest()


class Manifest(
    Content, frozen=True, forbid_unknown_fields=True, omit_defaults=True, kw_only=True, dict=True
):
    """A slab's manifest, validated: whatever an instance says is consistent in itself."""

    made: Provenance
    id: Sha256

    @cached_property
    def arrays(self) -> tuple[tuple[Field, tuple[ArraySpec, ...]], ...]:
        """The arrays of each field; kept, since every shard has the same."""
        return tuple((field, field.list_arrays()) for field in self.fields)

    def __post_init__(self) -> None:
        """Raise ValueError where the members contradict each other."""
        for index, field in enumerate(self.fields):
            if reason := field.find_contradiction():
                raise ValueError(f"{reason} - at `$.fields[{index}]`")
            if not field.stem.startswith(f"{index:02d}-"):
                raise ValueError(
                    f"does not start with {index:02d}, the ordinal - at `$.fields[{index}].stem`"
                )
        names = [field.name for field in self.fields]
        stems = [field.stem for field in self.fields]
        if len(set(names)) < len(names) or len(set(stems)) < len(stems):
            raise ValueError("two fields share a name or a stem - at `$.fields`")
        self._check_counts()

    def _check_counts(self) -> None:
        nullable = sum(field.nullable for field in self.fields)
        pers: list[str] = [spec.per for _, specs in self.arrays for spec in specs]
        needed = {member: pers.count(per) for per, member in COUNTS.items()} | {"nulls": nullable}
        widths = [field.stored.widest_item for field in self.fields]
        for index, shard in enumerate(self.shards):
            for member, count in needed.items():
                if len(getattr(shard, member)) != count:
                    raise ValueError(
                        f"expected {count} values in `{member}` - at `$.shards[{index}]`"
                    )
            if any(count > shard.rows for count in shard.nulls):
                raise ValueError(f"more nulls than rows - at `$.shards[{index}].nulls`")
            elements = iter(shard.elements)
            for field, width in zip(self.fields, widths, strict=True):
                items = next(elements) if field.stored.variable else shard.rows
                if max(items, 1) * width > MAX_ARRAY_BYTES:
                    raise ValueError(f"{field.stem} is too large - at `$.shards[{index}]`")
        total = sum(shard.rows for shard in self.shards)
        if total != self.rows:
            raise ValueError(f"shards hold {total} rows, `rows` says {self.rows} - at `$.rows`")
        if (self.tables is None) == any(field.list_arrays_in_tables() for field in self.fields):
            raise ValueError("`tables` contradicts the fields - at `$.tables`")
        if self.id != self.compute_id():
            raise ValueError("`id` is not the digest of the content - at `$.id`")


def create_manifest(provenance: Provenance, **content: Any) -> Manifest:
    """Create a manifest of the current version; `content` are the members of `Content`."""
    content |= {"format": FORMAT, "version": VERSION}
    # By way of plain values: msgspec leaves out a default only where it is the very same object,
    # and a dtype's name, say, may be an equal one.
    plain = msgspec.convert(msgspec.to_builtins(Content(**content)), Content)
    members = {name: getattr(plain, name) for name in Content.__struct_fields__}
    return Manifest(**members, made=provenance, id=plain.compute_id())


def encode_manifest(manifest: Manifest) -> bytes:
    """Encode `manifest.json`: one member, field or shard a line, and the seal at the end.

    The seal is the last member, `sha256`: the SHA-256 of every byte in front of it.
    """
    members = []
    for key, value in msgspec.to_builtins(manifest).items():
        if key in ("fields", "shards") and value:
            items = ",\n  ".join(_dump_json(item) for item in value)
            members.append(f'"{key}": [\n  {items}\n]')
        else:
            members.append(f'"{key}": {_dump_json(value)}')
    body = ("{\n" + ",\n".join(members)).encode()
    return body + _make_seal(body)


def decode_manifest(data: bytes, file: str | Path = MANIFEST) -> Manifest:
    """Parse and validate the bytes of a manifest; `file` is for messages.

    Raises
    ------
    UnsupportedVersion
        The manifest is of another format version.
    DamagedManifest
        Anything else is wrong with it.
    """

    def raise_damaged(problem: str, **context: Any) -> NoReturn:
        raise DamagedManifest(problem, file=file, hint=RESTORE, **context)

    if len(data) > MAX_BYTES:
        raise_damaged(
            "manifest is too large", expected=f"at most {MAX_BYTES} bytes", found=len(data)
        )
    if not data.strip():
        raise_damaged("manifest is empty", expected="a JSON object")
    content = _parse_strict_json(data, raise_damaged)
    if not isinstance(content, dict) or content.get("format") != FORMAT:
        raise_damaged("not a fieldslab manifest", expected=f'"format": "{FORMAT}"')
    version = content.get("version")
    if isinstance(version, int) and not isinstance(version, bool) and version != VERSION:
        raise UnsupportedVersion(
            "unsupported format version",
            file=file,
            expected=VERSION,
            found=version,
            hint="Upgrade fieldslab, or pack the slab again with this version.",
        )
    body, mark, _ = data.rpartition(_SEAL)
    if not mark or data[len(body) :] != _make_seal(body):
        raise_damaged("the manifest's own checksum (`sha256`) does not match")
    del content["sha256"]
    try:
        return msgspec.convert(content, Manifest)
    except msgspec.ValidationError as error:
        raise_damaged(f"invalid manifest: {error}")
    except RecursionError:
        raise_damaged("manifest is nested too deeply")


def _parse_strict_json(data: bytes, damaged: Any) -> Any:
    """Parse strict JSON: UTF-8, no duplicate keys, no NaN, no endless nesting."""

    def make_dict(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        content = dict(pairs)
        if len(content) < len(pairs):
            raise ValueError("duplicate key")
        return content

    def refuse_constant(name: str) -> NoReturn:
        raise ValueError(f"{name} is not JSON")

    def parse_number(digits: str) -> float:
        value = float(digits)
        if math.isinf(value):
            raise ValueError(f"{digits} is too large")
        return value

    try:
        content = json.loads(
            data.decode(),
            object_pairs_hook=make_dict,
            parse_constant=refuse_constant,
            parse_float=parse_number,
        )
        if _SURROGATE.search(data):  # rare, and a pair of them is good JSON
            _dump_json(content).encode()
        return content
    except RecursionError:
        damaged("manifest is nested too deeply")
    except ValueError as error:
        damaged(f"manifest is not strict JSON: {error}")


def _make_seal(body: bytes) -> bytes:
    return _SEAL + hashlib.sha256(body).hexdigest().encode() + _SEAL_END


def _dump_json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, allow_nan=False)
