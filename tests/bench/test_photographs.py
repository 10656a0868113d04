"""The photographs that benchmarks are made of."""

import io
from pathlib import Path

import pytest
from PIL import Image

from fieldslab.bench.photographs import own_photographs, photographs
from fieldslab.schemas.errors import UsageError


def test_cuts_are_photographs_of_the_size_of_imagenets() -> None:
    """Cuts are JPEG of 500 x 375 pixels in either direction, of about 70 KB, no two alike."""
    files = list(photographs(20))
    assert {Image.open(io.BytesIO(file)).size for file in files} <= {(500, 375), (375, 500)}
    assert len(set(files)) == 20
    assert 40_000 < sum(map(len, files)) / 20 < 110_000


def test_cuts_are_the_same_every_time() -> None:
    """The same seed gives the same bytes, another one gives others."""
    assert list(photographs(3, seed=1)) == list(photographs(3, seed=1))
    assert list(photographs(3, seed=1)) != list(photographs(3, seed=2))


def test_own_photographs_are_taken_by_name(tmp_path: Path) -> None:
    """Files of a folder come as they are, in the order of their names; none is an error."""
    for name, file in zip("ba", photographs(2), strict=True):
        (tmp_path / f"{name}.JPG").write_bytes(file)
    assert list(own_photographs(tmp_path)) == list(photographs(2))[::-1]
    with pytest.raises(UsageError, match="no JPEG files"):
        list(own_photographs(tmp_path / "empty"))
