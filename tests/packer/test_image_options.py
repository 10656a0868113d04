"""What `--image` and `--jpeg-index` ask: the spellings, what they mean, and what is refused."""

from typing import Any

import msgspec
import pytest

from fieldslab.packer.image_options import ImageAs
from fieldslab.packer.options import Options, parse_options
from fieldslab.schemas.errors import UsageError

SPECS = {
    "baseline": ImageAs("baseline"),
    "rgb": ImageAs("rgb"),
    "yuv420,short-side=256": ImageAs("yuv420", short_side=256),
    "rgb,long-side=256,fraction=0.5": ImageAs("rgb", long_side=256, fraction=0.5),
    "yuv420, fraction=1": ImageAs("yuv420"),
    "jpeg,short-side=256": ImageAs("jpeg", short_side=256),
    "jpeg,long-side=9,quality=80": ImageAs("jpeg", long_side=9, quality=80),
}


@pytest.mark.parametrize("spec", SPECS)
def test_forms(spec: str) -> None:
    """`COL:SPEC` and `{COL: SPEC}` mean the same, for names, patterns and lists of them."""
    for columns in ("a", "a,b", "*.jpg", "a:b"):
        one, other = parse_options(image=f"{columns}:{spec}"), parse_options(image={columns: spec})
        assert one == other
        assert one.image == (columns,)
        assert one.image_as == {columns: SPECS[spec]}


@pytest.mark.parametrize("spec", SPECS)
def test_forms_are_told_as_they_are_asked_for(spec: str) -> None:
    """What a plan says of a form parses as that form."""
    assert parse_options(image=f"a:{SPECS[spec]}").image_as["a"] == SPECS[spec]


def test_names_alone_have_no_form() -> None:
    """Images may be named without a form, beside others that have one."""
    options = parse_options(image=["a,b", "c:rgb", "d"])
    assert options.image == ("a,b", "c", "d")
    assert list(options.image_as) == ["c"]
    assert parse_options(image={"a": None}) == parse_options(image="a")


@pytest.mark.parametrize(
    "image",
    [
        "a:yuv422", "a:yuv420,short-side=0", "a:rgb,short-side=256,long-side=256", "a:rgb,side=3",
        "a:rgb,short-side", "a:rgb,short-side=big", "a:rgb,fraction=0", "a:rgb,fraction=1.5",
        "a:rgb,fraction=nan", "a:rgb,quality=90", "a:rgb,short-side=1.5", "a:jpeg",
        "a:jpeg,quality=90", "a:jpeg,short-side=256,quality=101", "a:baseline,short-side=9",
        "a:jpeg,short-side=256,fraction=0.5", "a:rgb,short-side=256,short-side=257",
        {"a": "png"}, "a:rgb,",
    ],
    ids=str,
)  # fmt: skip
def test_wrong_forms(image: Any) -> None:
    """A form that there is not, or that contradicts itself, is a wrong call; the error helps."""
    with pytest.raises(UsageError) as caught:
        parse_options(image=image)
    assert "short-side=N" in caught.value.context["expected"]


def test_two_forms() -> None:
    """Of two forms for a column, none is taken silently."""
    with pytest.raises(UsageError, match=r"given twice \(field a\)"):
        parse_options(image=["a:rgb", "b", "a:yuv420"])


@pytest.mark.parametrize(
    ("given", "index"), [(None, None), ("rows", 0), (8, 8), ("1", 1), ("8192", 8192)]
)
def test_index(given: Any, index: int | None) -> None:
    """An index has a point every N MCUs, or one a row, which is 0; None is no index."""
    assert parse_options(jpeg_index=given).jpeg_index == index


@pytest.mark.parametrize("given", ["", "0", "8193", "-1", "row", "1.5", True])
def test_wrong_index(given: Any) -> None:
    """Anything else is a wrong call."""
    with pytest.raises(UsageError, match="--jpeg-index"):
        parse_options(jpeg_index=given)


def test_options_of_older_slabs_are_understood() -> None:
    """Options that a slab of an earlier version was packed with convert to today's."""
    older = {"image": ["a"], "nulls": {"*": "mask"}}
    assert msgspec.convert(older, Options) == parse_options(image="a", nulls="*=mask")
