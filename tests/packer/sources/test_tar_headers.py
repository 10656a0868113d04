"""Headers of tar files: every member as `tarfile` and GNU tar see it, damage with its offset."""

import io
import os
import subprocess
import tarfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from tests.naming import case

from fieldslab.packer.sources.tar_headers import BadTar, TarMember, list_members

LONG = "d" * 99 + "/" + "ü" * 70 + ".txt"
NAMES = [
    "a.txt",
    "p/" * 60 + "b.jpg",
    LONG,
    LONG * 3,
    "new\nline",
    "100%#?.png",
    "漢字 🙂.jpg",
    "d/",
]


class Reader:
    """Reads bytes in memory."""

    def __init__(self, data: bytes) -> None:
        self._data = memoryview(data)

    def read(self, offset: int, size: int) -> memoryview:
        """Read bytes, fewer at the end."""
        return self._data[offset : offset + size]


def parse(data: bytes) -> list[TarMember]:
    """List the members of a tar in memory."""
    return list(list_members(Reader(data), len(data)))


def check(data: bytes) -> int:
    """Compare with `tarfile`: names, offsets, sizes, kinds; return how many there are."""
    with tarfile.open(fileobj=io.BytesIO(data)) as tar:
        expected = [
            (i.name, i.offset, i.size if i.isreg() else 0, i.isreg(), i.isdir())
            for i in tar.getmembers()
        ]
        places = [i.offset_data for i in tar.getmembers() if i.isreg()]
    members = parse(data)
    assert [(m.name, m.offset, m.size, m.is_file, m.is_folder) for m in members] == expected
    assert [member.data for member in members if member.is_file] == places
    return len(members)


@pytest.mark.parametrize("kind", [tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT])
def test_as_tarfile(kind: int) -> None:
    """All kinds of members and names, in the three formats that Python writes."""
    stream = io.BytesIO()
    headers = {"comment": "c" * 700} if kind == tarfile.PAX_FORMAT else {}
    with tarfile.open(fileobj=stream, mode="w", format=kind, pax_headers=headers) as tar:
        for number, name in enumerate(NAMES):
            if kind == tarfile.USTAR_FORMAT and len(name.encode()) > 99 and name != NAMES[1]:
                continue
            info = tarfile.TarInfo(name)
            info.size, info.mtime = 511 * number, 1.5 if kind == tarfile.PAX_FORMAT else 1
            if name.endswith("/"):
                info.type, info.size = tarfile.DIRTYPE, 0
            tar.addfile(info, io.BytesIO(b"x" * info.size))
        for link in (tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.FIFOTYPE, tarfile.CHRTYPE):
            info = tarfile.TarInfo("link" + link.decode())
            info.type, info.linkname = link, "l" * 90
            tar.addfile(info)
    assert check(stream.getvalue()) >= len(NAMES) + 2


@pytest.mark.parametrize("kind", ["gnu", "pax", "ustar", "v7", "oldgnu"])
def test_as_gnu_tar(tmp_path: Path, kind: str) -> None:
    """What GNU tar writes in all of its formats, with links to files and folders."""
    short = [name for name in NAMES[:1] + NAMES[4:7] if kind != "v7" or len(name) < 90]
    for name in short if kind in ("v7", "ustar") else NAMES[:3] + NAMES[4:7]:
        path = tmp_path / "in" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(os.urandom(700))
    (tmp_path / "in" / "link").symlink_to("a.txt")
    os.link(tmp_path / "in" / "a.txt", tmp_path / "in" / "hard")
    subprocess.run(
        ["tar", f"--format={kind}", "-cf", "../x.tar", "."], cwd=tmp_path / "in", check=True
    )
    assert check((tmp_path / "x.tar").read_bytes()) >= 7


def test_large_sizes() -> None:
    """Sizes over 8 GiB, to the base 256 and in POSIX headers, without their data being there."""
    for kind in (tarfile.GNU_FORMAT, tarfile.PAX_FORMAT):
        info = tarfile.TarInfo("big.bin")
        info.size = 2**33 + 5
        head = info.tobuf(kind)
        member = next(list_members(Reader(head), None))
        assert (member.size, member.data) == (2**33 + 5, len(head))


def forge(data: bytes, position: int, text: bytes) -> bytes:
    """Change a header and its checksum."""
    block = bytearray(data)
    block[position : position + len(text)] = text
    start = position // 512 * 512
    block[start + 148 : start + 156] = b" " * 8
    block[start + 148 : start + 156] = b"%06o\0 " % sum(block[start : start + 512])
    return bytes(block)


def list_hostile() -> Iterator[tuple[str, bytes, int]]:
    """Damaged and malicious tars: what is said, and where."""
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w", format=tarfile.PAX_FORMAT) as tar:
        tar.addfile(tarfile.TarInfo("a"))
        tar.addfile(tarfile.TarInfo("ü" * 60))
    data = stream.getvalue()
    yield "bad checksum", data[:20] + b"!" + data[21:], 0
    yield "invalid header", forge(data, 124, b"00000000009\0"), 0
    yield "invalid header", forge(data, 124, b"-0000000001\0"), 0
    yield "unexpected end of data", forge(data, 124, b"\x80" + b"\x7f" * 11), 0
    yield "sparse members", forge(data, 156, b"S"), 0
    yield "is not UTF-8", forge(data, 0, b"\xff\xfe"), 0
    yield "a name of", forge(data, 512 + 124, b"00077777777\0"), 512
    yield "invalid header", data[:1024] + b"x" + data[1025:], 512
    yield "invalid header", data[:1024] + b"99999 path=x\n\0" + data[1037:], 512
    yield "invalid header", data[:1024] + b"0 path=x\n\0" + data[1033:], 512
    yield "the end of the tar is missing", data[:2048], 2048
    yield "the end of the tar is missing", data[:600], 512
    yield "behind the end", data + b"x", 3072
    sparse = b"22 GNU.sparse.major=1\n"
    yield "sparse members", data[:1024] + sparse + bytes(512 - len(sparse)) + data[1536:], 512


def test_hostile_tars() -> None:
    """Every defect is an error with the offset of its member, and nothing else is raised."""
    for problem, data, offset in list_hostile():
        with case(problem, offset), pytest.raises(BadTar, match=problem) as caught:
            parse(data)
        assert caught.value.offset == offset or problem == "behind the end"
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for name in NAMES[:7]:
            tar.addfile(tarfile.TarInfo(name))
    rng = np.random.default_rng(0)
    for _ in range(300):
        changed = bytearray(stream.getvalue())
        for position in rng.integers(0, len(changed), int(rng.integers(1, 4))):
            changed[position] ^= 1 << int(rng.integers(0, 8))
        try:
            parse(bytes(changed[: int(rng.integers(0, len(changed)))]))
        except BadTar:
            continue
