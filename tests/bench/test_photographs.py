"""The photographs that benchmarks are made of."""

import io
from pathlib import Path

import pytest
from PIL import Image

from fieldslab.bench import pack as bench_pack
from fieldslab.bench import verify as bench_verify
from fieldslab.bench.photographs import own_photographs, photographs, repeated_photographs
from fieldslab.packer import pack
from fieldslab.reader import open_slab
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


def test_many_photographs_are_some_again_and_again() -> None:
    """As many bytes as asked for, all distinct ones before any comes again, in another order."""
    files = list(repeated_photographs(1_000_000, distinct=5))
    assert 1_000_000 <= sum(map(len, files)) < 1_200_000
    assert set(files[:5]) == set(files[5:10]) == set(photographs(5))
    assert files[:5] != files[5:10]


@pytest.mark.parametrize("index", [8, None])
def test_photographs_that_are_packed_and_verified_are_photographs(
    index: int | None, tmp_path: Path
) -> None:
    """Benchmarks of pack and verify have real JPEG where they say so, with an index and without."""
    bench_pack.photographs(tmp_path / "a.parquet", 500_000, 2, distinct=5)
    pack(tmp_path / "a.parquet", tmp_path / "a.slab", jpeg_index=index)
    pack(bench_verify.photographs(500_000, distinct=5), tmp_path / "b.slab", jpeg_index=index)
    for path in (tmp_path / "a.slab", tmp_path / "b.slab"):
        slab = open_slab(path)
        assert slab.fields["image"].kind == "image"
        assert bool(list(path.rglob("*.points.values.npy"))) == bool(index)
        for row in range(len(slab)):
            assert Image.open(io.BytesIO(bytes(slab[row]["image"]))).size in [
                (500, 375),
                (375, 500),
            ]
