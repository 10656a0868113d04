"""`pack --shuffle`: a pack as the rows come, then a shuffle of the slab."""

import shutil
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from msgspec.structs import replace as replace_struct

from fieldslab.packer.convert.damaged_rows import LeftOutRow
from fieldslab.packer.definition import fill_defaults
from fieldslab.packer.pack_options import Progress
from fieldslab.packer.plan import Plan
from fieldslab.packer.rewrite.options import RepackOptions
from fieldslab.packer.rewrite.plan import make_repack_plan
from fieldslab.packer.rewrite.repack import repack_plan
from fieldslab.packer.write.result import PackResult
from fieldslab.schemas.errors import NotASlab
from fieldslab.schemas.folder import load_manifest
from fieldslab.schemas.write_errors import name_write_errors


def get_unshuffled_path(out: Path) -> Path:
    """Return where the rows are packed before they are shuffled: beside the slab."""
    return out.with_name(out.name + ".unshuffled")


def pack_shuffled(
    plan: Plan,
    out: Path,
    pack_unshuffled: Callable[[Plan, Path], PackResult],
    force: bool,
    jobs: int,
    progress: Progress,
) -> PackResult:
    """Pack a plan by `pack_unshuffled`, shuffle the slab, and remove it.

    An interrupted run goes on where it stopped. Raises what `pack` raises.
    """
    unshuffled = get_unshuffled_path(out)
    ordered = replace(plan, options=replace_struct(plan.options, shuffle=None))
    left_out: tuple[LeftOutRow, ...] = ()
    if not _is_packed(ordered, unshuffled):
        left_out = pack_unshuffled(ordered, unshuffled).left_out
    values: RepackOptions = fill_defaults(
        RepackOptions, {"shuffle": plan.options.shuffle}, "repack"
    )
    manifest = load_manifest(unshuffled)
    options = plan.recorded_options | {"from": plan.source.name}
    repacking = replace(
        make_repack_plan(unshuffled, manifest, values),
        provenance=replace_struct(manifest.made, options=options),
    )
    result = repack_plan(repacking, out, force, jobs, progress)
    with name_write_errors(unshuffled):
        shutil.rmtree(unshuffled)
    return replace(result, left_out=left_out)


def _is_packed(plan: Plan, path: Path) -> bool:
    """Whether an earlier run packed this plan; a stream is always packed again."""
    if not plan.source.rereadable or plan.rows is None:
        return False
    with suppress(NotASlab):
        return load_manifest(path).made.plan == plan.compute_fingerprint()
    return False
