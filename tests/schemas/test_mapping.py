"""Maps: read-only views of a file that outlive its descriptor and its name."""

import errno
import os
from pathlib import Path

import numpy as np
import pytest

from fieldslab.schemas.mapping import map_file, populate_pages


def test_map_outlives_descriptor_and_name(tmp_path: Path) -> None:
    """A map stays readable after the file was closed and removed."""
    path = tmp_path / "data"
    path.write_bytes(bytes(range(256)) * 40)
    fd = os.open(path, os.O_RDONLY)
    mapped = map_file(fd, 10_000)
    os.close(fd)
    path.unlink()
    part = mapped[5000:5010]
    del mapped
    assert part.tolist() == [byte % 256 for byte in range(5000, 5010)]


def test_map_is_read_only(tmp_path: Path) -> None:
    """Nothing can be written through a map."""
    path = tmp_path / "data"
    path.write_bytes(b"abc")
    with path.open("rb") as file:
        mapped = map_file(file.fileno(), 3)
    with pytest.raises(ValueError, match="read-only"):
        mapped[0] = 1
    with pytest.raises(ValueError, match=r"WRITEABLE|writeable"):
        mapped.flags.writeable = True


def test_map_is_aligned_to_a_page(tmp_path: Path) -> None:
    """Data behind the 4 KiB header is aligned for every dtype."""
    path = tmp_path / "data"
    path.write_bytes(bytes(5000))
    with path.open("rb") as file:
        mapped = map_file(file.fileno(), 5000)
    assert mapped.ctypes.data % 4096 == 0
    assert np.frombuffer(mapped, "<c16", 1, 4096).flags.aligned


@pytest.mark.parametrize("size", [2**62, 0])
def test_refusal_of_the_system_is_an_os_error(size: int, tmp_path: Path) -> None:
    """What the system does not map is an OSError with its reason."""
    path = tmp_path / "data"
    path.write_bytes(b"abc")
    with path.open("rb") as file, pytest.raises(OSError, match=r"\w") as caught:
        map_file(file.fileno(), size)
    assert caught.value.errno in (errno.ENOMEM, errno.EINVAL, errno.EOVERFLOW)


def test_pages_that_cannot_be_read_are_an_error_before_they_are_touched(tmp_path: Path) -> None:
    """A file that was cut off is told where the system can tell; a whole one is read in."""
    path = tmp_path / "data"
    path.write_bytes(bytes(40_000))
    with path.open("rb") as file:
        mapped = map_file(file.fileno(), 40_000)
    start = mapped.ctypes.data + 5000
    told = populate_pages(start, 35_000)
    os.truncate(path, 20_000)
    assert populate_pages(start, 14_000) == told
    if told:  # else the system has no call for that
        with pytest.raises(OSError, match="shorter"):
            populate_pages(start, 35_000)
