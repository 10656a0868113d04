"""Small things that users of the command line rely on."""

from pathlib import Path
from typing import Any

import pytest

URL = "s3://bucket/deep//x"


@pytest.mark.parametrize(
    "arguments",
    [
        ["pack", URL + ".parquet", "-o", "new"],
        ["pack", URL + ".h5", "-o", "new", "--from", "hdf5"],
        ["pack", URL, "-o", "new", "--from", "images"],
        ["pack", URL, "-o", "new", "--from", "parquet"],
        ["pack", "{parquet}", "-o", URL],
        ["verify", URL],
        ["verify", "{slab}", "--against", URL],
        ["info", URL],
        ["head", URL],
        ["bench", URL],
        ["advise", URL],
    ],
)
def test_urls_are_said_as_written(
    cli: Any, parquet: Path, slab: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    arguments: list[str],
) -> None:  # fmt: skip
    """A URL is no path: every command says that it is not supported yet, and makes no folder."""
    monkeypatch.chdir(tmp_path)
    before = sorted(tmp_path.iterdir())
    done = cli(*(argument.format(parquet=parquet, slab=slab) for argument in arguments))
    assert done.code in (2, 3)
    assert f"{URL}" in done.err + done.out
    assert "not supported yet" in done.err + done.out
    assert sorted(tmp_path.iterdir()) == before


def test_verify_says_once_what_is_no_slab(cli: Any, tmp_path: Path) -> None:
    """What cannot be verified has its verdict on stdout, with what to do, and nothing twice."""
    done = cli("verify", tmp_path / "nope")
    hint = "Check the path, or pack the slab first."
    expected = f"FAILED: {tmp_path / 'nope'}: does not exist. {hint}\n"
    assert done == (3, expected, "")
