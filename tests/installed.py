"""A package as pip installs it: modules, metadata and entry points, in a folder of `sys.path`."""

from pathlib import Path


def install(folder: Path, name: str, modules: dict[str, str], entry_points: str) -> Path:
    """Write version 1.0 of a package; `entry_points` is the content of its file of that name."""
    for module, code in modules.items():
        (folder / f"{module}.py").write_text(code)
    info = folder / f"{name}-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(entry_points)
    return folder
