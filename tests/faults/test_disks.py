"""Slabs survive a few power cuts of ext4; `make campaign-disks` tries more file systems."""

import faulthandler
import os
import random
import shutil
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import pytest
from tests.campaign_disks import MOMENTS, Cuts
from tests.faults.disks import KINDS, Disk, hide_mounts, list_missing
from tests.faults.straced import run_untraced
from tests.naming import case

from fieldslab.schemas.folder import open_slab_files
from fieldslab.schemas.signatures import (
    check_signature,
    create_key,
    find_signature_place,
    load_public_key,
    sign_slab,
)

KIND = {"ext4": KINDS["ext4"]}
CANNOT_MOUNT = 5


def run_with_mounts(work: Callable[[Path], None], folder: Path) -> None:
    """Work in a child whose mounts end with it, or skip the test where nothing can be mounted."""
    if missing := list_missing(KIND):
        pytest.skip(f"this test needs {', '.join(missing)}")

    def mount_and_work() -> None:
        faulthandler.cancel_dump_traceback_later()  # its thread would be missing in children
        try:
            hide_mounts()
            (folder / "try").mkdir()
            Disk(folder / "try", KIND["ext4"]).__exit__()
        except OSError as error:
            os.write(2, str(error).encode())
            os._exit(CANNOT_MOUNT)
        (folder / "work").mkdir()
        work(folder / "work")

    ending = run_untraced(mount_and_work, folder)
    if ending.code == CANNOT_MOUNT:
        pytest.skip(ending.error)
    assert ending.code == 0, ending.error


@pytest.mark.parametrize("way", ["nothing written", "disk"])
def test_what_was_not_synced_is_lost(way: str, tmp_path: Path) -> None:
    """After a power cut, a file that was synced is there, and one that was not is gone."""

    def cut(folder: Path) -> None:
        with Disk(folder, KIND["ext4"]) as disk:
            for name in ("synced", "lost"):
                (disk.files / name).write_text(name)
                if name == "synced":
                    disk.sync()
            disk.cut(way, Calm())
            disk.turn_on(way)
            assert (disk.files / "synced").read_text() == "synced"
            assert not (disk.files / "lost").exists()

    run_with_mounts(cut, tmp_path)


class Calm(random.Random):
    """Random numbers by which nothing is written just before the power goes."""

    def random(self) -> float:
        """Return 0.99: whatever may happen does not."""
        return 0.99


def test_what_was_said_to_be_done_is_durable(tmp_path: Path) -> None:
    """The power goes once a command is done that writes one file: the new file is there."""

    def cut(folder: Path) -> None:
        with ExitStack() as stack:
            cuts = Cuts(folder, stack, KIND, ("export", "plan", "rows"), ["once done"])
            for number in range(7):
                with case(number):
                    cuts.try_case(number, random.Random(number))
            sign_and_cut(cuts.machines["ext4"].world.whole, folder)

    run_with_mounts(cut, tmp_path)


def sign_and_cut(slab: Path, folder: Path) -> None:
    """Sign a slab with a new key, cut the power, and check the signature."""
    (folder / "signed").mkdir()
    with Disk(folder / "signed", KIND["ext4"]) as disk:
        copy = disk.files / "x.slab"
        shutil.copytree(slab, copy)
        disk.sync()
        public = create_key(disk.files / "lab.key")
        with open_slab_files(copy) as files:
            sign_slab(files, disk.files / "lab.key", find_signature_place(files))
        disk.cut("nothing written", Calm())
        disk.turn_on("nothing written")
        with open_slab_files(copy) as files:
            check_signature(files, load_public_key(public))


def test_slabs_survive_power_cuts(tmp_path: Path) -> None:
    """The old slab or the new one is there; the new one once it was said to be done."""

    def cut(folder: Path) -> None:
        with ExitStack() as stack:
            cuts = Cuts(folder, stack, KIND, ("replace", "copy"), MOMENTS[1:])
            endings = [cuts.try_case(number, random.Random(number)) for number in range(5)]
        assert {"ext4: once done, done": 1} in endings
        assert len({str(ending) for ending in endings}) > 1

    run_with_mounts(cut, tmp_path)
