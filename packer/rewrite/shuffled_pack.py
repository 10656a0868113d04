"""`pack --shuffle`: a pack as the rows come, then a shuffle of the slab."""

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
from fieldslab.packer.rewrite.plan import RepackPlan, make_repack_plan
from fieldslab.packer.rewrite.repack import find_scattered, repack_plan
from fieldslab.packer.unions.source_slabs import find_slabs
from fieldslab.packer.write.directories import remove_path, try_lock
from fieldslab.packer.write.result import PackResult
from fieldslab.schemas import layout
from fieldslab.schemas.errors import NotASlab
from fieldslab.schemas.folder import get_partial_path, load_manifest
from fieldslab.schemas.write_errors import name_write_errors


def get_unshuffled_path(out: Path) -> Path:
    """Return where the rows are packed before they are shuffled: beside the slab."""
    return out.with_name(out.name + ".unshuffled")


def list_shuffle_folders(out: Path) -> list[Path]:
    """List the folders in which a shuffled slab is built."""
    unshuffled = get_unshuffled_path(out)
    return [unshuffled, get_partial_path(unshuffled), get_partial_path(out)]


def pack_shuffled(
    plan: Plan,
    out: Path,
    pack_unshuffled: Callable[[Plan, Path], PackResult],
    force: bool,
    jobs: int | None,
    progress: Progress,
    engine: str | None,
) -> PackResult:
    """Pack a plan by `pack_unshuffled`, shuffle the slab, and remove it.

    Rows are never there more than twice: shards are removed once their rows are sorted by the
    shards that they go to. An interrupted run goes on where it stopped. Raises what `pack` raises.
    """
    unshuffled = get_unshuffled_path(out)
    ordered = replace(plan, options=replace_struct(plan.options, shuffle=None))
    left_out: tuple[LeftOutRow, ...] = ()
    repacking = _plan_shuffle(plan, unshuffled) if _is_packed(ordered, unshuffled) else None
    if repacking is None or not (_has_shards(repacking) or find_scattered(repacking, out)):
        left_out = pack_unshuffled(ordered, unshuffled).left_out
        repacking = _plan_shuffle(plan, unshuffled)
    result = repack_plan(repacking, out, force, jobs, progress, engine)
    with name_write_errors(unshuffled):
        remove_path(unshuffled)  # where the slab was finished by an earlier run
        left = get_partial_path(unshuffled)
        with try_lock(left) as free:  # nobody packs there, but an earlier run was killed
            if free:
                remove_path(left)
    return replace(result, left_out=left_out)


def _plan_shuffle(plan: Plan, unshuffled: Path) -> RepackPlan:
    values: RepackOptions = fill_defaults(
        RepackOptions, {"shuffle": plan.options.shuffle}, "repack"
    )
    manifest = load_manifest(unshuffled)
    options = plan.recorded_options | {"from": plan.source.name}
    return replace(
        make_repack_plan(find_slabs(unshuffled), manifest, values),
        provenance=replace_struct(manifest.made, options=options),
        consumes_source=True,
    )


def _has_shards(plan: RepackPlan) -> bool:
    """Whether no earlier run began to remove the shards that are read."""
    shards = range(len(plan.source.shards))
    with name_write_errors(plan.path):
        return all((plan.path / layout.name_shard(index)).is_dir() for index in shards)


def _is_packed(plan: Plan, path: Path) -> bool:
    """Whether an earlier run packed this plan; a stream is always packed again."""
    if not plan.source.rereadable or plan.rows is None:
        return False
    with suppress(NotASlab):
        return load_manifest(path).made.plan == plan.compute_fingerprint()
    return False
