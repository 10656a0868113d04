"""Options as users spell them."""

import inspect
from pathlib import Path
from typing import Any, cast

import pyarrow as pa
import pytest

from fieldslab.packer import pack
from fieldslab.packer.option_values import parse_size
from fieldslab.packer.options import Tensor, parse_options, parse_shape, parse_tensor
from fieldslab.schemas.errors import UsageError


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("1", 1),
        (7, 7),
        ("1K", 1024),
        ("64M", 64 * 2**20),
        ("64MB", 64 * 2**20),
        ("2 GiB", 2**31),
        ("1t", 2**40),
    ],
)
def test_sizes(text: Any, size: int) -> None:
    """Sizes are numbers with a binary unit."""
    assert parse_size("shard_size", text) == size


@pytest.mark.parametrize("text", ["", "G", "1.5G", "-1", "1X", "1 G B", "0x10", None])
def test_no_sizes(text: Any) -> None:
    """Anything else is refused by the name of the option."""
    with pytest.raises(UsageError, match="shard_size: not a size"):
        parse_size("shard_size", text)


@pytest.mark.parametrize(
    ("text", "tensor"),
    [
        ("f4[402,500]", Tensor("float32", (402, 500))),
        (" <f4 [ 402 , 500 ] ", Tensor("float32", (402, 500))),
        (">i2[3]", Tensor("int16", (3,), big_endian=True)),
        ("uint8[]", Tensor("uint8", ())),
        ("bf16[7,]", Tensor("bfloat16", (7,))),
        ("c8[*]", Tensor("complex64", (-1,))),
        ("bool[*,3,4]", Tensor("bool", (-1, 3, 4))),
        ("f4[0,3]", Tensor("float32", (0, 3))),
        ("f4,shape_from=feature shape", Tensor("float32", shape_from="feature shape")),
        (">f8 , shape_from=a.b", Tensor("float64", shape_from="a.b", big_endian=True)),
    ],
)
def test_tensors(text: str, tensor: Tensor) -> None:
    """A tensor is a dtype with a shape, or with the column that holds the shape."""
    assert parse_tensor("a", text) == tensor


@pytest.mark.parametrize(
    "text",
    [
        "",
        "f4",
        "[3]",
        "f4(3)",
        "f4[a]",
        "f4[3",
        "f4[3,,4]",
        "f4[,3]",
        "f4[3,*]",
        "f4[*,*]",
        "f4[-1]",
        "f4[1.5]",
        "q9[3]",
        "f4,shape_from=",
        "f4,from=a",
        "f4[*,0]",
        f"f4[{2**50}]",
        "U8[3]",
        "O[3]",
        "f4[" + "1," * 31 + "]",
    ],
)
def test_no_tensors(text: str) -> None:
    """Anything else is refused with the name of the column."""
    with pytest.raises(UsageError) as caught:
        parse_tensor("a", text)
    assert caught.value.context["field"] == "a"


@pytest.mark.parametrize(
    ("text", "shape"),
    [
        ("(402, 500)", (402, 500)),
        ("torch.Size([402, 500])", (402, 500)),
        ("[402,500]", (402, 500)),
        ("(402,)", (402,)),
        ("402x500", (402, 500)),
        ("402 500", (402, 500)),
        ("7", (7,)),
        ("()", ()),
        ("[]", ()),
        ("torch.Size([])", ()),
        ("\n(1, 2)\t", (1, 2)),
        ("", None),
        ("x", None),
        (",", None),
        ("(-1, 2)", None),
        ("(1.5,)", None),
        ("(1e3,)", None),
        ("__import__('os')", None),
        ("(1, 2); 3", None),
        ("(" + "9" * 5000 + ",)", None),
        ("(٣,)", None),
    ],
)
def test_shapes(text: str, shape: tuple[int, ...] | None) -> None:
    """Shapes are read from the text of tuples, lists and torch.Size, and never evaluated."""
    assert parse_shape(text) == shape


def test_spellings_are_equal() -> None:
    """A dict, a list of NAME=VALUE and one such text mean the same."""
    for option, name, value in (
        ("rename", "a", "b"),
        ("cast", "a", "f4"),
        ("stack", "x", "f*"),
        ("nulls", "a", "0"),
        ("tensor", "a", "f4[2]"),
    ):
        spellings: list[Any] = [{name: value}, [f"{name}={value}"], f"{name}={value}"]
        parsed = [parse_options(**{option: given}) for given in spellings]
        assert parsed[0] == parsed[1] == parsed[2]
    assert parse_options(cast="a=f4").cast == parse_options(cast="a=float32").cast
    assert parse_options(nulls={"a": 0, "b": float("nan")}).nulls == {"a": "0", "b": "nan"}
    assert parse_options(nulls=["a="]).nulls == {"a": ""}


@pytest.mark.parametrize(
    "options",
    [
        {"cast": "a"},
        {"cast": "=f4"},
        {"cast": "a="},
        {"cast": "a=f3"},
        {"cast": "a=c8"},
        {"cast": "a=timestamp"},
        {"rename": "a"},
        {"rename": ["a=b", "a=c"]},
        {"nulls": "a"},
        {"tensor": "a=f4"},
        {"rows": "5"},
        {"rows": "5:3"},
        {"rows": "a:b"},
        {"rows": "-5:"},
        {"limit": -1},
        {"shard_size": "0"},
        {"shard_size": "big"},
        {"rows": (-1, 3)},
        {"rows": (1, 2, 3)},
        {"rows": (0.5, 3)},
        {"limit": 1.5},
        {"limit": "3"},
        {"fields": [1]},
        {"exclude": [None]},
        {"image": {"a": 3}},
        {"cast": {"a": float}},
    ],
    ids=repr,
)
def test_wrong_options(options: dict[str, Any]) -> None:
    """What cannot be understood is a wrong call, with exit code 2."""
    with pytest.raises(UsageError) as caught:
        parse_options(**options)
    assert caught.value.exit_code == 2


@pytest.mark.parametrize(
    ("rows", "limit", "expected"),
    [
        (None, None, None),
        (":", None, None),
        ("3:", None, (3, None)),
        (":7", None, (0, 7)),
        ("3:7", None, (3, 7)),
        (None, 5, (0, 5)),
        ("3:", 5, (3, 8)),
        ("3:7", 2, (3, 5)),
        ("3:7", 100, (3, 7)),
        ((3, None), None, (3, None)),
        ("0:0", None, (0, 0)),
    ],
)
def test_rows(rows: Any, limit: int | None, expected: Any) -> None:
    """`--rows A:B` and `--limit` together name one run of rows."""
    assert parse_options(rows=rows, limit=limit).rows == expected


def test_pack_takes_what_parse_options_takes() -> None:
    """`pack` names every option in its signature, with the same default."""
    packs = inspect.signature(pack).parameters
    for name, parameter in inspect.signature(parse_options).parameters.items():
        assert packs[name].default == parameter.default
        assert name in (pack.__doc__ or "")


def test_jobs_are_a_number(tmp_path: Path) -> None:
    """Text is refused before anything is packed."""
    with pytest.raises(UsageError, match="jobs: not an integer"):
        pack(pa.table({"a": [1]}), tmp_path / "x.slab", jobs=cast(Any, "2"))
    assert not list(tmp_path.iterdir())


def test_misspelt_option_of_pack_is_named(tmp_path: Path) -> None:
    """A typo is a usage error that says which options there are."""
    with pytest.raises(UsageError, match=r"no option 'nuls'.*tensor.*Did you mean 'nulls'"):
        pack("a.parquet", tmp_path / "x.slab", nuls={"a": "mask"})
