"""Carries mutations out on the files of a slab."""

import contextlib
import os
import shutil
import signal
from collections.abc import Callable
from pathlib import Path

from tests.mutations import on_manifests
from tests.mutations.choices import Mutation, Op
from tests.mutations.subject import own_file


def copy_whole(whole: Path, slab: Path) -> None:
    """A copy in which every file is a hard link, until it is changed."""
    shutil.copytree(whole, slab, copy_function=os.link)


def mutate(slab: Path, mutation: Mutation) -> None:
    """Carry out a mutation on a copy; steps that cannot be taken are left out."""
    for op in mutation:
        with contextlib.suppress(OSError, shutil.Error, IndexError):
            _OPS[op["do"]](slab, op)


def _flip(slab: Path, op: Op) -> None:
    path = own_file(slab / op["file"])
    data = bytearray(path.read_bytes())
    data[op["at"]] ^= 1 << op["bit"]
    path.write_bytes(data)


def _write(slab: Path, op: Op) -> None:
    with own_file(slab / op["file"]).open("r+b") as file:
        file.seek(op["at"])
        file.write(bytes.fromhex(op["hex"]))


def _truncate(slab: Path, op: Op) -> None:
    os.truncate(own_file(slab / op["file"]), op["size"])


def _swap(slab: Path, op: Op) -> None:
    first, other, aside = slab / op["file"], slab / op["other"], slab.with_name("aside")
    first.rename(aside)
    if other.exists():
        other.rename(first)
    aside.rename(other)


def _copy(slab: Path, op: Op) -> None:
    data = (slab / op["file"]).read_bytes()
    (slab / op["other"]).unlink()
    (slab / op["other"]).write_bytes(data)


def _add(slab: Path, op: Op) -> None:
    shutil.copyfile(slab / op["file"], (slab / op["file"]).with_suffix(".extra"))


def _link(slab: Path, op: Op) -> None:
    aside = slab.with_name("aside.npy")
    (slab / op["file"]).rename(aside)
    (slab / op["file"]).symlink_to(aside)


def _hard_link(slab: Path, op: Op) -> None:
    (slab / op["other"]).unlink()
    os.link(slab / op["file"], slab / op["other"])


def _pipe(slab: Path, op: Op) -> None:
    (slab / op["file"]).unlink()
    os.mkfifo(slab / op["file"])


def _directory(slab: Path, op: Op) -> None:
    (slab / op["file"]).unlink()
    (slab / op["file"]).mkdir()


def _folder_file(slab: Path, op: Op) -> None:
    shutil.rmtree(slab / op["file"])
    (slab / op["file"]).write_bytes(b"")


def _folder_copy(slab: Path, op: Op) -> None:
    if op["file"] != op["other"]:
        shutil.rmtree(slab / op["other"])
        shutil.copytree(slab / op["file"], slab / op["other"])


_OPS: dict[str, Callable[[Path, Op], None]] = {
    "flip": _flip,
    "write": _write,
    "truncate": _truncate,
    "swap": _swap,
    "folder swap": _swap,
    "copy": _copy,
    "add": _add,
    "link": _link,
    "folder link": _link,
    "hard link": _hard_link,
    "pipe": _pipe,
    "directory": _directory,
    "folder file": _folder_file,
    "folder copy": _folder_copy,
    "edit": on_manifests.edit,
    "seal": on_manifests.seal,
    "balance": on_manifests.balance,
    "fit": on_manifests.fit,
    "digest": on_manifests.digest,
    "remove": lambda slab, op: (slab / op["file"]).unlink(),
    "rename": lambda slab, op: (slab / op["file"]).rename(slab / (op["file"] + "x")) and None,
    "folder remove": lambda slab, op: shutil.rmtree(slab / op["file"]),
    "crash": lambda slab, op: os.kill(os.getpid(), signal.SIGSEGV),
}
