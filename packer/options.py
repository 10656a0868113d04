"""What a slab is to hold: the options of `pack`, parsed, as manifests record them.

`fieldslab.packer.pack_options` says which options there are.
"""

import re
from collections.abc import Iterable, Mapping
from os import PathLike
from pathlib import Path
from typing import Annotated, Any, Unpack

import msgspec
import numpy as np

from fieldslab.packer.definition import fill_defaults
from fieldslab.packer.image_options import (
    DamagedImages,
    ImageForm,
    parse_images,
    parse_index_spacing,
    parse_on_error,
)
from fieldslab.packer.option_values import (
    parse_integer,
    parse_names,
    parse_nulls,
    parse_pairs,
    parse_rows,
)
from fieldslab.packer.pack_options import DEFAULT_INDEX, PackOptions
from fieldslab.schemas.bytesizes import parse_size
from fieldslab.schemas.digest import BLOCK_DIGESTS, DigestName
from fieldslab.schemas.errors import UsageError
from fieldslab.schemas.fields import MAX_COUNT, Every
from fieldslab.schemas.optiontext import mark_option

DTYPES = {
    "b1": "bool",
    "bool": "bool",
    "bf16": "bfloat16",
    "bfloat16": "bfloat16",
    "i1": "int8",
    "i2": "int16",
    "i4": "int32",
    "i8": "int64",
    "u1": "uint8",
    "u2": "uint16",
    "u4": "uint32",
    "u8": "uint64",
    "f2": "float16",
    "f4": "float32",
    "f8": "float64",
    "c8": "complex64",
    "c16": "complex128",
}
DTYPES |= {name: name for name in DTYPES.values()}
"""Spelling -> name of a dtype."""

CASTS = {name: dtype for name, dtype in DTYPES.items() if not dtype.startswith("complex")}
CASTS |= {name: name for name in ("text", "binary", "json", "categorical", "nested")}
"""Spelling -> what `--cast` makes of a column."""

DEFAULT_LEVEL, MAX_LEVEL = 3, 22
DEFAULT_SHARD_SIZE = 2**30
"""Levels of zstd."""

MAX_LENGTH = 2**24
"""Tokens of a row, with `--max-length`."""

_MAX_DIMENSIONS = 30
_TENSOR = re.compile(r"(?P<order>[<>]?)(?P<dtype>\w+)\s*\[(?P<shape>[\d\s,*]*)\]")
_SHAPE_FROM = re.compile(r"(?P<order>[<>]?)(?P<dtype>\w+)\s*,\s*shape_from=(?P<column>.+)")
_RAGGED = re.compile(r"(?:len=(?P<lengths>.+?))?(?:(?:^|,)pad=(?P<fill>[^,=]+))?")
_SHAPE = re.compile(r"(?:torch\.Size)?[(\[]*([0-9\s,x]*)[)\]]*")


class Tensor(msgspec.Struct, frozen=True, omit_defaults=True):
    """The form that `--tensor` gives a column: `shape` of a row, -1 first where rows differ."""

    dtype: str
    shape: tuple[int, ...] | None = None
    shape_from: str | None = None
    big_endian: bool = False


class Ragged(msgspec.Struct, frozen=True, omit_defaults=True):
    """How `--ragged` cuts padded rows: by what they are padded with, or to a column's lengths."""

    fill: str = "0"
    lengths_from: str | None = None

    def __str__(self) -> str:
        return (
            "" if self.lengths_from is None else f"len={self.lengths_from},"
        ) + f"pad={self.fill}"


class Tokenize(msgspec.Struct, frozen=True, omit_defaults=True):
    """The tokenizer that `--tokenize` gives a column; `sha256` is known once the file is read.

    Rows are cut to `max_length` tokens, and filled up to as many with `pad`. `special_tokens`
    says whether those are added that `Tokenizer.encode` adds, such as [CLS] and [SEP].
    """

    file: str
    sha256: str | None = None
    max_length: Annotated[int, msgspec.Meta(ge=1, le=MAX_LENGTH)] | None = None
    pad: bool = False
    special_tokens: bool = True


class Sequences(msgspec.Struct, frozen=True, omit_defaults=True):
    """Rows of `length` tokens, cut from all texts of the tokenized column, joined.

    `separator` is the token behind each text, "" for none; None leaves it to the tokenizer.
    `boundaries` keeps where texts begin, and `drop_last` leaves a row out that is not full.
    """

    length: Annotated[int, msgspec.Meta(ge=1, le=MAX_LENGTH)]
    separator: str | None = None
    boundaries: bool = False
    drop_last: bool = False


