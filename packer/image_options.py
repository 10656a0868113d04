"""What `--image` and `--jpeg-index` may ask: in which form images are stored, parsed."""

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Annotated, Any, Literal

import msgspec

from fieldslab.schemas.errors import UsageError
from fieldslab.schemas.fields import MAX_EVERY
from fieldslab.schemas.optiontext import mark_option
from fieldslab.schemas.registry import make_unknown_name_error

FORMS = {
    "baseline": (),
    "yuv420": ("short-side", "long-side", "fraction"),
    "rgb": ("short-side", "long-side", "fraction"),
    "jpeg": ("short-side", "long-side", "quality"),
}
"""In which forms images can be stored, and the settings that each takes."""
DamagedImages = Literal["error", "leave-out"]
"""How manifests record `on_error`."""

_RECORDED: dict[str, DamagedImages] = {"raise": "error", "skip": "leave-out"}
_ITEM = re.compile(r"(?P<columns>.+?):(?P<form>(?:baseline|yuv420|rgb|jpeg)(?:,.*)?)", re.DOTALL)
_LOOKS_LIKE = re.compile(r"(?P<columns>.+):(?P<form>[\w-]+(?:,[\w-]+=[^,]*)*)")
_MOST_PIXELS = 65_500
"""Pixels of a side; libjpeg writes no more."""

_VALUES = {
    "short-side": f"1..{_MOST_PIXELS}",
    "long-side": f"1..{_MOST_PIXELS}",
    "fraction": "above 0, up to 1",
    "quality": "1..100",
}
"""What a setting may be, for people."""

_Side = Annotated[int, msgspec.Meta(ge=1, le=_MOST_PIXELS)]


class ImageForm(msgspec.Struct, frozen=True, omit_defaults=True):
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
    def stores_pixels(self) -> bool:
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
    images: str | Iterable[str] | Mapping[str, str | None],
) -> tuple[tuple[str, ...], dict[str, ImageForm]]:
    """Parse which columns are images, and the form that some of them get.

    `a`, `a,b`, `a:FORM` or `{"a": "FORM", "b": None}`. Raises UsageError.
    """
    if isinstance(images, Mapping):
        pairs = [(columns, str(form) if form else None) for columns, form in images.items()]
    else:
        pairs = [_split_item(item) for item in ([images] if isinstance(images, str) else images)]
    column, times = next(iter(Counter(columns for columns, _ in pairs).most_common(1)), ("", 0))
    if times > 1:
        raise UsageError(
            f"{mark_option('image')}: given twice", field=column, hint="A column has one form."
        )
    forms = {columns: _parse_form(columns, form) for columns, form in pairs if form is not None}
    return tuple(columns for columns, _ in pairs), forms


def parse_index_spacing(spacing: int | str | None) -> int | None:
    """Parse `N` or `rows`: MCUs between points, 0 for one a row of MCUs; None for no index."""
    if spacing is None:
        return None
    text = str(spacing).strip()
    if text == "rows":
        return 0
    if not re.fullmatch(r"[0-9]{1,5}", text) or not 1 <= int(text) <= MAX_EVERY:
        raise UsageError(
            f"{mark_option('jpeg_index')}: is not valid",
            found=spacing,
            expected=f"rows, or 1..{MAX_EVERY}",
        )
    return int(text)


def parse_on_error(action: str) -> DamagedImages:
    """Parse what to do with rows whose image cannot be decoded. Raises UsageError."""
    if action in _RECORDED:
        return _RECORDED[action]
    renamed = [new for new, old in _RECORDED.items() if old == action]
    raise UsageError(
        f"{mark_option('on_error')}: is not valid",
        found=action,
        expected=" or ".join(_RECORDED),
        hint=f"It is now {mark_option('on_error', renamed[0])}." if renamed else None,
    )


def _split_item(item: str) -> tuple[str, str | None]:
    match = _ITEM.fullmatch(item.strip())
    if match is not None:
        return match["columns"], match["form"]
    unknown = _LOOKS_LIKE.fullmatch(item)
    if unknown is not None:
        raise _make_unknown_form_error(unknown["columns"], unknown["form"])
    return item, None


def _parse_form(columns: str, form: str) -> ImageForm:
    """Parse the form `STORE` or `STORE,SETTING=VALUE,...`."""
    store, *settings = (part.strip() for part in form.split(","))
    if store not in FORMS:
        raise _make_unknown_form_error(columns, form)
    members: dict[str, Any] = {"store": store}
    for setting in settings:
        key, _, text = (part.strip() for part in setting.partition("="))
        if key not in FORMS[store]:
            problem = f"{mark_option('image')}: {store} takes no setting {key!r}"
            raise make_unknown_name_error(problem, key, FORMS[store], field=columns)
        name = key.replace("-", "_")
        if name in members:
            raise UsageError(
                f"{mark_option('image')}: {key} given twice", field=columns, found=form
            )
        members[name] = _parse_number(text)
        try:
            msgspec.convert({"store": store, name: members[name]}, ImageForm)
        except msgspec.ValidationError as error:
            raise UsageError(
                f"{mark_option('image')}: wrong {key}",
                field=columns,
                found=text,
                expected=_VALUES[key],
            ) from error
    sides = ("short_side" in members) + ("long_side" in members)
    if sides > 1:
        raise UsageError(
            f"{mark_option('image')}: use either short-side or long-side, not both", field=columns
        )
    if store == "jpeg" and not sides:
        raise UsageError(
            f"{mark_option('image')}: jpeg needs short-side=N or long-side=N", field=columns
        )
    return msgspec.convert(members, ImageForm)


def _make_unknown_form_error(columns: str, form: str) -> UsageError:
    return UsageError(
        f"{mark_option('image')}: no such form",
        field=columns,
        found=form.partition(",")[0],
        expected=", ".join(FORMS),
        hint="In the name of a column, write ? for a colon.",
    )


def _parse_number(text: str) -> Any:
    try:
        return int(text)
    except ValueError:
        pass
    try:
        return float(text)
    except ValueError:
        return text
