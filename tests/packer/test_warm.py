"""`fieldslab warm`: kernels are compiled once, before somebody waits for them."""

import ast
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa

from fieldslab.packer import pack
from fieldslab.schemas.kernelcache import find_cache_folder
from fieldslab.schemas.warming import ROOMS, find_kernels

_GATHER = """
import sys
from fieldslab.reader import Loader, open_slab
rows = sum(len(batch.rows) for batch in Loader(open_slab(sys.argv[1]), 4))
print(rows, "numba" in sys.modules)
"""


def _run(home: Path, *command: object) -> subprocess.CompletedProcess[str]:
    chosen = {"HOME": str(home), "NUMBA_CACHE_DIR": "", "XDG_CACHE_HOME": ""}
    return subprocess.run(
        [sys.executable, *map(str, command)],
        env=os.environ | chosen,
        capture_output=True,
        text=True,
        check=False,
    )


def _copy_kernels(folder: Path) -> None:
    """What this machine has compiled before, but for one kernel: to compile all takes long."""
    cached = find_cache_folder()
    assert cached is not None
    folder.mkdir(mode=0o700, parents=True)
    for kernel in find_kernels(images=False):
        key = kernel.find_key()
        if key is not None and kernel.__name__ != "copy_rows":
            for file in cached.glob(f"{key.kernel}-{key.stamp}*.kernel"):
                shutil.copy(file, folder)


def test_nothing_is_compiled_after_it(tmp_path: Path) -> None:
    """In another home directory: a second call finds everything there, loaders need no numba."""
    _copy_kernels(tmp_path / ".cache" / "fieldslab-kernels")
    first, second = (_run(tmp_path, "-m", "fieldslab", "warm", "--json") for _ in range(2))
    assert first.returncode == second.returncode == 0, first.stderr
    told, again = (json.loads(done.stdout) for done in (first, second))
    names = {kernel["name"] for kernel in told["kernels"] if kernel["compiled"]}
    assert "fieldslab.reader.kernels.copy_rows" in names
    assert not any("decoders" in name for name in names)
    assert not any(kernel["compiled"] for kernel in again["kernels"])
    assert len(again["kernels"]) == len(list(Path(told["folder"]).glob("*.kernel")))
    assert told["folder"] == str(tmp_path / ".cache" / "fieldslab-kernels")
    assert "compiling" in first.stderr
    assert second.stderr == ""
    pack(pa.table({"x": range(10)}), tmp_path / "x.slab")
    done = _run(tmp_path, "-c", _GATHER, tmp_path / "x.slab")
    assert (done.stdout, done.stderr) == ("10 False\n", "")


def test_without_a_place_it_fails(tmp_path: Path) -> None:
    """What cannot be kept is compiled for nothing: the exit code is that of outputs."""
    done = _run(Path("relative"), "-m", "fieldslab", "warm")
    assert done.returncode == 5
    assert "NUMBA_CACHE_DIR" in done.stderr


def _find_names_in_python(node: ast.AST) -> Iterator[str]:
    """Names that are used outside the bodies of kernels and of their parts."""
    if isinstance(node, ast.FunctionDef):
        marks = {ast.unparse(mark).partition("(")[0] for mark in node.decorator_list}
        if marks & {"kernel", "subkernel", "inlined"}:
            return
    if isinstance(node, ast.Name | ast.Attribute):
        yield node.id if isinstance(node, ast.Name) else node.attr
    for child in ast.iter_child_nodes(node):
        yield from _find_names_in_python(child)


def test_python_calls_every_kernel_and_no_subkernel() -> None:
    """What is compiled ahead is what Python calls: subkernels become parts of kernels."""
    root = Path(__file__).parents[2]
    sources = [path.read_text() for room in ROOMS for path in (root / room).rglob("*.py")]
    called = {name for source in sources for name in _find_names_in_python(ast.parse(source))}
    marked = re.findall(r"\n@(kernel|subkernel)\((?:.|\n)*?\ndef (\w+)", "".join(sources))
    assert marked
    assert [name for mark, name in marked if (mark == "kernel") != (name in called)] == []


def test_every_kernel_is_found_by_a_key_of_its_own() -> None:
    """Two of the same key would be taken for each other."""
    keys = [kernel.find_key() for kernel in find_kernels()]
    assert None not in keys
    assert len(set(keys)) == len(keys) > 20
