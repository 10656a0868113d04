"""Packs and reads in odd environments, and compares each batch: `make campaign-environments`.

A program packs a source, verifies the slab, gathers and goes through an epoch: see
`tests/environment_job.py`. It runs under each environment of `ENVIRONMENTS`, then under random
combinations of them. Each batch must be the one that it is elsewhere. An environment that cannot
do says so with a named error, or one of its own.
"""

import ctypes
import json
import os
import random
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from tests.campaigns import Campaign, make_parser
from tests.environment_job import ROWS, run_job
from tests.faults.shim import build_shim

GOAL = (
    "Packing, verifying, gathering and an epoch give the same batches with few files, little "
    "memory, full shared memory, short reads, odd locales, no processes, read-only homes and "
    "slabs, closed streams, "
    "`python -OO`, `-X dev` and warnings as errors, or end with an error that says why"
)
ROOT = Path(__file__).parents[1]
SECONDS = 120
MIB = 2**20
CGROUP = f"fieldslab-environments-{os.getpid()}"


@dataclass(frozen=True)
class Environment:
    """What is odd about a process: options of Python, variables, limits, arguments of the job."""

    python: tuple[str, ...] = ()
    variables: dict[str, str] = field(default_factory=dict)
    prepare: Callable[[], None] | None = None
    """Called in the process before Python starts."""
    arguments: tuple[str, ...] = ()
    may_fail: tuple[str, ...] = ()
    """Exceptions that are fair, beside named ones."""
    read_only: bool = False
    """Whether the slab is there, in a directory that cannot be written."""


def _limit(name: str, value: int) -> Callable[[], None]:
    return lambda: resource.setrlimit(getattr(resource, name), (value, value))


def _close(*descriptors: int) -> Callable[[], None]:
    def close() -> None:
        for descriptor in descriptors:
            os.close(descriptor)

    return close


def drop_rights() -> None:
    """From the next program on, let permissions of files hold for root as well."""
    drop_from_bounding_set = 24
    libc = ctypes.CDLL(None)
    for capability in (1, 2):  # to write and to read what permissions forbid
        libc.prctl(drop_from_bounding_set, capability, 0, 0, 0)


def _hide_files() -> None:
    os.umask(0o077)


def _limit_files() -> None:
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (MIB, MIB))


def _pin() -> None:
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})


def _enter_memory_cgroup() -> None:
    """Share 512 MiB with the page cache, in a memory cgroup of version 1 or 2."""
    for root, limit in (("memory", "memory.limit_in_bytes"), ("", "memory.max")):
        group = Path("/sys/fs/cgroup", root, CGROUP)
        with suppress(OSError):
            group.mkdir(exist_ok=True)
            (group / limit).write_text(str(512 * MIB))
            (group / "cgroup.procs").write_text(str(os.getpid()))
            return
    raise OSError("no memory cgroup can be made here")


def _mount_shared_memory(options: bytes, ballast: int) -> Callable[[], None]:
    """Have another /dev/shm in this process and its children: root's alone."""

    def mount() -> None:
        libc = ctypes.CDLL(None, use_errno=True)
        new_mounts, recursive_private, read_only = 0x20000, 0x4000 | 1 << 18, 1
        for failed in (
            libc.unshare(new_mounts),
            libc.mount(b"none", b"/", None, recursive_private, None),
            libc.mount(b"none", b"/dev/shm", b"tmpfs", 0 if ballast else read_only, options),
        ):
            if failed:
                raise OSError(ctypes.get_errno(), "no mounts can be made here")
        if ballast:
            Path("/dev/shm/ballast").write_bytes(bytes(ballast))

    return mount


