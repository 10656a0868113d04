"""Parquet that cannot be read: missing, damaged, encrypted, or changed while it is read."""

import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pyarrow.parquet.encryption as pe
import pytest
from tests.packer.damage import flip, page_range
from tests.packer.readback import Readback
from tests.packer.sources.parquet.parquet_files import numbers, refused, write

from fieldslab.packer import pack
from fieldslab.packer.source import find_source
from fieldslab.schemas.errors import (
    FieldslabError,
    SourceChanged,
    SourceUnreadable,
    UsageError,
)


def _nothing(folder: Path) -> Any:
    return folder / "missing.parquet"


def _no_match(folder: Path) -> Any:
    return str(folder / "*.parquet")


def _no_file(folder: Path) -> Any:
    return folder / "missing"


def _empty_folder(folder: Path) -> Any:
    (folder / "data").mkdir()
    (folder / "data" / "a.txt").touch()
    return folder / "data"


def _dangling(folder: Path) -> Any:
    (folder / "a.parquet").symlink_to("nowhere")
    return folder / "a.parquet"


def _empty_file(folder: Path) -> Any:
    (folder / "a.parquet").touch()
    return folder / "a.parquet"


def _other_content(folder: Path) -> Any:
    (folder / "a.parquet").write_bytes(b"PK\3\4" + bytes(400))
    return folder / "a.parquet"


def _not_ours(folder: Path) -> Any:
    (folder / "a.txt").write_text("a,b\n1,2\n")
    return folder / "a.txt"


def _truncated(folder: Path) -> Any:
    path = write(folder / "a.parquet", range(100))
    path.write_bytes(path.read_bytes()[:-60])
    return path


def _only_the_end(folder: Path) -> Any:
    path = write(folder / "a.parquet", range(10_000))
    data = path.read_bytes()
    path.write_bytes(data[:4] + data[-5000:])
    return path


def _footer_length(folder: Path) -> Any:
    path = write(folder / "a.parquet", range(100))
    data = path.read_bytes()
    path.write_bytes(data[:-8] + b"\xff\xff\xff\x7f" + data[-4:])
    return path


WRONG: list[tuple[Callable[[Path], Any], str]] = [
    (_nothing, "no such file"),
    (_no_match, "no file matches"),
    (_no_file, "no such file"),
    (_empty_folder, "nothing at this path that fieldslab can pack"),
    (_dangling, "no such file"),
    (_empty_file, "damaged"),
    (_other_content, "damaged"),
    (_not_ours, "nothing at this path that fieldslab can pack"),
    (_truncated, "damaged"),
    (_only_the_end, "damaged"),
    (_footer_length, "damaged"),
]


@pytest.mark.parametrize(("make", "message"), WRONG)
def test_unreadable(tmp_path: Path, make: Callable[[Path], Any], message: str) -> None:
    """What is missing or damaged is SourceUnreadable, and names the file."""
    source = make(tmp_path)
    error = refused(tmp_path, source)
    assert isinstance(error, SourceUnreadable)
    assert error.exit_code == 3
    assert str(source) in str(error)
    with pytest.raises(SourceUnreadable, match=message):
        pack(source, tmp_path / "slab")


def test_no_source(tmp_path: Path) -> None:
    """An empty list of sources is a usage error, and so is an object that cannot be a source."""
    wrong: list[Any] = [[], 7, {"a": 1}, [1, 2], iter([])]
    for patterns in wrong:
        assert isinstance(refused(tmp_path, patterns), UsageError)
    with pytest.raises(UsageError, match="no such source 'cvs'"):
        pack("a.csv", tmp_path / "slab", from_="cvs")


@contextmanager
def powerless() -> Iterator[None]:
    """Without the powers of root, for whom no file is unreadable."""
    root = os.geteuid() == 0
    if root:
        os.seteuid(65534)
    try:
        yield
    finally:
        if root:
            os.seteuid(0)


def test_no_permission(tmp_path: Path) -> None:
    """A file that may not be read is SourceUnreadable, and says so."""
    path = write(tmp_path / "a.parquet", range(3))
    pack(path, tmp_path / "before")
    path.chmod(0)
    with powerless(), pytest.raises(SourceUnreadable, match="ermission"):
        find_source(path)


def _flipped_everywhere(tmp_path: Path, checksums: bool) -> Iterator[tuple[Path, int]]:
    path = write(
        tmp_path / "good.parquet",
        range(3000),
        write_page_checksum=checksums,
        row_group_size=1000,
        compression="none",
    )
    bad = tmp_path / "bad.parquet"
    for column in (0, 1):
        pages = page_range(path, 1, column)
        for index in np.linspace(pages.start, pages.stop - 1, 25).astype(int):
            shutil.copyfile(path, bad)
            flip(bad, int(index), 1 << int(index) % 8)
            yield bad, int(index)


