"""Put links into the sdist as links: called by hatchling, which would copy what is behind them."""

import gzip
import tarfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

LINKS = Path(".ns", "fieldslab")


class SdistLinks(BuildHookInterface):  # type: ignore[type-arg]
    """Adds the links of `.ns`, without which a checkout has no `fieldslab` to import."""

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        """Write the archive once more, with the links behind everything else."""
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
