"""What `--image` and `--jpeg-index` ask: the spellings, what they mean, and what is refused."""

from typing import Any

import msgspec
import pytest

from fieldslab.packer.image_options import ImageForm
from fieldslab.packer.options import Options, parse_options
from fieldslab.schemas.errors import UsageError

FORMS = {
    "baseline": ImageForm("baseline"),
    "rgb": ImageForm("rgb"),
    "yuv420,short-side=256": ImageForm("yuv420", short_side=256),
    "rgb,long-side=256,fraction=0.5": ImageForm("rgb", long_side=256, fraction=0.5),
    "yuv420, fraction=1": ImageForm("yuv420"),
    "jpeg,short-side=256": ImageForm("jpeg", short_side=256),
    "jpeg,long-side=9,quality=80": ImageForm("jpeg", long_side=9, quality=80),
}


@pytest.mark.parametrize("form", FORMS)
def test_forms(form: str) -> None:
    """`COL:FORM` and `{COL: FORM}` mean the same, for names, patterns and lists of them."""
    for columns in ("a", "a,b", "*.jpg", "a:b"):
        first, other = (
            parse_options(image=f"{columns}:{form}"),
            parse_options(image={columns: form}),
        )
        assert first == other
        assert first.image == (columns,)
        assert first.image_as == {columns: FORMS[form]}


@pytest.mark.parametrize("form", FORMS)
def test_forms_are_told_as_they_are_asked_for(form: str) -> None:
    """What a plan says of a form parses as that form."""
    assert parse_options(image=f"a:{FORMS[form]}").image_as["a"] == FORMS[form]


def test_names_alone_have_no_form() -> None:
    """Images may be named without a form, beside others that have one."""
    options = parse_options(image=["a,b", "c:rgb", "d"])
    assert options.image == ("a,b", "c", "d")
    assert list(options.image_as) == ["c"]
    assert parse_options(image={"a": None}) == parse_options(image="a")


WRONG: dict[str, str] = {
    "a:yuv422": "no such form (field a, expected 'baseline, yuv420, rgb, jpeg', found yuv422)",
    "a:rgb,short-size=256": "rgb takes no setting 'short-size' (field a, expected 'short-side, "
    "long-side, fraction'). Did you mean 'short-side'?",
    "a:rgb,side=3": "rgb takes no setting 'side'",
    "a:rgb,quality=90": "rgb takes no setting 'quality'",
    "a:rgb,": "rgb takes no setting ''",
    "a:baseline,short-side=9": "baseline takes no setting 'short-side' (field a)",
    "a:jpeg,short-side=256,fraction=0.5": "jpeg takes no setting 'fraction'",
    "a:yuv420,short-side=0": "wrong short-side (field a, expected 1..65500, found 0)",
    "a:rgb,short-side": "wrong short-side",
    "a:rgb,short-side=big": "wrong short-side (field a, expected 1..65500, found big)",
    "a:rgb,short-side=1.5": "wrong short-side",
    "a:rgb,fraction=0": "wrong fraction (field a, expected 'above 0, up to 1', found 0)",
    "a:rgb,fraction=1.5": "wrong fraction",
    "a:rgb,fraction=nan": "wrong fraction",
    "a:jpeg,short-side=256,quality=101": "wrong quality (field a, expected 1..100, found 101)",
    "a:rgb,short-side=256,long-side=256": "use either short-side or long-side, not both",
    "a:rgb,short-side=256,short-side=257": "short-side given twice",
    "a:jpeg": "jpeg needs short-side=N or long-side=N",
    "a:jpeg,quality=90": "jpeg needs short-side=N or long-side=N",
}


@pytest.mark.parametrize("image", WRONG)
def test_wrong_forms(image: str) -> None:
    """A form that there is not, or that contradicts itself, is a wrong call; the error helps."""
    columns, _, form = image.partition(":")
    for spelling in (image, {columns: form}):
        with pytest.raises(UsageError) as caught:
            parse_options(image=spelling)
        assert str(caught.value).startswith(f"image: {WRONG[image]}")
        assert len(str(caught.value)) < 150


def test_two_forms() -> None:
    """Of two forms for a column, none is taken silently."""
    with pytest.raises(UsageError, match=r"given twice \(field a\)"):
        parse_options(image=["a:rgb", "b", "a:yuv420"])


@pytest.mark.parametrize(
    ("spelling", "index"), [(None, None), ("rows", 0), (8, 8), ("1", 1), ("8192", 8192)]
)
def test_index(spelling: Any, index: int | None) -> None:
    """An index has a point every N MCUs, or one a row, which is 0; None is no index."""
    assert parse_options(jpeg_index=spelling).jpeg_index == index


@pytest.mark.parametrize("spelling", ["", "0", "8193", "-1", "row", "1.5", True])
def test_wrong_index(spelling: Any) -> None:
    """Anything else is a wrong call."""
    with pytest.raises(UsageError, match="jpeg_index"):
        parse_options(jpeg_index=spelling)


def test_options_of_older_slabs_are_understood() -> None:
    """Options that a slab of an earlier version was packed with convert to today's."""
    older = {"image": ["a"], "nulls": {"*": "mask"}}
    assert msgspec.convert(older, Options) == parse_options(image="a", nulls="*=mask")
