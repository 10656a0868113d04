"""What a power cut leaves is worked out rightly: `make campaign-power` relies on it."""

import random
from pathlib import Path

import pytest
from tests.faults.write_log import Recorder, Step, Tree, make_crash

PLACE = "/data"


def encode(text: str) -> str:
    """A string as strace writes it."""
    return "".join(f"\\x{byte:02x}" for byte in text.encode())


def make_log() -> str:
    """A file written beside its place, synced and renamed, by two threads."""
    draft, final, folder = (encode(f"{PLACE}{name}") for name in ("/a.tmp", "/a", ""))
    opened = f'openat(AT_FDCWD<{encode("/")}>, "{draft}", O_WRONLY|O_CREAT|O_EXCL, 0666)'
    return "\n".join(
        [
            f"7 {opened} = 4<{draft}>",
            f'7 write(4<{draft}>, "{encode("hello ")}", 6) = 6',
            f'8 pwrite64(4<{draft}>, "{encode("world")}", 5, 6 <unfinished ...>',
            f"7 fsync(4<{draft}> <unfinished ...>",
            "8 <... pwrite64 resumed>) = 5",
            "7 <... fsync resumed>) = 0",
            f'7 rename("{draft}", "{final}") = 0',
            f'7 openat(AT_FDCWD<{encode("/")}>, "{encode("/etc/x")}", O_RDONLY) = -1 ENOENT (none)',
            f"7 fsync(5<{folder}>) = 0",
        ]
    )


@pytest.fixture
def steps() -> list[Step]:
    """The steps of the log."""
    return Recorder(Tree({PLACE}), Path(PLACE)).read(make_log())


def test_a_log_is_read(steps: list[Step]) -> None:
    """Every write, sync and name is found, with the calls of two threads put together."""
    kinds = ["create", "write", "write", "sync file", "rename", "sync folder"]
    assert [step.kind for step in steps] == kinds
    assert [(step.offset, step.data) for step in steps[1:3]] == [(0, b"hello "), (6, b"world")]


@pytest.mark.parametrize("way", ["journal", "loose"])
def test_what_was_synced_is_there(steps: list[Step], way: str) -> None:
    """After the last sync there is the new file, whole; before it, what was synced or less."""
    seen = set[bytes | None]()
    for seed in range(60):
        rng = random.Random(seed)
        whole = make_crash(Tree({PLACE}), steps, rng, way)
        assert whole.names.keys() == {"/data/a"}
        assert bytes(whole.files[whole.names["/data/a"]]) == b"hello world"
        renamed = make_crash(Tree({PLACE}), steps[:5], rng, way)
        for number in renamed.names.values():
            assert bytes(renamed.files[number]) == b"hello world"
        early = make_crash(Tree({PLACE}), steps[:3], rng, way)
        seen |= {bytes(early.files[number]) for number in early.names.values()} or {None}
    assert {None, b"", b"hello ", b"hello world", b"\0\0\0\0\0\0world"} <= seen


def test_what_was_removed_durably_is_gone() -> None:
    """A folder whose removal was synced is gone, whether or not it was synced while emptied."""
    start = Tree({PLACE, f"{PLACE}/a", f"{PLACE}/a/b"}, {f"{PLACE}/a/b/x": 1}, {1: bytearray(b"x")})
    names = [("unlink", "/a/b/x"), ("rmdir", "/a/b"), ("rmdir", "/a"), ("sync folder", "")]
    steps = [Step(kind, (PLACE + name,)) for kind, name in names]
    lost = set[bool]()
    for seed in range(40):
        left = make_crash(start, steps, random.Random(seed), "loose")
        assert (left.folders, left.names) == ({PLACE}, {})
        early = make_crash(start, steps[:3], random.Random(seed), "loose")
        lost.add(f"{PLACE}/a" in early.folders)
    assert lost == {True, False}
