"""`--shuffle` by parts, in two passes.

In the first pass parts pack the rows as they come, each shard sorted by the shuffle keys of its
rows; see `fieldslab.packer.rewrite.scattering`. Whoever finds all of these shards finished makes
a slab of them, below the folder that the parts share. In the second pass parts write the shards of
the shuffled slab, each from a run of every shard of the first pass. `finish` removes that slab.

Memory holds a shard for each job, in either pass.
"""

from pathlib import Path

from msgspec.structs import replace

from fieldslab.packer.parts.one_pass import (
    PartRun,
    check_complete,
    pack_own_shards,
    publish_shards,
)
from fieldslab.packer.parts.part_folder import PartFolder
from fieldslab.packer.plan import Plan
from fieldslab.packer.rewrite.repack import make_repacked_manifest, write_repacked_shards
from fieldslab.packer.rewrite.scattering import ScatterWork, add_key_field, plan_second_pass
from fieldslab.packer.write.writers import ShardRecord
from fieldslab.schemas.errors import FieldslabError, PartsMissing
from fieldslab.schemas.manifest import Manifest

PASSES = 2


def pack_shuffled_part(plan: Plan, path: Path, folder: PartFolder, run: PartRun) -> int:
    """Write the unfinished shards of a part, of one pass or of both: the pass it came to.

    Raises PartsMissing where the part has done its share of the first pass before, and others have
    not.
    """
    first_folder = folder.open_first_pass()
    manifest = first_folder.load_published()
    if manifest is None:
        with first_folder:
            pack_own_shards(plan, first_folder, run, ScatterWork)
        try:
            manifest = _publish_first_pass(plan, path, first_folder)
        except PartsMissing:
            if run.reused and not run.records:
                raise
            return 1
    _, reading = plan_second_pass(first_folder.out, manifest, plan)
    own_tasks = reading.make_tasks(run.part.has_shard)
    tasks = run.choose_tasks(own_tasks, folder.find_finished())

    def accept(record: ShardRecord) -> None:
        folder.accept_shard(record, run.part.parts)
        run.records.append(record)

    if tasks:
        engine = run.find_engine(len(tasks))
        write_repacked_shards(reading, tasks, folder.attempts, accept, engine, run.progress)
    return 2


def publish_shuffled_shards(
    plan: Plan, path: Path, folder: PartFolder
) -> tuple[Manifest, list[ShardRecord]]:
    """Publish the shuffled slab: its manifest, and the records of the shards of the first pass.

    Raises PartsMissing.
    """
    first_folder = folder.open_first_pass()
    first_pass = first_folder.load_published() or _publish_first_pass(plan, path, first_folder)
    slab_plan, reading = plan_second_pass(first_folder.out, first_pass, plan)
    finished = folder.find_finished()
    check_complete(folder, path, finished, reading.count_shuffled_shards(), " of the second pass")
    records = {index: shard.record for index, shard in finished.items()}
    with folder:
        manifest = make_repacked_manifest(slab_plan, reading, records, folder)
        provenance = replace(manifest.made, plan=plan.compute_fingerprint())
        manifest = replace(manifest, made=provenance)
        folder.publish(manifest)
    return manifest, [shard.record for shard in first_folder.read_records().values()]


def _publish_first_pass(plan: Plan, path: Path, folder: PartFolder) -> Manifest:
    """Make a slab of the shards of the first pass. Raises PartsMissing."""

    def complete(manifest: Manifest) -> Manifest:
        return manifest if plan.options.leave_out else add_key_field(manifest)

    try:
        return publish_shards(plan, path, folder, " of the first pass", complete)[0]
    except FieldslabError:
        published = folder.load_published()  # another part may have been quicker
        if published is None:
            raise
        return published
