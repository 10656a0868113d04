"""A program that reads slabs while their files change: each case in a forked process of its own.

Prints a line for each case: its name, and what became of it.
"""

import faulthandler
import importlib
import mmap
import os
import shutil
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
from torch.utils.data import DataLoader

from fieldslab.reader import Loader, Slab, Subset, open_slab
from fieldslab.reader.torch import SlabDataset, collate
from fieldslab.schemas.errors import FieldslabError
from fieldslab.schemas.mapping import get_address

FIELD = "00-x.values.npy"
Damage = Callable[[Path], None]


def cut(file: Path) -> None:
    """Truncate the file, so that all of its pages but the first are gone."""
    os.truncate(file, mmap.PAGESIZE)


def overwrite(file: Path) -> None:
    """Write other numbers over those in the file."""
    with file.open("r+b") as opened:
        opened.seek(mmap.PAGESIZE)
        opened.write(b"\xa5" * 65536)


def punch(file: Path) -> None:
    """Write zeros over all numbers in the file, as a hole would read."""
    size = file.stat().st_size
    with file.open("r+b") as opened:
        opened.seek(mmap.PAGESIZE)
        opened.write(bytes(size - mmap.PAGESIZE))


def replace(file: Path) -> None:
    """Put another file in its place."""
    other = file.with_suffix(".other")
    other.write_bytes(bytes(file.stat().st_size))
    os.replace(other, file)


def gather(slab: Slab) -> None:
    """Gather all rows, and again, which must fail in the same way."""
    for _ in range(2):
        try:
            slab.gather(range(len(slab)), ["x"])
        except FieldslabError as error:
            first = error
    slab.gather([0], ["x"])
    raise AssertionError(first)


def read_rows(slab: Slab) -> None:
    """Read rows one by one."""
    for row in range(0, len(slab), 100):
        slab[row]


def find_addresses(slab: Slab) -> None:
    """Ask for addresses after a fault elsewhere in the slab."""
    column = np.array(slab["x"][0 : len(slab)])
    assert not column[-1].any()
    slab.addresses([0], "x")


def find_lengths(slab: Slab) -> None:
    """Ask for lengths whose offsets are lost."""
    slab.lengths([0], "s")
    cut_offsets(slab)
    slab.lengths([len(slab) - 1], "s")


def find_empty_lists(slab: Slab) -> None:
    """Ask for addresses whose offsets are lost."""
    slab.addresses(range(len(slab)), "s")
    cut_offsets(slab)
    slab.addresses([len(slab) - 1], "s")


def cut_offsets(slab: Slab) -> None:
    """Cut the offsets of the texts."""
    cut(next(slab.path.glob("shard-00000/*-s.offsets.npy")))


def choose_rows(slab: Slab) -> None:
    """Compare values in the maps with a number."""
    slab.where("id >= 0")
    cut(next(slab.path.glob("shard-00000/*-id.values.npy")))
    slab.where("id >= 0")


def copy_to_pandas(slab: Slab) -> None:
    """Have texts copied out of the maps."""
    slab.to_pandas(fields=["s"])
    cut(next(slab.path.glob("shard-00000/*-s.values.npy")))
    slab.to_pandas(fields=["s"])


def copy_column(slab: Slab) -> None:
    """Have numpy copy a column out of the map."""
    np.array(slab["id"])
    cut(next(slab.path.glob("shard-00000/*-id.values.npy")))
    np.array(slab["id"])


def read_lists(slab: Slab) -> None:
    """Read a row, which looks damaged where the offsets of its lists are lost."""
    slab[0]
    cut(next(slab.path.glob("shard-00000/*-list.lists.offsets.npy")))
    slab[len(slab) - 1]


def read_row_later(slab: Slab) -> None:
    """Read a row of a file that was written more than a second before."""
    slab[0]
    overwrite(slab.path / "shard-00000" / FIELD)
    time.sleep(1.1)
    slab[0]


def choose_by_file(slab: Slab, damage: Damage) -> None:
    """Read rows that a file lists, which changes; the slab itself stays readable."""
    file = slab.path.with_suffix(".rows")
    slab.select(np.arange(len(slab))[::-1]).save(file)
    view = slab.select(file)
    view.gather([0], ["id"])
    damage(file)
    time.sleep(1.1)
    try:
        view.gather([len(slab) - 1], ["id"])
    except FieldslabError as error:
        text = str(error)
    del view
    slab.gather([0], ["id"])
    raise ValueError(text)


