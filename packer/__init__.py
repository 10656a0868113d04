"""Offline: sources in, slab out, and the checks on it.

`pack` and `verify` are loaded when they are first used: `fieldslab --help` need not wait for
pyarrow, nor `fieldslab verify`.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fieldslab.packer.check.findings import Problem, Report
    from fieldslab.packer.check.verify import verify
    from fieldslab.packer.copying.copy_slab import CopyResult, copy_slab
    from fieldslab.packer.pack_source import pack
    from fieldslab.packer.repairing.repair import repair
    from fieldslab.packer.repairing.report import RepairReport
    from fieldslab.packer.rewrite.repack import repack
    from fieldslab.packer.unions.concat import concat
    from fieldslab.packer.unions.union_changes import add_slabs, remove_slabs
    from fieldslab.packer.write.result import PackResult
    from fieldslab.schemas.notices import FieldslabWarning

__all__ = [
    "CopyResult",
    "FieldslabWarning",
    "PackResult",
    "Problem",
    "RepairReport",
    "Report",
    "add_slabs",
    "concat",
    "copy_slab",
    "pack",
    "remove_slabs",
    "repack",
    "repair",
    "verify",
]

_HOMES = {
    "CopyResult": "fieldslab.packer.copying.copy_slab",
    "FieldslabWarning": "fieldslab.schemas.notices",
    "PackResult": "fieldslab.packer.write.result",
    "Problem": "fieldslab.packer.check.findings",
    "RepairReport": "fieldslab.packer.repairing.report",
    "Report": "fieldslab.packer.check.findings",
    "add_slabs": "fieldslab.packer.unions.union_changes",
    "concat": "fieldslab.packer.unions.concat",
    "copy_slab": "fieldslab.packer.copying.copy_slab",
    "pack": "fieldslab.packer.pack_source",
    "remove_slabs": "fieldslab.packer.unions.union_changes",
    "repack": "fieldslab.packer.rewrite.repack",
    "repair": "fieldslab.packer.repairing.repair",
    "verify": "fieldslab.packer.check.verify",
}


def __getattr__(name: str) -> Any:
    if name == "__version__":
        from fieldslab.schemas.version import get_installed_version

        return get_installed_version()
    if name not in _HOMES:
        from fieldslab.schemas.renamed import refuse_renamed_name

        refuse_renamed_name(__name__, name)
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)
