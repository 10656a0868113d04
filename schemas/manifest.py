"""The manifest: `manifest.json`, the one file that says what all the others must be."""

import hashlib
import json
import math
import re
import secrets
from collections.abc import Sequence
from functools import cached_property
from itertools import chain
from operator import attrgetter
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple, NoReturn

import msgspec
import numpy as np

from fieldslab.schemas.digest import DigestName
from fieldslab.schemas.errors import DamagedManifest, UnsupportedVersion
from fieldslab.schemas.fields import MAX_COUNT, ArraySpec, Count, Field
from fieldslab.schemas.files import RESTORE

FORMAT = "fieldslab"
VERSION = 1
MANIFEST = "manifest.json"
SIGNATURE = f"{MANIFEST}.minisig"
"""Where a slab is signed, this file lies beside the manifest; readers do without it."""
SHUFFLE_ATTRIBUTE = "shuffle"
"""The member of `attributes` that says how rows were shuffled when the slab was packed."""
MAX_BYTES = 16 * 1024 * 1024
MAX_ARRAY_BYTES = 2**62
"""No array may be larger, not even in lengths beside a 0: no program could map it."""

COUNTS = {"element": "elements", "point": "points"}
"""What arrays of a field may have items per, and the member of `Shard` that counts these."""

Sha256 = Annotated[str, msgspec.Meta(pattern=r"^[0-9a-f]{64}\Z")]

_SURROGATE = re.compile(rb"\\u[dD][89a-fA-F]")
SEAL = b',\n"sha256": "'
_SEAL_END = b'"\n}\n'
_SHARDS = b'\n"shards": [\n'
_SHARDS_END = b"\n]"
_HEX = b"0123456789abcdef"
_encode_canonically = json.JSONEncoder(
    ensure_ascii=False, allow_nan=False, sort_keys=True, separators=(",", ":")
).encode


# Without `gc`, 100,000 of them do not make each collection longer: they hold numbers and text only.
class Shard(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True, gc=False):
    """A run of rows with its own arrays.

    `elements` has one count per variable-length field (bytes for text, binary and image), `nulls`
    one per nullable field and `points` one per field that is indexed or nested, in field order:
    with `rows` they fix the size of every file. `root` is the SHA-256 over the shard's digests.
    """

    rows: Annotated[int, msgspec.Meta(ge=1, le=MAX_COUNT)]
    elements: tuple[Count, ...]
    nulls: tuple[Count, ...]
    root: str
    points: tuple[Count, ...] = ()


