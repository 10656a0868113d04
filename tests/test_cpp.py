"""A reader in C++ that follows FORMAT.md alone: `examples/read_slab.cpp`."""

import json
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from tests.slabs import Column, array_path, flip, poke, ragged, write_slab

from fieldslab.packer import pack
from fieldslab.schemas.digest import BLOCK
from fieldslab.schemas.folder import load_manifest
from fieldslab.schemas.manifest import MANIFEST

ROOT = Path(__file__).parents[1]
ROWS = 41
SHARDS = (3, 1, 20, 17)

WORDS = [f"größe {row} 🦀" * (row % 4) for row in range(ROWS)]
BOXES = np.random.default_rng(0).random((ROWS, 2, 3)).astype("f4")
TOKENS = [np.arange(row, row + row % 6, dtype=np.int32) for row in range(ROWS)]
VALID = (np.arange(ROWS) < 3) | (np.arange(ROWS) % 5 != 2)  # the first shard has no nulls

WANTED = {
    "box": [row.tobytes() for row in BOXES],
    "tokens": [row.tobytes() for row in TOKENS],
    'say "größe" \\ 🦀': [word.encode() for word in WORDS],
    "score": [np.int64(row).tobytes() if VALID[row] else None for row in range(ROWS)],
    "remark": [WORDS[row].encode() if VALID[row] else None for row in range(ROWS)],
}


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The reader, compiled with warnings as errors."""
    program = tmp_path_factory.mktemp("cpp") / "read_slab"
    flags = ["-std=c++17", "-O1", "-Wall", "-Wextra", "-Wconversion", "-Werror"]
    source = ROOT / "examples" / "read_slab.cpp"
    subprocess.run(["g++", *flags, str(source), "-o", str(program)], check=True)
    return program


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A slab in several shards."""
    words: list[str] = list(WORDS)
    columns = {
        "box": BOXES,
        "tokens": ragged(TOKENS, "int32"),
        'say "größe" \\ 🦀': words,
        "score": Column(np.arange(ROWS) * VALID, "fixed", "int64", valid=VALID),
        "remark": Column(
            [word * int(ok) for word, ok in zip(words, VALID, strict=True)], "text", valid=VALID
        ),
    }
    return write_slab(tmp_path / "a.slab", columns, SHARDS)


def run(program: Path, *words: object) -> subprocess.CompletedProcess[str]:
    """What the program does with these arguments."""
    command = [str(program), *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_every_row_has_the_bytes_that_were_written(program: Path, path: Path) -> None:
    """Fixed, ragged, text and nullable fields come out byte for byte, over several shards."""
    for name, rows in WANTED.items():
        done = run(program, path, name)
        assert done.returncode == 0, done.stderr
        assert done.stdout.splitlines() == ["null" if row is None else row.hex() for row in rows]


def test_lists_inside_lists_are_printed(program: Path, tmp_path: Path) -> None:
    """Each list of a nested field comes out, null where it is; lengths that lie are an error."""
    rows = [["größe", "", None], [], None, ["a"] * 3]
    pack(
        {"i": [1.5] * 4, "t": pa.array(rows, pa.list_(pa.string()))},
        tmp_path / "n.slab",
        nulls={"t": "mask"},
    )
    told = run(program, tmp_path / "n.slab", "t").stdout.splitlines()
    assert told == [f"[{'größe'.encode().hex()}, , null]", "[]", "null", "[61, 61, 61]"]
    file = array_path(tmp_path / "n.slab", "t", "lists.values")
    for number in (2**30, -2):
        poke(file, np.array([number], "<i4"), offset=12)
        assert "lists of row 3 are damaged" in run(program, tmp_path / "n.slab", "t").stderr


def test_one_row_is_printed_alone(program: Path, path: Path) -> None:
    """With a row number, that row is printed; one that is not there is an error."""
    assert run(program, path, "tokens", 40).stdout.strip() == TOKENS[40].tobytes().hex()
    assert run(program, path, "tokens", ROWS).returncode == 1


def test_fields_are_listed(program: Path, path: Path) -> None:
    """Without a field, the program lists names, kinds and dtypes; names may be any UTF-8."""
    lines = run(program, path).stdout.splitlines()
    assert lines[0] == f"{ROWS} rows"
    assert lines[3] == 'say "größe" \\ 🦀: text uint8'


def test_a_file_of_another_size_is_refused(program: Path, path: Path) -> None:
    """A file that is cut short or too long is an error with both sizes, not a wild read."""
    file = array_path(path, "box", shard=2)
    file.write_bytes(file.read_bytes()[:-1])
    done = run(program, path, "box")
    assert done.returncode == 1
    assert f"has {4096 + 20 * 24 - 1} bytes, not {4096 + 20 * 24}" in done.stderr


def test_another_header_is_refused(program: Path, path: Path) -> None:
    """A file whose header is that of other data is refused."""
    poke(array_path(path, "box"), b"X", offset=-4096)
    assert "header" in run(program, path, "box").stderr


def test_damaged_offsets_are_refused(program: Path, path: Path) -> None:
    """Offsets that leave the array, or fall, are an error that names the row."""
    poke(array_path(path, "tokens", "offsets", shard=2), np.array([2**40], "<u8"), offset=8 * 5)
    done = run(program, path, "tokens")
    assert done.returncode == 1
    assert "offsets of row 8 are damaged" in done.stderr


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('"version": 1', '"version": 2', "unsupported version 2"),
        ('"rows": 41', '"rows": 41, "rows": 41', "a key comes twice"),
        ('"stem": "00-box"', '"stem": "../box"', "no file can have the stem"),
        ('"kind": "ragged"', '"kind": "sparse"', "unknown kind sparse"),
        ('"made":', '"secret": 1, "made":', "unknown member `secret`"),
        ('"rows": 41', '"rows": -1', "a count"),
        ('"shape": [2, 3]', '"shape": [281474976710656,281474976710656]', "too large"),
        ('"made":', '"made": ' + "[" * 100_000, "nested too deeply"),
        ("}", "", "not valid JSON"),
    ],
)
def test_a_wrong_manifest_is_refused(
    program: Path, path: Path, old: str, new: str, message: str
) -> None:
    """What the reader does not know or cannot be is refused by name; it never crashes."""
    file = path / MANIFEST
    text = file.read_text()
    assert old in text
    file.write_text(text.replace(old, new, 1) if old != "}" else text[: text.rindex("}")])
    done = run(program, path, "box")
    assert done.returncode == 1
    assert message in done.stderr


