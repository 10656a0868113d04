"""Mirrors in memory, and the file systems that get one by themselves."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
from tests.reader.test_mirror import find_helpers, wait_until
from tests.slabs import write_slab

from fieldslab.reader import Slab, open_slab
from fieldslab.schemas.mirror.cache import MEMORY, find_memory_cache
from fieldslab.schemas.networks import find_network_file_system, name_file_system

VALUES = np.random.default_rng(0).integers(0, 256, (300, 40_000), np.uint8)

READER = """
import sys
from fieldslab.reader import open_slab
slab = open_slab(sys.argv[1], cache_dir=":memory:")
slab.gather([200])
print("reads", flush=True)
sys.stdin.read()
"""


def check_rows(slab: Slab) -> None:
    """Compare a batch with what was written."""
    rows = [0, 299, 17]
    assert np.array_equal(slab.gather(rows)["x"], VALUES[rows])


def test_a_mirror_in_memory_ends_with_its_last_user(tmp_path: Path) -> None:
    """Slabs and processes of a user share it; it goes with the last, also if that is killed."""
    source = write_slab(tmp_path / "x.slab", {"x": VALUES}, [100, 200])
    memory = find_memory_cache()
    assert memory is not None
    first, second = (open_slab(source, cache_dir=MEMORY) for _ in range(2))
    check_rows(first)
    assert (memory[0] / first.manifest.id).is_dir()
    assert memory[0].stat().st_mode & 0o777 == 0o700
    child = os.fork()
    if child == 0:
        status = 1
        try:
            check_rows(first)
            del first, second
            status = 0
        finally:
            os._exit(status)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    del first
    check_rows(second)
    command = [sys.executable, "-c", READER, str(source)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as reader:
        assert reader.stdout is not None
        assert reader.stdout.readline() == b"reads\n"
        helpers = find_helpers(reader.pid)
        assert helpers  # it fetched a row that nobody had
        del second
        assert memory[0].is_dir()
        reader.send_signal(signal.SIGKILL)
    for helper in helpers:
        helper.wait(5)
    wait_until(lambda: not memory[0].exists())


def test_a_mirror_in_memory_is_freed_beside_other_slabs(tmp_path: Path) -> None:
    """It goes with its slab, though the helper process goes on for another one."""
    source = write_slab(tmp_path / "x.slab", {"x": VALUES}, [100, 200])
    slab = open_slab(source, cache_dir=MEMORY)
    check_rows(slab)
    other = open_slab(source, cache_dir=tmp_path / "cache")
    check_rows(other)
    memory = find_memory_cache()
    assert memory is not None
    assert memory[0].is_dir()
    (helper,) = find_helpers()
    before = list_deleted_files(helper.pid)  # of slabs of other tests, which are still open
    del slab
    wait_until(lambda: not memory[0].exists())
    wait_until(lambda: list_deleted_files(helper.pid) <= before)  # they would take memory
    check_rows(other)


def list_deleted_files(process: int) -> set[str]:
    """List the files that a process holds open, or mapped, although they were deleted."""
    names = [
        os.readlink(path) for path in Path(f"/proc/{process}/fd").iterdir() if path.is_symlink()
    ]
    names += Path(f"/proc/{process}/maps").read_text().splitlines()
    return {name for name in names if "fieldslab" in name and name.endswith("(deleted)")}


def test_forked_workers_keep_a_mirror_in_memory(tmp_path: Path) -> None:
    """Where the parent closes the slab, its children read on, also what nobody fetched yet."""
    source = write_slab(tmp_path / "x.slab", {"x": VALUES}, [100, 200])
    slab = open_slab(source, cache_dir=MEMORY)
    slab.gather([0])
    closed, tell = os.pipe()
    children = []
    for _ in range(2):
        children.append(os.fork())
        if children[-1] == 0:
            status = 1
            try:
                os.close(tell)
                os.read(closed, 1)
                check_rows(slab)
                assert np.array_equal(slab.gather(range(300))["x"], VALUES)
                status = 0
            finally:
                os._exit(status)
    del slab
    os.close(tell)
    for child in children:
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_file_systems_behind_a_network_are_known(tmp_path: Path) -> None:
    """NFS and its like are told by the numbers of Linux; a local file system is none of them."""
    assert name_file_system(0x6969) == "NFS"
    assert name_file_system(0x0BD00BD0) == "Lustre"
    assert name_file_system(0xFE534D42) == name_file_system(0xFFFFFFFFFE534D42) == "SMB"
    assert name_file_system(0xEF53) is None  # ext4
    assert find_network_file_system(str(tmp_path)) is None
    assert find_network_file_system(str(tmp_path / "nothing")) is None