MEMORY = ("MemoryError", "ImportError", "OSError", "SystemError", "RuntimeError")
ENVIRONMENTS: dict[str, Environment] = {
    "plain": Environment(),
    "-OO": Environment(python=("-OO",)),
    "-X dev": Environment(python=("-X", "dev")),
    "warnings are errors": Environment(variables={"PYTHONWARNINGS": "error"}),
    "LC_ALL=C": Environment(
        variables={"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    ),
    "ASCII streams": Environment(variables={"PYTHONIOENCODING": "ascii:strict", "LANG": ""}),
    "Turkish": Environment(variables={"LC_ALL": "tr_TR.UTF-8", "LANGUAGE": "tr"}),
    "far time zone": Environment(variables={"TZ": "Pacific/Apia"}),
    "no time zone": Environment(variables={"TZ": ":nowhere/else"}),
    "umask 077": Environment(prepare=_hide_files),
    "16 files": Environment(prepare=_limit("RLIMIT_NOFILE", 16)),
    "256 MiB of address space": Environment(
        prepare=_limit("RLIMIT_AS", 256 * MIB), may_fail=MEMORY
    ),
    "4 GiB of address space": Environment(
        prepare=_limit("RLIMIT_AS", 4096 * MIB),
        variables={"OPENBLAS_NUM_THREADS": "1", "MALLOC_ARENA_MAX": "2"},
    ),
    "256 MiB of data": Environment(
        prepare=_limit("RLIMIT_DATA", 256 * MIB),
        variables={"OPENBLAS_NUM_THREADS": "1", "MALLOC_ARENA_MAX": "2"},
        may_fail=MEMORY,
    ),
    "stacks of 256 KiB": Environment(prepare=_limit("RLIMIT_STACK", 256 * 1024)),
    "files of 1 MiB": Environment(prepare=_limit_files),
    "no core": Environment(prepare=_limit("RLIMIT_CORE", 0)),
    "one core": Environment(prepare=_pin),
    "stdin closed": Environment(prepare=_close(0)),
    "all streams closed": Environment(prepare=_close(0, 1, 2)),
    "no HOME": Environment(variables={"HOME": "", "XDG_CACHE_HOME": ""}),
    "read-only HOME": Environment(
        prepare=drop_rights, variables={"HOME": "{locked}", "XDG_CACHE_HOME": "{locked}/cache"}
    ),
    "no temporary directory": Environment(
        prepare=drop_rights, variables=dict.fromkeys(("TMPDIR", "TMP", "TEMP"), "{locked}/none")
    ),
    "read-only slab": Environment(prepare=drop_rights, arguments=("--read-only",), read_only=True),
    "no processes": Environment(arguments=("--no-fork",)),
    "hash seed": Environment(variables={"PYTHONHASHSEED": "12345"}),
    "memory is filled": Environment(variables={"MALLOC_PERTURB_": "165", "PYTHONMALLOC": "debug"}),
    "short reads": Environment(variables={"LD_PRELOAD": "{shim}", "FAULT_FILE": "{control}"}),
    "no PATH": Environment(variables={"PATH": ""}),
    "isolated loader": Environment(arguments=("--isolate",)),
    "memory cgroup of 512 MiB": Environment(prepare=_enter_memory_cgroup),
    "no shared memory": Environment(
        prepare=_mount_shared_memory(b"size=64k", 0), arguments=("--isolate",)
    ),
    "full shared memory": Environment(
        prepare=_mount_shared_memory(b"size=64k", 64 * 1024), arguments=("--isolate",)
    ),
}


def make_source(path: Path) -> Path:
    """A Parquet file with fields of several kinds, names beyond ASCII, and nulls."""
    rng = np.random.default_rng(11)
    weights = [None if row % 7 == 3 else float(row) for row in range(ROWS)]
    columns = {
        "weight": pa.array(weights, pa.float32()),
        "größe": [f"İstanbul {row} 日本" for row in range(ROWS)],
        "tokens": [rng.integers(0, 999, rng.integers(0, 90), np.int32) for _ in range(ROWS)],
        "blob": [rng.bytes(int(rng.integers(0, 900))) for _ in range(ROWS)],
        "story": [f"once upon a time, {row} " * 20 for row in range(ROWS)],
        "when": pa.array([row * 10**9 for row in range(ROWS)], pa.timestamp("us", "UTC")),
    }
    pq.write_table(pa.table(columns), path, row_group_size=50)
    return path


class Places:
    """Folders for jobs, and what each of them must find."""

    def __init__(self, folder: Path) -> None:
        """Make the source, and do the job once as everybody does."""
        self.folder = folder
        self.source = make_source(folder / "rows.parquet")
        shim = build_shim(folder)
        self.control = folder / "control"
        self.control.write_bytes(
            (-1).to_bytes(8, "little", signed=True).rjust(16, b"\0") + bytes(4080)
        )
        locked = folder / "locked"
        locked.mkdir(mode=0o555)
        self.names = {"locked": str(locked), "shim": str(shim), "control": str(self.control)}
        self.whole = folder / "whole.slab"
        self.expected = run_job(self.source, self.whole)

    def run(self, environment: Environment, out: Path) -> dict[str, Any]:
        """Run the job; return what it wrote, or how it ended."""
        result = out.with_suffix(".json")
        result.unlink(missing_ok=True)
        variables = {
            name: value.format(**self.names) for name, value in environment.variables.items()
        }
        command = [sys.executable, *environment.python, "-m", "tests.environment_job"]
        with tempfile.TemporaryFile() as errors:
            try:
                process = subprocess.Popen(
                    [*command, self.source, out, result, *environment.arguments],
                    cwd=ROOT,
                    env=os.environ
                    | {"PYTHONPATH": f"{ROOT / '.ns'}:{ROOT}", "FAULT_PREFIX": str(self.folder)}
                    | variables,
                    preexec_fn=environment.prepare,
                    stdin=subprocess.DEVNULL,
                    stdout=errors,
                    stderr=errors,
                )
            except subprocess.SubprocessError:  # of `prepare`
                return {"absent": True}
            try:
                code = process.wait(SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
                return {"died": f"it took longer than {SECONDS} s"}
            if result.exists() and code == 0:
                content: dict[str, Any] = json.loads(result.read_text("ascii"))
                return content
            errors.seek(0)
            said = errors.read().decode(errors="replace")[-1500:]
            return {"died": f"exit status {code}: {said}", "code": code, "said": said}

    def try_environment(self, environment: Environment) -> str:
        """Do the job there: "right", "refused", or not. Raises AssertionError."""
        out = self.folder / "place" / "x.slab"
        shutil.rmtree(out.parent, ignore_errors=True)
        out.parent.mkdir()
        if environment.read_only:
            shutil.copytree(self.whole, out)
            for path in [*out.rglob("*"), out]:
                path.chmod(0o555 if path.is_dir() else 0o444)
        content = self.run(environment, out)
        if "absent" in content:
            return "cannot be made here"
        if "digests" in content:
            assert content["digests"] == self.expected, "other batches"
            left = {path.name for path in out.parent.iterdir()} - {"x.slab", "x.json"}
            assert not left, f"left behind: {left}"
            return "right"
        if "died" in content:  # Python itself may not start, or a library gives up
            early = environment.may_fail and content.get("code", -1) > 0
            assert early, content["died"]
            return "refused"
        fair = {"FieldslabError", *environment.may_fail}
        assert fair & {*content["kinds"]}, content["traceback"]
        return "refused"


def combine(first: Environment, second: Environment) -> Environment:
    """Make a process that is odd in both ways."""

    def prepare() -> None:
        for one in (first.prepare, second.prepare):
            if one is not None:
                one()

    return Environment(
        (*first.python, *second.python),
        first.variables | second.variables,
        prepare,
        (*first.arguments, *second.arguments),
        (*first.may_fail, *second.may_fail),
        first.read_only or second.read_only,
    )


def choose(number: int, rng: random.Random) -> tuple[str, Environment]:
    """Choose the environment of a case: each in turn at first, then two or three together."""
    names = list(ENVIRONMENTS)
    if number < len(names):
        return names[number], ENVIRONMENTS[names[number]]
    chosen = rng.sample(
        [name for name in names if "streams closed" not in name], rng.choice((2, 3))
    )
    environment = ENVIRONMENTS[chosen[0]]
    for name in chosen[1:]:
        environment = combine(environment, ENVIRONMENTS[name])
    return " and ".join(chosen), environment


def main(arguments: Any = None) -> int:
    """Run the campaign; the exit status tells whether anything was found."""
    parsed = make_parser(__doc__).parse_args(arguments)
    campaign = Campaign("environments", GOAL, parsed)
    with tempfile.TemporaryDirectory(prefix="fieldslab-environments-") as folder:
        places = Places(Path(folder).resolve())

        def try_case(number: int, rng: random.Random) -> Mapping[str, int]:
            name, environment = choose(number, rng)
            try:
                outcome = places.try_environment(environment)
            except AssertionError as error:
                raise AssertionError(f"{name}: {error}") from None
            kind = name if number < len(ENVIRONMENTS) else "combined"
            return {f"{kind}: {outcome}": 1}

        try:
            return campaign.run(try_case)
        finally:
            for root in ("memory", ""):
                with suppress(OSError):
                    Path("/sys/fs/cgroup", root, CGROUP).rmdir()


if __name__ == "__main__":
    sys.exit(main())
