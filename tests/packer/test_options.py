"""Options as users spell them."""

import inspect
from datetime import date
from pathlib import Path
from typing import Any, cast

import msgspec
import numpy as np
import pyarrow as pa
import pytest
from tests.naming import case

from fieldslab.packer import pack
from fieldslab.packer.cli import program, run
from fieldslab.packer.definition import read_definition
from fieldslab.packer.options import Options, Tensor, parse_options, parse_shape, parse_tensor
from fieldslab.packer.pack_options import PackOptions
from fieldslab.packer.source_settings import SourceSettings
from fieldslab.schemas.bytesizes import parse_size
from fieldslab.schemas.errors import UsageError
from fieldslab.schemas.optiontext import mark_option, render_for_python


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
    with pytest.raises(UsageError, match="shard_size: must be a size"):
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
    for keyword, name, value in (
        ("rename", "a", "b"),
        ("cast", "a", "f4"),
        ("stack", "x", "f*"),
        ("nulls", "a", "0"),
        ("tensor", "a", "f4[2]"),
    ):
        spellings: list[Any] = [{name: value}, [f"{name}={value}"], f"{name}={value}"]
        parsed = [parse_options(**{keyword: spelling}) for spelling in spellings]
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


def test_an_option_is_said_once() -> None:
    """Signature, docstring and command line of `pack` have every option of the definition."""
    parameters = inspect.signature(pack).parameters
    command = program.get_command(None, "pack")
    assert command is not None
    flags = {flag for param in command.params for flag in param.opts}
    for name, (kind, described) in read_definition(PackOptions).items():
        with case(name):
            assert parameters[name].default == described.default
            assert parameters[name].annotation == kind
            assert f"\n{name}\n    {described.help.split(' ')[0]}" in (pack.__doc__ or "")
            flag = f"--{name.strip('_').replace('_', '-')}"
            off = f"--no-{flag[2:]}"
            assert {flag, off} & flags or not described.in_shell
    assert set(parameters) == {"source", "out", *read_definition(PackOptions)}
    assert parse_options() == Options()


def test_settings_are_known_to_messages() -> None:
    """A setting of a source is `settings={...}` in Python, and an option on the command line."""
    for name in read_definition(SourceSettings):
        assert render_for_python(mark_option(name)) == f'settings["{name}"]'


def test_switches_are_true_or_false() -> None:
    """A switch takes no other value: `pad="no"` would be true."""
    for name in ("pad", "special_tokens", "keep_boundaries", "drop_last", "force"):
        options: Any = {name: "no"}
        with pytest.raises(UsageError, match=f"{name}: must be True or False"):
            parse_options(**options)


def test_values_of_python_are_checked() -> None:
    """A value that no text stands for is refused, not packed as its `repr`."""
    for options in (
        {"nulls": {"a": None}},
        {"nulls": {"a": b"x"}},
        {"nulls": {"a": [1]}},
        {"nulls": {1: "mask"}},
        {"rename": {"a": 3}},
        {"ragged": {"a": 0}},
        {"tokenize": {"a": True}},
        {"max_length": 1.5, "tokenize": {"a": "t.json"}},
    ):
        with case(options), pytest.raises(UsageError):
            parse_options(**options)
    values = {"a": 0.1, "b": True, "c": date(2026, 1, 2), "d": np.float32(0.1)}
    texts = {"a": "0.1", "b": "True", "c": "2026-01-02", "d": "0.1"}
    assert parse_options(nulls=values).nulls == texts
    assert parse_options(compress={"a": 9}).compress == {"a": 9}
    file = Path("t.json")
    assert parse_options(tokenize={"t": file}).tokenize["t"].file == str(file.absolute())


def test_what_manifests_record_stays() -> None:
    """`on_error` is recorded as ever, so that fingerprints of plans are those of earlier packs."""
    recorded = {"shard_size": 2**30}
    assert msgspec.to_builtins(parse_options()) == recorded
    assert msgspec.to_builtins(parse_options(on_error="raise")) == recorded
    skipping = msgspec.to_builtins(parse_options(on_error="skip"))
    assert skipping == {"damaged_images": "leave-out"} | recorded


def test_former_names_are_refused_with_the_new_ones(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """`damaged_images` and its values say what they are called now."""
    former: dict[str, Any] = {"damaged_images": "leave-out"}
    with pytest.raises(UsageError, match=r"damaged_images is now on_error: raise\|skip"):
        pack("a.parquet", tmp_path / "x.slab", **former)
    for old, new in (("leave-out", "skip"), ("error", "raise")):
        value: Any = old
        with pytest.raises(UsageError, match=f'It is now on_error="{new}"'):
            parse_options(on_error=value)
        assert run(["pack", "a.parquet", "-o", str(tmp_path / "x.slab"), "--on-error", old]) == 2
        assert f"It is now --on-error {new}." in capsys.readouterr().err
    assert run(["pack", "a.parquet", "--damaged-images", "leave-out"]) == 2
    assert "It is now --on-error raise|skip." in capsys.readouterr().err


def test_jobs_are_a_number(tmp_path: Path) -> None:
    """Text is refused before anything is packed."""
    with pytest.raises(UsageError, match="jobs: must be an integer"):
        pack(pa.table({"a": [1]}), tmp_path / "x.slab", jobs=cast(Any, "2"))
    assert not list(tmp_path.iterdir())


def test_misspelt_option_of_pack_is_named(tmp_path: Path) -> None:
    """A typo is a usage error that says which options there are."""
    misspelt: dict[str, Any] = {"nuls": {"a": "mask"}}
    with pytest.raises(UsageError, match=r"no option 'nuls'.*tensor.*Did you mean 'nulls'"):
        pack("a.parquet", tmp_path / "x.slab", **misspelt)
