"""Paths that the system refuses before it looks for a file: each is a named error."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.naming import case
from tests.slabs import write_slab

from fieldslab.packer import repack
from fieldslab.packer.cli import program
from fieldslab.reader import open_slab
from fieldslab.schemas.errors import FieldslabError, SlabNotFound


def test_names_that_are_too_long_are_named_errors(
    parquet: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No option of a command ends with an exception of the system, whatever path it gets."""
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "none")
    slab = write_slab(tmp_path / "x.slab", {"x": np.arange(20)})
    path, out = tmp_path / ("a" * 300), tmp_path / "out"
    calls: list[tuple[Any, ...]] = [
        ("pack", parquet, "-o", path),
        ("pack", path, "-o", out),
        ("pack", parquet, "-o", "s3://bucket/x.slab", "--scratch", path),
        ("pack", parquet, "-o", out, "--tokenize", f"text={path}"),
        ("pack", parquet, "-o", out, "--plan", path),
        ("repack", slab, path),
        ("repack", slab, path, "--shuffle", 0),
        ("repack", slab, out, "--rows-file", path),
        ("concat", slab, "-o", path),
        ("copy", slab, path),
        ("export", slab, "-o", path),
        ("verify", slab, "--against", parquet, "--tokenizer", path),
        ("verify", slab, "--public-key", path),
        ("repair", slab, "--from", path),
        ("union", f"{path}.slabs", "list"),
        ("info", path),
        ("rows", slab, "--batch-size", 2, "--state", path),
        ("sign", slab, "--new-key", path),
        ("sign", slab, "--key", path),
        ("cache", "list", "--cache-dir", path),
        ("finish", path),
    ]
    for words in calls:
        with case(*words[:1], *words[2:-1]), pytest.raises(FieldslabError):
            program.main([str(word) for word in words], standalone_mode=False)
    with pytest.raises(FieldslabError):
        open_slab(slab, cache_dir=path)
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["x.slab"]


def test_a_cache_directory_that_is_a_circle_of_links(tmp_path: Path) -> None:
    """A link to itself is an error that names the cache directory."""
    slab = write_slab(tmp_path / "x.slab", {"x": np.arange(3)})
    (tmp_path / "circle").symlink_to("circle")
    with pytest.raises(FieldslabError, match="circle"):
        open_slab(slab, cache_dir=tmp_path / "circle")


def test_a_slab_that_is_missing_is_named_though_the_output_is_there(tmp_path: Path) -> None:
    """`repack` compares places only after it has opened what it reads."""
    there = write_slab(tmp_path / "x.slab", {"x": np.arange(3)})
    with pytest.raises(SlabNotFound, match="missing"):
        repack(tmp_path / "missing", there, force=True)
