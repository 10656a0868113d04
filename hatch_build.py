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
PROCESSORS = {
    "x86_64": {"x86-64-v3": "x86-64-v3", "x86-64-v4": "x86-64-v4"},
    "arm64": {"arm64": "apple-m1"},
    "aarch64": {"aarch64": "generic"},
}
"""By machine: groups of processors, as `schemas.kernelcache` has them, and the least of each."""


class Additions(BuildHookInterface):  # type: ignore[type-arg]
    """Links of `.ns`, without which a checkout has no `fieldslab`; kernels, compiled ahead.

    A wheel gets machine code if FIELDSLAB_MACHINE_CODE is set: for processors of this kind.
    """

    def dependencies(self) -> list[str]:
        """Compiling imports the package, and so what it needs."""
        return list(self.metadata.core.dependencies) if self._compiles else []

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Compile every kernel for each group of processors, and add the files."""
        if not self._compiles or version == "editable":
            return
        self._folder = tempfile.TemporaryDirectory()
        path = Path(self._folder.name)
        for level, processor in PROCESSORS.get(platform.machine(), {}).items():
            chosen = {"NUMBA_CPU_NAME": processor, "NUMBA_CPU_FEATURES": ""}
            chosen["PYTHONPATH"] = str(Path(self.root, ".ns"))
            name = f"{sys.platform}-{level}"
            command = [sys.executable, "-P", "-m", "fieldslab.schemas.warming", str(path / name)]
            subprocess.run(command, env=os.environ | chosen, check=True)
        build_data["force_include"][str(path)] = "fieldslab/schemas/machine"

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        """Write the archive once more, with the links behind everything else."""
        if self.target_name == "sdist":
            self._add_links(artifact_path)
        elif self._compiles and version != "editable":
            self._folder.cleanup()

    @property
    def _compiles(self) -> bool:
        return self.target_name == "wheel" and "FIELDSLAB_MACHINE_CODE" in os.environ

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
