"""The layers of the design: who may import whom, and what stays optional."""

import ast
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
FOLDERS = ("packer", "reader", "schemas", "bench")
FORBIDDEN = {
    "schemas": {"packer", "reader", "bench"},
    "packer": {"reader", "bench"},
    "reader": {"packer", "bench"},
    "bench": set[str](),
}
# Files and folders of the reader, the lowest first: each imports only from those in front of it.
ROOMS = (
    ("processor_cache", "forks", "interpreters", "kernels", "png_thumbnails", "rows"),
    ("rowfiles",),
    ("views",),
    ("member_rows",),
    ("buffers", "image_values", "notebook"),
    ("conversion", "padding"),
    ("var_len",),
    ("batch",),
    ("stored",),
    ("copying",),
    ("gather",),
    ("addresses", "pieces", "quarantine", "window_columns"),
    ("plain",),
    ("slab_storage",),
    ("absent",),
    ("draws",),
    ("runs", "splitting"),
    ("transforms",),
    ("pixels",),
    ("decoders",),
    ("images",),
    ("column", "reading", "row_samples"),
    ("elements", "windows"),
    ("selecting",),
    ("arrow", "windowed"),
    ("slab",),
    ("open_slab",),
    ("orders",),
    ("tensor_batch",),
    ("loading",),
    ("probe",),
    ("advisor",),
    ("grain", "lightning", "torch"),
    ("__init__",),
)
# Rooms of the packer that write slabs, the lowest first: none imports from those behind it.
WRITING = ("write", "outputs", "rewrite", "pack_source")
# A heavy library, and the only files of the first three layers that may import it.
HEAVY: dict[str, set[str]] = {
    "torch": {
        "reader/torch.py",
        "reader/loading/sendbuffers.py",
        "reader/loading/sending.py",
        "reader/loading/streams.py",
        "reader/tensor_batch.py",
        "reader/pixels/device.py",
        "reader/pixels/fused.py",
        "reader/transforms/perrow.py",
        "reader/transforms/sparse.py",
    },
    "torchvision": set(),
    "scipy": {"reader/transforms/sparse.py"},
    "triton": {"reader/pixels/fused.py"},
    "litdata": {"packer/sources/litdata/library.py"},
    "lightning": {"reader/lightning.py"},
    "pytorch_lightning": set(),
    "grain": set(),
    "jax": set(),
    "tokenizers": {"packer/convert/tokens.py"},
    "datasets": set(),
    "pandas": {"reader/arrow.py"},
    "polars": {"reader/arrow.py"},
    "matplotlib": set(),
    "PIL": {"packer/convert/pixels.py", "reader/decoders/pillow.py", "reader/png_thumbnails.py"},
    "cv2": set(),
    "obstore": {"schemas/stores/remote.py"},
    "botocore": {"schemas/stores/remote.py"},
    "huggingface_hub": {"schemas/stores/hub.py"},
    "deltalake": {"packer/sources/versioned/delta.py"},
    "pyiceberg": {"packer/sources/versioned/iceberg.py"},
    "lance": {"packer/sources/versioned/lance.py"},
    "zarr": {"packer/sources/zarr/library.py", "packer/sources/zarr/file_store.py"},
    "ray": {"packer/write/engines/ray.py"},
    "cryptography": {"schemas/signatures.py"},
    "nvidia": {"reader/decoders/nvimagecodec.py"},
}


def imported(path: Path) -> Iterator[tuple[int, str]]:
    """Yield line and full dotted name of everything a file imports, at any depth."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"), str(path))):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}:{node.lineno}: relative import"
            yield from ((node.lineno, f"{node.module}.{alias.name}") for alias in node.names)


@cache
def imports_of_modules() -> dict[str, set[str]]:
    """Modules by dotted name, and which others each imports: late, and for types alone, too."""
    paths = {}
    for path in (path for folder in FOLDERS for path in (ROOT / folder).rglob("*.py")):
        parts = path.relative_to(ROOT).with_suffix("").parts
        paths[".".join(parts).removesuffix(".__init__")] = path
    imports: dict[str, set[str]] = {}
    for module, path in paths.items():
        names = (name.removeprefix("fieldslab.") for _, name in imported(path))
        # `from package import name`: of the module of that name, or else of the package itself.
        modules = (name if name in paths else name.rpartition(".")[0] for name in names)
        imports[module] = {name for name in modules if name in paths}
    return imports


def test_modules_import_in_no_circle() -> None:
    """No module imports itself by way of others, be it in a function or for types alone."""
    imports = imports_of_modules()
    assert len(imports) > 200
    assert list(TopologicalSorter(imports).static_order())  # raises CycleError, which shows it


def test_reader_imports_downwards_only() -> None:
    """A room of the reader imports from rooms below it, and each has its place among them."""

    def room(module: str) -> str:
        return module.split(".")[1] if "." in module else "__init__"

    floors = {name: floor for floor, names in enumerate(ROOMS) for name in names}
    imports = {
        module: {name for name in names if name.startswith("reader")}
        for module, names in imports_of_modules().items()
        if module.startswith("reader")
    }
    assert {room(module) for module in imports} == set(floors)
    for module, names in imports.items():
        for other in map(room, names):
            place = floors[room(module)]
            assert other == room(module) or floors[other] < place, f"{module}: reader/{other}"


def test_writing_imports_downwards_only() -> None:
    """Shards are written below the outputs they go to, and both below what packs and repacks."""
    imports = imports_of_modules()
    for floor, room in enumerate(WRITING):
        modules = [name for name in imports if name.startswith(f"packer.{room}")]
        assert modules, room
        for module in modules:
            rooms = {name.split(".")[1] for name in imports[module] if name.startswith("packer.")}
            assert not rooms.intersection(WRITING[floor + 1 :]), module


@pytest.mark.parametrize("folder", FOLDERS)
def test_layers_import_downwards_only(folder: str) -> None:
    """A file imports only from layers below its own, and never by a bare folder name."""
    files = sorted((ROOT / folder).rglob("*.py"))
    assert files, f"{folder}/ holds no Python file"
    for path in files:
        for line, name in imported(path):
            where = f"{path.relative_to(ROOT)}:{line}: import of {name}"
            top, _, rest = name.partition(".")
            assert top not in FOLDERS, f"{where}: write fieldslab.{name}"
            if top == "fieldslab":
                assert rest.split(".")[0] not in FORBIDDEN[folder], where


@pytest.mark.parametrize("folder", ["packer", "reader", "schemas"])
def test_heavy_libraries_stay_in_their_file(folder: str) -> None:
    """An optional library is imported in the files meant for it and nowhere else."""
    for path in sorted((ROOT / folder).rglob("*.py")):
        relative = path.relative_to(ROOT).as_posix()
        for line, name in imported(path):
            allowed = HEAVY.get(name.partition(".")[0], {relative})
            assert relative in allowed, f"{relative}:{line}: import of {name}"


def test_reader_imports_nothing_heavy() -> None:
    """Importing the reader loads no packing library and no optional one."""
    unwanted = {"pyarrow", "h5py", "click", "rich", *HEAVY}
    code = "import sys, fieldslab.reader; print(*sys.modules)"
    # -P: the checkout itself is not importable, only .ns and what is installed.
    done = subprocess.run(
        [sys.executable, "-P", "-c", code],
        env={"PYTHONPATH": str(ROOT / ".ns")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert unwanted.intersection(done.stdout.split()) == set()