def test_links_are_not_followed(program: Path, path: Path) -> None:
    """An array that is a link is refused, with what to do; the slab itself may be one."""
    (path.parent / "link").symlink_to(path)
    assert run(program, path.parent / "link", "box").returncode == 0
    file = array_path(path, "box")
    file.rename(path / "elsewhere.npy")
    file.symlink_to(path / "elsewhere.npy")
    done = run(program, path, "box")
    assert done.returncode == 1
    assert "cp -RL" in done.stderr


def test_other_fields_may_be_compressed(program: Path, tmp_path: Path) -> None:
    """A compressed field is refused by its name; those beside it are read."""
    codes = [b"xy" * row for row in range(9)]
    rows = {"code": codes, "text": WORDS[:9], "x": list(range(9))}
    path = pack(pa.table(rows), tmp_path / "c.slab", compress=["text", "x"]).path
    assert "text: text uint8" in run(program, path).stdout
    done = run(program, path, "code")
    assert done.stdout.splitlines() == [row.hex() for row in codes], done.stderr
    done = run(program, path, "text")
    assert done.returncode == 1
    assert "field text is compressed" in done.stderr


def test_sha256_digests_are_checked(program: Path, tmp_path: Path) -> None:
    """Rows come out of blocks with the right SHA-256 only; a table needs the root of its shard."""
    golden = ROOT / "tests" / "golden" / "v1" / "sha256.slab"
    expected = json.loads(golden.with_suffix(".json").read_text("utf-8"))
    for name in ("blob", "photo", "number"):
        rows = [row and row["hex"] * row.get("times", 1) for row in expected[name]]
        done = run(program, golden, name)
        assert done.stdout.splitlines() == ["null" if row is None else row for row in rows]
    for file, words in (
        ("00-blob.values.npy", "byte 69632 does not match its SHA-256"),
        ("00-blob.offsets.npy", "does not match its SHA-256"),
        ("00-blob.valid.npy", "does not match its SHA-256"),
        ("digests.npy", "is not the digest table of this shard"),
    ):
        path = Path(shutil.copytree(golden, tmp_path / file))
        flip(path / "shard-00000" / file, BLOCK + 9 if "values" in file else 2)
        done = run(program, path, "blob")
        assert (done.returncode, words in done.stderr) == (1, True), done
        assert run(program, path, "number").returncode == (1 if file == "digests.npy" else 0)


def test_an_id_is_computed_and_compared(program: Path, path: Path) -> None:
    """What is not the content of its `id` is refused, and so is another slab than that of --id."""
    content = load_manifest(path).id
    for text in (content, content[:16]):
        assert run(program, "--id", text, path, "box", 0).returncode == 0
    for text in (content[:15], "0" * 64):
        assert f"has the id {content}" in run(program, "--id", text, path).stderr
    manifest = (path / MANIFEST).read_text()
    for old, new, words in (
        ('"name": "box"', '"name": "bix"', "`id` is not the digest of the content"),
        ('"made"', '"digest": "md5", "made"', "unknown digest md5"),
    ):
        (path / MANIFEST).write_text(manifest.replace(old, new, 1))
        assert words in run(program, path).stderr


HOLDER = r"""
#define READ_SLAB_NO_MAIN
#include "read_slab.cpp"
#include <cstdio>
int main(int, char** words) {
  slab::Slab held(words[1]);
  slab::Column first = held.column("x");
  std::puts("open");
  std::fflush(stdout);
  std::getchar();
  std::printf("%d %d\n", first.row(0).data[0], first.row(1).data[0]);
  try {
    slab::Column second = held.column("y");
    std::printf("%d %d\n", second.row(0).data[0], second.row(1).data[0]);
  } catch (const slab::Error& error) {
    std::puts(error.what());
  }
}
"""


@pytest.mark.parametrize("removed", [False, True])
def test_an_open_slab_stays_what_it_was(tmp_path: Path, removed: bool) -> None:
    """After `pack --force` all columns are of the slab that was opened; what is gone is told so."""
    path = tmp_path / "x.slab"
    pack(pa.table({"x": [1, 1], "y": [1, 1]}), path)
    (tmp_path / "holder.cpp").write_text(HOLDER)
    program = tmp_path / "holder"
    include = f"-I{ROOT / 'examples'}"
    subprocess.run(
        ["g++", "-std=c++17", include, program.with_suffix(".cpp"), "-o", program], check=True
    )
    command = [str(program), str(path)]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "open\n"
        pack(pa.table({"x": [2, 2], "y": [2, 2]}), path, force=True)
        if removed:
            for folder in tmp_path.glob(".*.replaced"):
                shutil.rmtree(folder)
        output, _ = holder.communicate("\n")
    first, second = output.splitlines()
    assert first == "1 1"
    assert ("open it again" in second) if removed else (second == "1 1")