def order_by_file(slab: Slab) -> None:
    """Go through an order of rows that a `.npy` file lists, which is cut."""
    file = slab.path.with_suffix(".npy")
    np.save(file, np.arange(len(slab))[::-1])
    batches = iter(Loader(slab, 512, Subset(file, seed=None), fields=["id"], prefetch=0))
    next(batches)
    cut(file)
    for _ in batches:
        pass


def load(slab: Slab, **options: object) -> None:
    """Iterate over two epochs of a loader."""
    with Loader(slab, 512, fields=["x"], threads=2, **options) as loader:  # type: ignore[arg-type]
        for _ in range(2):
            for _batch in loader:
                pass


def load_in_workers(slab: Slab) -> None:
    """Let forked workers of PyTorch read, which have handlers of their own."""
    dataset = SlabDataset(slab, ["x"])
    for _ in DataLoader(dataset, batch_size=512, num_workers=2, collate_fn=collate):
        pass


def load_in_a_process(slab: Slab) -> None:
    """Let a process of the loader read, in which nothing was mapped before the damage."""
    with Loader(slab, 512, fields=["x"], isolate=True, prefetch=1, threads=1) as loader:
        batches = iter(loader)
        next(batches)
        cut(Path(slab.path, "shard-00000", FIELD))
        for _ in batches:
            pass
        for _ in loader:
            pass


def change_during_epoch(slab: Slab, damage: Damage) -> None:
    """Change a file while an epoch runs: its end must tell."""
    batches = iter(Loader(slab, 512, fields=["x"], prefetch=0))
    next(batches)
    damage(Path(slab.path, "shard-00000", FIELD))
    for _ in batches:
        pass


def link(slab: Slab) -> None:
    """Give a file another name, which changes nothing that is read."""
    os.link(slab.path / "shard-00000" / FIELD, slab.path.with_suffix(".link"))
    load(slab)


def link_and_flip(slab: Slab) -> None:
    """Change bytes and put the time back: the file is verified again."""
    file = slab.path / "shard-00000" / FIELD
    before = file.stat()
    overwrite(file)
    os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))
    load(slab)


def touch_own_map(slab: Slab) -> None:
    """Touch a page of a file that is no slab's: the process must die of it."""
    with tempfile.TemporaryFile() as file:
        file.truncate(2 * mmap.PAGESIZE)
        own = mmap.mmap(file.fileno(), 2 * mmap.PAGESIZE, prot=mmap.PROT_READ)
        file.truncate(mmap.PAGESIZE)
        own[mmap.PAGESIZE]
    sys.stderr.write("alive")


def with_trace(read: Callable[[Slab], None]) -> Callable[[Slab], None]:
    """Enable `faulthandler` after the slab was read."""

    def traced(slab: Slab) -> None:
        faulthandler.enable()
        read(slab)

    return traced


def with_handler(slab: Slab) -> None:
    """Handle SIGBUS that a process sends, as before."""
    signal.signal(signal.SIGBUS, lambda *_: os.write(2, b"handled"))
    slab.gather([0])
    os.kill(os.getpid(), signal.SIGBUS)
    slab.gather([0])


def read_beside(slab: Slab) -> None:
    """Read another slab while this one is damaged, in threads."""
    other = open_slab(slab.path.with_name("other.slab"))
    failures = []

    def read() -> None:
        for _ in range(20):
            try:
                slab.gather(range(len(slab)), ["x"])
            except FieldslabError as error:
                failures.append(error)

    threads = [threading.Thread(target=read) for _ in range(3)]
    for thread in threads:
        thread.start()
    expected = np.arange(len(other), dtype=np.float32)
    for _ in range(20):
        assert np.array_equal(other.gather(range(len(other)), ["x"])["x"][:, 0], expected)
    for thread in threads:
        thread.join()
    assert len(failures) == 60
    raise failures[0]