def outcome(source: Path, slab: Path) -> FieldslabError | None:
    """The named error of a pack, or None where it went through. Anything else is raised."""
    try:
        pack(source, slab, force=True)
    except FieldslabError as error:
        return error
    return None


def test_flipped_bits_with_checksums(tmp_path: Path) -> None:
    """Page checksums find a flipped bit in any page; in a page header it may do no harm."""
    slab, detected = tmp_path / "slab", 0
    for bad, index in _flipped_everywhere(tmp_path, checksums=True):
        error = outcome(bad, slab)
        if error is None:
            assert numbers(slab) == list(range(3000)), index
            assert Readback(slab).column("t") == [f"row {row}" for row in range(3000)], index
            continue
        detected += 1
        assert isinstance(error, SourceUnreadable)
        assert f"{bad} row group 1" in str(error)
    assert detected >= 46


def test_flipped_bits_without_checksums(tmp_path: Path) -> None:
    """Without checksums a flipped bit is an error or another value, never a crash."""
    errors = [outcome(bad, tmp_path / "slab") for bad, _ in _flipped_everywhere(tmp_path, False)]
    assert {None if error is None else error.exit_code for error in errors} <= {None, 3, 4}
    assert 0 < errors.count(None) < len(errors)


def test_flipped_footers(tmp_path: Path) -> None:
    """A footer with a flipped bit is an error, or says something else: never a crash."""
    path = write(tmp_path / "good.parquet", range(20))
    size = path.stat().st_size
    length = int.from_bytes(path.read_bytes()[-8:-4], "little")
    errors = []
    for index in range(size - 8 - length, size, 3):
        bad = tmp_path / "bad.parquet"
        shutil.copyfile(path, bad)
        flip(bad, index, 1 << index % 8)
        errors.append(outcome(bad, tmp_path / "slab"))
    assert {None if error is None else error.exit_code for error in errors} <= {None, 3, 4}
    assert errors.count(None) < len(errors)


class Kms(pe.KmsClient):  # type: ignore[misc]  # pyarrow ships no types
    """Wraps keys with nothing: enough for tests."""

    def __init__(self, configuration: Any) -> None:
        """Keep nothing."""
        super().__init__()

    def wrap_key(self, key_bytes: bytes, master_key_identifier: str) -> bytes:
        """The key itself, as text."""
        return key_bytes.hex().encode()

    def unwrap_key(self, wrapped_key: bytes, master_key_identifier: str) -> bytes:
        """The key from its text."""
        return bytes.fromhex(wrapped_key.decode())


@pytest.mark.parametrize("plaintext_footer", [False, True], ids=["footer", "columns"])
def test_encrypted(tmp_path: Path, plaintext_footer: bool) -> None:
    """Encrypted files are named as such, whether the footer can be read or not."""
    factory = pe.CryptoFactory(Kms)
    properties = factory.file_encryption_properties(
        pe.KmsConnectionConfig(),
        pe.EncryptionConfiguration(
            footer_key="f", column_keys={"c": ["n"]}, plaintext_footer=plaintext_footer
        ),
    )
    table = pa.table({"n": [1, 2], "t": ["a", "b"]})
    with pq.ParquetWriter(
        tmp_path / "a.parquet", table.schema, encryption_properties=properties
    ) as writer:
        writer.write_table(table)
    error = refused(tmp_path, tmp_path / "a.parquet")
    assert isinstance(error, SourceUnreadable)
    assert "encrypted" in str(error)
    assert "Decrypt" in str(error)
    if plaintext_footer:
        pack(tmp_path / "a.parquet", tmp_path / "slab", fields="t")
        assert Readback(tmp_path / "slab").column("t") == ["a", "b"]


def _replace(path: Path) -> None:
    write(path.with_suffix(".new"), range(1, 601), row_group_size=100).replace(path)


def _append(path: Path) -> None:
    with path.open("ab") as file:
        file.write(b"more")


def _touch(path: Path) -> None:
    os.utime(path, ns=(1, 1))


def _garble(path: Path) -> None:
    path.write_bytes(b"\xff" * path.stat().st_size)


@pytest.mark.parametrize("change", [_replace, _append, _touch, Path.unlink, _garble])
def test_file_that_changes(tmp_path: Path, change: Callable[[Path], None]) -> None:
    """A file that changes while it is packed is SourceChanged, whatever else it breaks."""
    path = write(tmp_path / "a.parquet", range(600), row_group_size=100)
    done = False

    def once(rows: int, bytes: int) -> None:
        nonlocal done
        if not done:
            change(path)
        done = True

    with pytest.raises(SourceChanged) as caught:
        pack(path, tmp_path / "slab", progress=once, shard_size=1)
    assert caught.value.context["file"] == str(path)
    assert not (tmp_path / "slab").exists()
