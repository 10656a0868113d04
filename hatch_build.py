"""What hatchling does not do by itself: links in the sdist, machine code in the wheel."""

import gzip
import os
import platform
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

LINKS = Path(".ns", "fieldslab")
MACHINES = {
    "linux-x86_64": (
        "manylinux_2_17_x86_64",
        "x86_64-unknown-linux-gnu",
        {"linux-x86-64-v3": "x86-64-v3", "linux-x86-64-v4": "x86-64-v4"},
    ),
    "linux-aarch64": (
        "manylinux_2_17_aarch64",
        "aarch64-unknown-linux-gnu",
        {"linux-aarch64": "generic"},
    ),
    "darwin-arm64": ("macosx_11_0_arm64", "arm64-apple-darwin", {"darwin-arm64": "apple-m1"}),
}
"""Tag of the wheel, LLVM's triple, and by level (see `schemas.kernelcache`) the least processor."""


class Additions(BuildHookInterface):  # type: ignore[type-arg]
    """Links of `.ns`, without which a checkout has no `fieldslab`; kernels, compiled ahead.

    A wheel gets machine code if FIELDSLAB_MACHINE_CODE is set: to one of MACHINES, whatever this
    machine is, or to 1, which means this machine.
    """

    def dependencies(self) -> list[str]:
        """Compiling imports the package, and so what it needs."""
        return list(self.metadata.core.dependencies) if self._machine else []

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Compile every kernel for each level of processors at once, and add the files."""
        if not self._machine or version == "editable":
            return
        if self._machine not in MACHINES:
            known = ", ".join(MACHINES)
            raise SystemExit(f"FIELDSLAB_MACHINE_CODE is not 1 or one of {known}: {self._machine}")
        tag, triple, levels = MACHINES[self._machine]
        self._folder = tempfile.TemporaryDirectory()
        compiling = []
        for level, processor in levels.items():
            folder = os.path.join(self._folder.name, level)
            command = [sys.executable, "-P", "-m", "fieldslab.schemas.warming", folder]
            chosen = {"FIELDSLAB_TARGET": f"{processor} {triple}"}
            chosen["PYTHONPATH"] = str(Path(self.root, ".ns"))
            compiling.append(subprocess.Popen(command, env=os.environ | chosen))
        statuses = [process.wait() for process in compiling]
        if any(statuses):
            raise SystemExit("kernels could not be compiled")
        build_data["force_include"][self._folder.name] = "fieldslab/schemas/machine"
        # Any Python 3 loads the code, and it calls nothing that a new C library brought.
        build_data |= {"pure_python": False, "tag": f"py3-none-{tag}"}

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        """Write the archive once more, with the links behind everything else."""
        if self.target_name == "sdist":
            self._add_links(artifact_path)
        elif self._machine and version != "editable":
            self._folder.cleanup()

    @property
    def _machine(self) -> str:
        """What a wheel gets code for; empty for none."""
        chosen = os.environ.get("FIELDSLAB_MACHINE_CODE", "")
        if self.target_name != "wheel":
            return ""
        return f"{sys.platform}-{platform.machine()}" if chosen == "1" else chosen

    def _add_links(self, artifact_path: str) -> None:
        archive = Path(artifact_path)
        with tarfile.open(archive) as old:
            entries = [(entry, old.extractfile(entry)) for entry in old.getmembers()]
            first = entries[0][0]
            top = first.name.partition("/")[0]
            # As hatchling writes it: without the time of day, so that builds can be repeated.
            new = archive.with_suffix(".new")
            with (
                gzip.GzipFile(new, "wb", mtime=first.mtime) as packed,
                tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as out,
            ):
                for entry, data in entries:
                    out.addfile(entry, data)
                links = [path for path in (Path(self.root) / LINKS).iterdir() if path.is_symlink()]
                for link in sorted(links):  # Python may have left its __pycache__ beside them
                    entry = tarfile.TarInfo(f"{top}/{(LINKS / link.name).as_posix()}")
                    entry.type, entry.linkname = tarfile.SYMTYPE, link.readlink().as_posix()
                    entry.mtime = first.mtime
                    out.addfile(entry)
        new.replace(archive)