def read_beside_another_version(slab: Slab) -> None:
    """Read while another version of fieldslab guards its own maps, in front or behind."""
    first = sys.modules["fieldslab.schemas.sigbus"].guard
    for name in ("mapped_ranges", "sigbus_code", "sigbus"):
        del sys.modules[f"fieldslab.schemas.{name}"]
    second = importlib.import_module("fieldslab.schemas.sigbus").guard
    mapped_ranges = importlib.import_module("fieldslab.schemas.mapped_ranges")
    for guard in (second, first, second, first):
        guard.arm()
        with tempfile.TemporaryFile() as file:
            file.truncate(2 * mmap.PAGESIZE)
            own = mmap.mmap(file.fileno(), 2 * mmap.PAGESIZE, prot=mmap.PROT_READ)
            watch, start = mapped_ranges.Watch(None), get_address(np.frombuffer(own, np.uint8))
            slot = mapped_ranges.ranges.add(start, len(own), Path("own"), watch)
            file.truncate(mmap.PAGESIZE)
            assert own[mmap.PAGESIZE] == 0
            mapped_ranges.ranges.release(slot)
            assert watch.lost == (Path("own"), mmap.PAGESIZE)
    try:
        gather(slab)
    except FieldslabError as error:
        os.write(2, str(error).encode())
    touch_own_map(slab)


def send(slab: Slab) -> None:
    """Send the signal itself."""
    os.kill(os.getpid(), signal.SIGBUS)


CASES: dict[str, tuple[Damage | None, Callable[[Slab], None]]] = {
    "gather": (cut, gather),
    "rows": (cut, read_rows),
    "addresses": (cut, find_addresses),
    "threads": (cut, read_beside),
    "loader": (cut, load),
    "workers": (cut, load_in_workers),
    "process": (None, load_in_a_process),
    "traced": (cut, with_trace(gather)),
    "overwritten": (overwrite, load),
    "punched": (punch, load),
    "replaced": (replace, load),
    "overwritten in an epoch": (None, lambda slab: change_during_epoch(slab, overwrite)),
    "linked": (None, link),
    "changed in secret": (None, link_and_flip),
    "own map": (None, touch_own_map),
    "own map, traced": (None, with_trace(touch_own_map)),
    "lengths": (None, find_lengths),
    "addresses of texts": (None, find_empty_lists),
    "where": (None, choose_rows),
    "pandas": (None, copy_to_pandas),
    "column": (None, copy_column),
    "nested row": (None, read_lists),
    "row after a second": (None, read_row_later),
    "file of rows, cut": (None, lambda slab: choose_by_file(slab, cut)),
    "file of rows, written": (None, lambda slab: choose_by_file(slab, overwrite)),
    "order by a file": (None, order_by_file),
    "two versions": (cut, read_beside_another_version),
    "sent": (None, send),
    "sent, traced": (None, with_trace(send)),
    "handled": (None, with_handler),
}


def run_case(slab: Path, damage: Damage | None, read: Callable[[Slab], None]) -> str:
    """Run a case in a process of its own: what became of it, and what it wrote."""
    with tempfile.TemporaryFile("w+") as output:
        process = os.fork()
        if process == 0:
            os.dup2(output.fileno(), 2)
            sys.stderr.flush()
            code = 0
            try:
                copy = Path(shutil.copytree(slab, slab.with_name("copy.slab")))
                opened = open_slab(copy)
                opened.gather(range(len(opened)))
                if damage is not None:
                    damage(copy / "shard-00000" / FIELD)
                read(opened)
            except BaseException as error:  # noqa: BLE001 - the test sees which
                text = str(error)
                os.write(2, f"{type(error).__name__}: {text}".encode())
                code = 1
            os._exit(code)
        _, status = os.waitpid(process, 0)
        shutil.rmtree(slab.with_name("copy.slab"))
        output.seek(0)
        written = output.read()
    code = os.waitstatus_to_exitcode(status)
    end = signal.Signals(-code).name if code < 0 else str(code)
    return f"{end} {' '.join(written.split())}"


def run_cases(slab: Path) -> Iterator[str]:
    """Run all cases."""
    for name, (damage, read) in CASES.items():
        yield f"{name}: {run_case(slab, damage, read)}"


if __name__ == "__main__":
    faulthandler.disable()
    slab = Path(sys.argv[1])
    open_slab(slab).gather([0])  # so that forked processes have what is compiled
    for line in run_cases(slab):
        sys.stdout.write(line + "\n")
