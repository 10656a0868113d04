"""Feeds forged slabs to the reader in C++, and compares its rows with those of Python's."""

import contextlib
import os
import random
import resource
import select
import shutil
import subprocess
import zlib
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from tests.hostile.cases import forge
from tests.hostile.note import add_note

from fieldslab.reader import Slab, VarLenValues, open_slab
from fieldslab.schemas.errors import FieldslabError

_SECONDS = 60
_MOST_ROWS, _MOST_BYTES = 1000, 2**24
"""As in `read_all.cpp`."""
SANITIZERS = ["-O1", "-fsanitize=address,undefined", "-fno-sanitize-recover=all"]
_WARNINGS = ["-Wall", "-Wextra", "-Wconversion", "-Werror"]


def compile_reader(folder: Path, sanitizers: Sequence[str] = SANITIZERS) -> Path:
    """Compile `read_all.cpp`; by default with those of addresses and of undefined behaviour."""
    program = folder / "read_all"
    source = Path(__file__).with_name("read_all.cpp")
    include = f"-I{Path(__file__).parents[2] / 'examples'}"
    flags = ["-std=c++17", "-g", *_WARNINGS, *sanitizers, include]
    subprocess.run(["g++", *flags, str(source), "-o", str(program)], check=True)
    return program


class Reader:
    """A process of the reader in C++, which reads one slab after the other."""

    def __init__(self, program: Path) -> None:
        options = {
            "ASAN_OPTIONS": "max_allocation_size_mb=1024",
            "UBSAN_OPTIONS": "print_stacktrace=1",
        }
        self._process = subprocess.Popen(
            [str(program)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env=os.environ | options,
            preexec_fn=_allow_shadow_memory,
        )

    def read(self, slab: Path) -> list[str]:
        """Read a slab: a line for each field. Raises AssertionError where the process ends."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.write(os.fsencode(slab) + b"\n")
            self._process.stdin.flush()
        answer = b""
        while not answer.endswith(b"done\n"):
            ready, _, _ = select.select([self._process.stdout], [], [], _SECONDS)
            more = os.read(self._process.stdout.fileno(), 1 << 16) if ready else b""
            answer += more
            if not more:
                self.close()
                raise AssertionError(f"the reader ended, or has no end: {answer.decode()[-1500:]}")
        return answer.decode().splitlines()[:-1]

    def close(self) -> None:
        """End the process."""
        self._process.kill()
        self._process.communicate()


def _allow_shadow_memory() -> None:
    """Lift the limit of a case: the sanitizer maps terabytes, and has a limit of its own."""
    resource.setrlimit(resource.RLIMIT_AS, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))


def try_case(
    rng: random.Random, wholes: Mapping[str, Path], folder: Path, reader: Reader
) -> Counter[str]:
    """Forge a slab and read it in both languages. Raises AssertionError where rows differ."""
    slab = folder / "x.slab"
    try:
        name, kind, mutation = forge(rng, wholes, slab)
        try:
            return compare(slab, reader)
        except BaseException as problem:
            add_note(problem, f"{name}, {kind}", mutation)
            raise
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def compare(slab: Path, reader: Reader) -> Counter[str]:
    """Read a slab in both languages: how fields ended. Raises AssertionError where rows differ."""
    opened = None
    with contextlib.suppress(FieldslabError):
        opened = open_slab(slab, verify=False)
    expected = {} if opened is None else {_sign(name.encode()): name for name in opened.fields}
    counts = Counter[str]()
    for line in reader.read(slab):
        size, name_sum, rows_sum, end = line.split()
        name = expected.get((int(size), int(name_sum)))
        if end == "read" and opened is not None and name is not None:
            with contextlib.suppress(FieldslabError):
                checksum = sum_rows(opened, name)
                assert checksum in (None, int(rows_sum)), f"{name}: C++ reads other rows"
                end = "read alike"
        counts[f"fields: {end}"] += 1
    return counts or Counter({"slabs: refused": 1})


def _sign(name: bytes) -> tuple[int, int]:
    return len(name), zlib.crc32(name)


def sum_rows(slab: Slab, name: str) -> int | None:
    """Compute the CRC-32 of sizes and bytes of rows; None if they are too large."""
    batch, checksum, total = slab.gather(range(min(len(slab), _MOST_ROWS)), [name]), 0, 0
    values, valid = batch[name], batch.valid.get(name)
    for row in range(len(batch.rows)):
        null = valid is not None and not valid.view(np.uint8)[row]
        lists: Sequence[int] = ()
        if isinstance(values, np.ndarray):
            data = values[row : row + 1].tobytes()
        elif isinstance(values.values, VarLenValues):
            inner = values[row]
            data = inner.values.tobytes()
            item = inner.values[:0].itemsize * int(np.prod(inner.values.shape[1:]))
            valid_lists = np.ones(len(inner), bool) if inner.valid is None else inner.valid
            lists = np.where(valid_lists, inner.lengths * item, -1).tolist()
        else:
            data = values.values[values.offsets[row] : values.offsets[row + 1]].tobytes()
        size = 2**64 - 1 if null else len(data)
        checksum = zlib.crc32(size.to_bytes(8, "little"), checksum)
        if not null:
            checksum = zlib.crc32(data, checksum)
            for length in lists:
                checksum = zlib.crc32(length.to_bytes(8, "little", signed=True), checksum)
            total += len(data)
    return None if total > _MOST_BYTES else checksum
