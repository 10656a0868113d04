"""What `--image` and `--jpeg-index` may ask: in which form images are stored, parsed."""

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Annotated, Any, Literal, get_args

import msgspec

from fieldslab.schemas.errors import UsageError
from fieldslab.schemas.fields import MAX_EVERY

SPECS = (
    "baseline, yuv420[,short-side=N|long-side=N][,fraction=F], rgb[, the same], "
    "jpeg,short-side=N|long-side=N[,quality=Q]"
)
Damaged = Literal["error", "leave-out"]
"""What becomes of rows whose image cannot be decoded."""

DEFAULT_INDEX = 8
"""MCUs from one index point to the next."""

_ITEM = re.compile(r"(?P<columns>.+?):(?P<spec>(?:baseline|yuv420|rgb|jpeg)(?:,.*)?)", re.DOTALL)
_LOOKS_LIKE = re.compile(r"(?P<columns>.+):[\w-]+(?:,[\w-]+=[^,]*)*")
_MOST_PIXELS = 65_500
"""Pixels of a side; libjpeg writes no more."""

_Side = Annotated[int, msgspec.Meta(ge=1, le=_MOST_PIXELS)]


class ImageAs(msgspec.Struct, frozen=True, omit_defaults=True):
    """In which form the images of a column are stored; anything but `baseline` may lose detail.

    Larger images are made smaller until the short or the long side has so many pixels; none is
    made larger. Of the rows, the `fraction` is stored so, and the rest as it is.
    """

    store: Literal["baseline", "rgb", "yuv420", "jpeg"]
    short_side: _Side | None = None
    long_side: _Side | None = None
    fraction: Annotated[float, msgspec.Meta(gt=0, le=1)] = 1.0
    quality: Annotated[int, msgspec.Meta(ge=1, le=100)] = 95

    @property
    def pixels(self) -> bool:
        """Whether images are stored decoded."""
        return self.store in ("rgb", "yuv420")

    @property
    def lossy(self) -> bool:
        """Whether what is stored is less than what was read, beyond alpha and 16 bit."""
        resized = self.short_side is not None or self.long_side is not None
        return self.store in ("yuv420", "jpeg") or resized

    def __str__(self) -> str:
        parts: list[str] = [self.store]
        parts += [f"short-side={self.short_side}"] if self.short_side else []
        parts += [f"long-side={self.long_side}"] if self.long_side else []
        parts += [f"fraction={self.fraction:g}"] if self.fraction < 1 else []
        return ",".join(parts + ([f"quality={self.quality}"] if self.store == "jpeg" else []))


def parse_images(
    given: str | Iterable[str] | Mapping[str, str | None],
) -> tuple[tuple[str, ...], dict[str, ImageAs]]:
    """The columns that are images, and the form that some of them get.

    `a`, `a,b`, `a:SPEC` or `{"a": "SPEC", "b": None}`. Raises UsageError.
    """
    if isinstance(given, Mapping):
        pairs = [(columns, spec or None) for columns, spec in given.items()]
    else:
        pairs = [_split(item) for item in ([given] if isinstance(given, str) else given)]
    column, times = next(iter(Counter(columns for columns, _ in pairs).most_common(1)), ("", 0))
    if times > 1:
        raise UsageError("--image: given twice", field=column, hint="A column has one form.")
    forms = {columns: _parse(columns, spec) for columns, spec in pairs if spec is not None}
    return tuple(columns for columns, _ in pairs), forms


def parse_index(given: int | str | None) -> int | None:
    """`N` or `rows`: MCUs between points, 0 for one a row of MCUs; None for no index."""
    if given is None:
        return None
    text = str(given).strip()
    if text == "rows":
        return 0
    if not re.fullmatch(r"[0-9]{1,5}", text) or not 1 <= int(text) <= MAX_EVERY:
        raise UsageError(
            "--jpeg-index: not understood", found=given, expected=f"rows, or 1..{MAX_EVERY}"
        )
    return int(text)


def parse_damaged(given: str) -> Damaged:
    """What becomes of rows with damaged images. Raises UsageError."""
    try:
        return msgspec.convert(given, Damaged)
    except msgspec.ValidationError as error:
        raise UsageError(
            "--damaged-images: not understood", found=given, expected=" or ".join(get_args(Damaged))
        ) from error


def _split(item: str) -> tuple[str, str | None]:
    match = _ITEM.fullmatch(item.strip())
    if match is not None:
        return match["columns"], match["spec"]
    wrong = _LOOKS_LIKE.fullmatch(item)
    if wrong is not None:
        raise UsageError(
            "--image: no such form", found=item, expected=SPECS,
            hint="In the name of a column, write ? for a colon.",
        )  # fmt: skip
    return item, None


def _parse(columns: str, spec: str) -> ImageAs:
    store, *settings = (part.strip() for part in spec.split(","))
    members: dict[str, Any] = {"store": store}
    for setting in settings:
        key, equals, text = setting.partition("=")
        name = key.strip().replace("-", "_")
        known = ("short_side", "long_side", "fraction", "quality")
        if name not in known or not equals or name in members:
            raise _misfit(columns, spec)
        members[name] = _number(text.strip())
    try:
        made = msgspec.convert(members, ImageAs)
    except msgspec.ValidationError as error:
        raise _misfit(columns, spec) from error
    sides = (made.short_side is not None) + (made.long_side is not None)
    wrong = {
        "baseline": len(members) > 1,
        "jpeg": sides != 1 or "fraction" in members,
    }.get(store, sides > 1 or "quality" in members)
    if wrong:
        raise _misfit(columns, spec)
    return made


def _number(text: str) -> Any:
    try:
        return int(text)
    except ValueError:
        pass
    try:
        return float(text)
    except ValueError:
        return text


def _misfit(columns: str, spec: str) -> UsageError:
    return UsageError("--image: not understood", field=columns, found=spec, expected=SPECS)