class Options(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """Parsed options of one pack. Names are those of the source, before `rename`.

    Keys and items are names, names of structs, or shell patterns; those of `fields`, `exclude`
    and `image` may also be lists with commas. `jpeg_index` is the MCUs between index points of
    JPEG images, 0 for one a row, None for no index. `settings` are those of the source.

    Manifests record these members under these names, and plans of interrupted packs are told
    apart by them: a name or value that was recorded never changes.
    """

    fields: tuple[str, ...] | None = None
    exclude: tuple[str, ...] = ()
    rename: dict[str, str] = {}
    cast: dict[str, str] = {}
    tensor: dict[str, Tensor] = {}
    image: tuple[str, ...] = ()
    image_as: dict[str, ImageForm] = {}
    jpeg_index: Every | None = DEFAULT_INDEX
    damaged_images: DamagedImages = "error"
    stack: dict[str, str] = {}
    nulls: dict[str, str] = {}
    ragged: dict[str, Ragged] = {}
    tokenize: dict[str, Tokenize] = {}
    sequences: Sequences | None = None
    compress: dict[str, int] = {}
    rows: tuple[int, int | None] | None = None
    shard_size: int = DEFAULT_SHARD_SIZE
    shuffle: int | None = None
    digest: DigestName = "xxh3"
    settings: dict[str, Any] = {}

    @property
    def leave_out(self) -> bool:
        """Whether rows are left out whose images cannot be decoded."""
        return self.damaged_images == "leave-out"


def parse_options(**options: Unpack[PackOptions]) -> Options:
    """Parse the options of `pack` that say what a slab holds; the others are passed over.

    Values of columns are given by name, `{"a": "f4"}`, or as text, `["a=f4"]`. Raises UsageError
    for what cannot be understood, and for an option that there is not.
    """
    values: PackOptions = fill_defaults(PackOptions, {**options}, "pack")
    casts = parse_pairs("cast", values["cast"], (str, np.dtype))
    for column, target in casts.items():
        if target not in CASTS:
            raise UsageError("unknown cast", field=column, found=target, expected=", ".join(CASTS))
    images, image_as = parse_images(values["image"])
    size = parse_size("shard_size", values["shard_size"])
    if size < 1:
        raise UsageError(
            f"{mark_option('shard_size')} must be positive", found=values["shard_size"]
        )
    tokenizers = _parse_tokenizers(values)
    tensors = parse_pairs("tensor", values["tensor"])
    return Options(
        fields=None if values["fields"] is None else parse_names("fields", values["fields"]),
        exclude=parse_names("exclude", values["exclude"]),
        rename=parse_pairs("rename", values["rename"]),
        cast={column: CASTS[target] for column, target in casts.items()},
        tensor={column: parse_tensor(column, text) for column, text in tensors.items()},
        image=images,
        image_as=image_as,
        jpeg_index=parse_index_spacing(values["jpeg_index"]),
        damaged_images=parse_on_error(values["on_error"]),
        stack=parse_pairs("stack", values["stack"]),
        nulls=parse_nulls(values["nulls"]),
        ragged=_parse_ragged(values["ragged"]),
        tokenize=tokenizers,
        sequences=_parse_sequences(tokenizers, values),
        compress=_parse_levels(values["compress"]),
        rows=parse_rows(values["rows"], values["limit"]),
        shard_size=size,
        shuffle=None if values["shuffle"] is None else parse_integer("shuffle", values["shuffle"]),
        digest=parse_digest(values["digest"]),
    )


def parse_digest(name: str) -> DigestName:
    """Parse the name of a kind of digest."""
    if name not in BLOCK_DIGESTS:
        raise UsageError(
            f"{mark_option('digest')}: is not valid", found=name, expected=", ".join(BLOCK_DIGESTS)
        )
    return BLOCK_DIGESTS[name].name


def _parse_ragged(columns: Mapping[str, str] | Iterable[str]) -> dict[str, Ragged]:
    """`col:pad=VALUE`, `col:len=COLUMN` or `col:len=COLUMN,pad=VALUE`."""
    if not isinstance(columns, Mapping):
        pairs = {}
        for item in [columns] if isinstance(columns, str) else columns:
            match = re.fullmatch(r"(.+?):((?:pad|len)=.+)", item)
            if match is None:
                raise _make_ragged_error(item)
            if match[1] in pairs:
                raise UsageError(
                    f"{mark_option('ragged')}: given twice", field=match[1], found=item
                )
            pairs[match[1]] = match[2]
        columns = pairs
    parsed = {}
    for column, text in parse_pairs("ragged", columns).items():
        match = _RAGGED.fullmatch(text.strip())
        if match is None or not text.strip():
            raise _make_ragged_error(text)
        parsed[column] = Ragged(match["fill"] or "0", match["lengths"])
    return parsed


def _make_ragged_error(text: str) -> UsageError:
    return UsageError(
        f"{mark_option('ragged')}: is not valid",
        found=text,
        hint=f"Write {mark_option('ragged', 'pad=0', column='COLUMN')}, or give `len=LENGTHS` or "
        "`len=LENGTHS,pad=0`, where LENGTHS is a column of them.",
    )


def _parse_tokenizers(values: PackOptions) -> dict[str, Tokenize]:
    files = parse_pairs("tokenize", values["tokenize"], (str, PathLike))
    max_length, pad, special_tokens = values["max_length"], values["pad"], values["special_tokens"]
    dependent = {
        mark_option("max_length"): max_length is not None,
        mark_option("pad"): pad,
        mark_option("special_tokens", False): not special_tokens,
    }
    for name, is_given in dependent.items():
        if is_given and not files:
            raise UsageError(f"{name} needs {mark_option('tokenize')}")
    if max_length is not None:
        max_length = _parse_length("max_length", max_length)
    if pad and max_length is None:
        raise UsageError(
            f"{mark_option('pad')} needs {mark_option('max_length')}: all rows get that length"
        )
    return {
        column: Tokenize(str(Path(file).absolute()), None, max_length, pad, special_tokens)
        for column, file in files.items()
    }


def _parse_sequences(tokenizers: dict[str, Tokenize], values: PackOptions) -> Sequences | None:
    separator, boundaries = values["separator"], values["keep_boundaries"]
    if values["pack_sequences"] is None:
        dependent = {
            "separator": separator is not None,
            "keep_boundaries": boundaries,
            "drop_last": values["drop_last"],
        }
        for name, is_given in dependent.items():
            if is_given:
                raise UsageError(f"{mark_option(name)} needs {mark_option('pack_sequences')}")
        return None
    length = _parse_length("pack_sequences", values["pack_sequences"])
    if len(tokenizers) != 1:
        raise UsageError(
            f"{mark_option('pack_sequences')} joins the texts of one column",
            expected="one tokenized column",
            found=", ".join(sorted(tokenizers)) or None,
        )
    if values["max_length"] is not None:
        raise UsageError(
            f"{mark_option('pack_sequences')} and {mark_option('max_length')} cannot be used "
            "together",
            hint="Texts are joined whole, and rows are full but for the last one.",
        )
    return Sequences(length, separator, boundaries, values["drop_last"])


def _parse_length(name: str, value: int) -> int:
    """Parse the number of tokens of a row."""
    length = parse_integer(name, value)
    if not 1 <= length <= MAX_LENGTH:
        raise UsageError(
            f"{mark_option(name)}: the length is out of range",
            found=length,
            expected=f"1..{MAX_LENGTH}",
        )
    return length


def _parse_levels(columns: Mapping[str, int] | Iterable[str]) -> dict[str, int]:
    """`col` or `col=LEVEL` of zstd."""
    if not isinstance(columns, Mapping):
        names = [columns] if isinstance(columns, str) else columns
        columns = parse_pairs(
            "compress", [name if "=" in name else f"{name}={DEFAULT_LEVEL}" for name in names]
        )
    levels = {}
    for column, level in columns.items():
        if not re.fullmatch(r"[0-9]{1,2}", str(level)) or not 1 <= int(level) <= MAX_LEVEL:
            raise UsageError(
                f"{mark_option('compress')}: not a level of zstd",
                field=column,
                found=level,
                expected=f"1..{MAX_LEVEL}",
            )
        levels[column] = int(level)
    return levels


def parse_tensor(column: str, text: str) -> Tensor:
    """Parse `f4[402,500]`, `f4[*,3]` (first axis of any length) or `f4,shape_from=COLUMN`.

    `>` in front says that raw bytes are big-endian.
    """
    text = text.strip()
    if match := _SHAPE_FROM.fullmatch(text):
        return Tensor(
            _parse_dtype(column, match["dtype"]),
            shape_from=match["column"].strip(),
            big_endian=match["order"] == ">",
        )
    match = _TENSOR.fullmatch(text)
    parts = [part.strip() for part in match["shape"].split(",")] if match else []
    if parts and not parts[-1]:
        parts.pop()
    ragged = parts[:1] == ["*"]
    if match is None or not all(part.isdigit() for part in parts[ragged:]):
        raise UsageError(
            f"{mark_option('tensor')}: not a dtype with a shape",
            field=column,
            found=text,
            expected="f4[402,500], f4[*,3] or f4,shape_from=COLUMN",
        )
    shape = tuple(int(part) for part in parts[ragged:])
    if not is_possible_shape(shape) or (ragged and 0 in shape):
        raise UsageError(
            f"{mark_option('tensor')}: an array cannot have this shape", field=column, found=text
        )
    if ragged:
        shape = (-1, *shape)
    return Tensor(
        _parse_dtype(column, match["dtype"]), shape=shape, big_endian=match["order"] == ">"
    )


def parse_shape(text: str) -> tuple[int, ...] | None:
    """Parse the integers of `(402, 500)`, `[402, 500]` or `torch.Size([402, 500])`, or None."""
    match = _SHAPE.fullmatch(text.strip())
    if match is None or not re.search(r"[0-9(\[]", text):
        return None
    numbers = re.findall(r"[0-9]+", match[1])
    return tuple(map(int, numbers)) if all(len(number) < 19 for number in numbers) else None


def is_possible_shape(shape: tuple[int, ...]) -> bool:
    """Return whether a manifest can hold this shape."""
    return len(shape) <= _MAX_DIMENSIONS and all(0 <= length <= MAX_COUNT for length in shape)


def _parse_dtype(column: str, text: str) -> str:
    if text not in DTYPES:
        raise UsageError("unknown dtype", field=column, found=text, expected=", ".join(DTYPES))
    return DTYPES[text]
