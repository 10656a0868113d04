"""What tests of annotated images share: images, and slabs of them."""

from pathlib import Path
from typing import Any

from tests.jpegs import encode, photograph
from tests.packer.readback import Readback

from fieldslab.packer import pack, verify

JPEGS = [encode(photograph(24 + index, 32 - index, index)) for index in range(5)]


def write_images(folder: Path, names: list[str]) -> Path:
    """Write photographs of these names."""
    for number, name in enumerate(names):
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(JPEGS[number % len(JPEGS)])
    return folder


def packed(source: Path, out: Path, **options: Any) -> Readback:
    """Pack, compare with the source again, and read back."""
    pack(source, out, force=True, **options)
    report = verify(out, against=source)
    assert report.ok, report.problems
    return Readback(out)


def get_names(slab: Any, field: str) -> tuple[str, ...]:
    """Names of the classes of a field."""
    return tuple(slab.fields[field].logical.names)