class Counts(NamedTuple):
    """The counts of all shards as arrays: `rows` is int64[shards].

    `elements`, `nulls` and `points` are int64[shards, n], with a column for each field that is of
    variable length, nullable, or indexed or nested.
    """

    rows: np.ndarray
    elements: np.ndarray
    nulls: np.ndarray
    points: np.ndarray


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
    digest: DigestName = "xxh3"

    def to_canonical_json(self) -> bytes:
        """Encode these members as RFC 8259 JSON: sorted keys, no spaces, defaults left out."""
        members = {name: getattr(self, name) for name in Content.__struct_fields__}
        content = msgspec.to_builtins(Content(**members | {"shards": ()}))
        before = {key: value for key, value in content.items() if key < "shards"}
        behind = {key: value for key, value in content.items() if key > "shards"}
        # Of numbers and hexadecimal digits msgspec makes the same text as `json`.
        shards = msgspec.json.encode(self.shards, order="sorted")
        head, tail = _encode_canonically(before), _encode_canonically(behind)
        return b'%b,"shards":%b,%b' % (head[:-1].encode(), shards, tail[1:].encode())

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

    @cached_property
    def counts(self) -> Counts:
        """Counts of all shards; kept, since opening a field needs them."""
        shards = self.shards
        return Counts(
            np.array([shard.rows for shard in shards], np.int64),
            _make_table([shard.elements for shard in shards]),
            _make_table([shard.nulls for shard in shards]),
            _make_table([shard.points for shard in shards]),
        )

    def _check_counts(self) -> None:
        roots = [shard.root for shard in self.shards]
        if set(map(len, roots)) - {64} or "".join(roots).encode().translate(None, _HEX):
            index = next(index for index, root in enumerate(roots) if not _is_sha256(root))
            raise ValueError(f"not a SHA-256 in lower case - at `$.shards[{index}].root`")
        nullable = sum(field.nullable for field in self.fields)
        pers: list[str] = [spec.per for _, specs in self.arrays for spec in specs]
        needed = {member: pers.count(per) for per, member in COUNTS.items()} | {"nulls": nullable}
        for member, count in needed.items():
            lengths = list(map(len, map(attrgetter(member), self.shards)))
            if set(lengths) - {count}:
                index = next(index for index, length in enumerate(lengths) if length != count)
                raise ValueError(f"expected {count} values in `{member}` - at `$.shards[{index}]`")
        rows, elements, nulls, _ = self.counts
        if nulls.size and (wrong := (nulls > rows[:, None]).any(axis=1)).any():
            raise ValueError(f"more nulls than rows - at `$.shards[{wrong.argmax()}].nulls`")
        columns = iter(elements.T)
        for field in self.fields if self.shards else ():
            items = next(columns) if field.stored.variable else rows
            if max(int(items.max()), 1) > MAX_ARRAY_BYTES // field.stored.widest_item:
                raise ValueError(f"{field.stem} is too large - at `$.shards[{items.argmax()}]`")
        total = sum(rows.tolist())
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
            items = b",\n  ".join(dump_json(item) for item in value)
            members.append(b'"%b": [\n  %b\n]' % (key.encode(), items))
        else:
            members.append(b'"%b": %b' % (key.encode(), dump_json(value)))
    body = b"{\n" + b",\n".join(members)
    return body + make_seal(body)


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
    content = _parse_quickly(data, raise_damaged) or parse_strict_json(data, raise_damaged)
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
    end = data.rfind(SEAL)
    if end < 0 or data[end:] != make_seal(memoryview(data)[:end]):
        raise_damaged("the manifest's own checksum (`sha256`) does not match")
    del content["sha256"]
    try:
        return msgspec.convert(content, Manifest)
    except msgspec.ValidationError as error:
        raise_damaged(f"invalid manifest: {error}")
    except RecursionError:
        raise_damaged("manifest is nested too deeply")


def _parse_quickly(data: bytes, damaged: Any) -> dict[str, Any] | None:
    """Parse as `parse_strict_json` does, ten times as fast, and convert the shards.

    Returns None in doubt, as where the shards do not stand as `encode_manifest` writes them.
    """
    start, end = data.find(_SHARDS), -1
    if start >= 0:
        start += len(_SHARDS) - len(b"[\n")
        end = data.rfind(_SHARDS_END, start)
    if end < 0:
        return None
    end += len(_SHARDS_END)
    try:
        shards = msgspec.json.decode(memoryview(data)[start:end], type=tuple[Shard, ...])
    except (msgspec.MsgspecError, ValueError):
        return None
    # The names of four members and the root, at least, and `points` where there are some: any
    # more strings are members that come twice, or are spelt out though empty.
    strings = 5 * len(shards) + sum(bool(shard.points) for shard in shards)
    if data.count(b'"', start, end) != 2 * strings:
        return None
    # No file can hold this name, so that it shows whether these are the shards of the manifest
    # or something in its depths.
    name = secrets.token_hex()
    content = parse_strict_json(data[:start] + f'"{name}"'.encode() + data[end:], damaged)
    if not isinstance(content, dict) or content.get("shards") != name:
        return None
    return content | {"shards": shards}


def parse_strict_json(data: bytes, damaged: Any) -> Any:
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
            dump_json(content)
        return content
    except RecursionError:
        damaged("manifest is nested too deeply")
    except ValueError as error:
        damaged(f"manifest is not strict JSON: {error}")


def _make_table(tuples: Sequence[tuple[int, ...]]) -> np.ndarray:
    """Make int64[tuples, length] of tuples of one length."""
    shape = len(tuples), len(tuples[0]) if tuples else 0
    numbers = np.fromiter(chain.from_iterable(tuples), np.int64, shape[0] * shape[1])
    return numbers.reshape(shape)


def _is_sha256(text: str) -> bool:
    return len(text) == 64 and not text.encode().translate(None, _HEX)


def make_seal(body: bytes | memoryview) -> bytes:
    """Make the end of a sealed file, of all bytes in front of it."""
    return SEAL + hashlib.sha256(body).hexdigest().encode() + _SEAL_END


def dump_json(value: Any, **layout: Any) -> bytes:
    """Encode JSON in UTF-8. Raises ValueError for what JSON cannot hold."""
    return json.dumps(value, ensure_ascii=False, allow_nan=False, **layout).encode()
