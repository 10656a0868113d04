"""One pass of parts over a plan: each packs its shards, and all shards together make a slab."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from fieldslab.packer.pack_options import Progress
from fieldslab.packer.parts.part_folder import PartFolder
from fieldslab.packer.parts.part_number import PartNumber
from fieldslab.packer.parts.shared_results import (
    cut_together,
    list_uncounted_texts,
    prepare_together,
)
from fieldslab.packer.plan import Plan
from fieldslab.packer.sources.sequence_source import SequenceSource
from fieldslab.packer.write.engines.engine import Engine, Task, find_engine
from fieldslab.packer.write.engines.here import InProcessEngine
from fieldslab.packer.write.finish import finish_slab
from fieldslab.packer.write.space import estimate_shard_bytes
from fieldslab.packer.write.stream import ShardWork, write_shards
from fieldslab.packer.write.writers import FinishedShard, ShardRecord
from fieldslab.schemas.errors import PartsMissing
from fieldslab.schemas.manifest import Manifest
from fieldslab.schemas.notices import warn
from fieldslab.schemas.optiontext import mark_option

_MOST_NAMED = 20

_Task = TypeVar("_Task", bound=Task)


@dataclass
class PartRun:
    """One run of a part.

    Attributes
    ----------
    part
        Which part of how many.
    jobs, engine, progress
        As of `pack`.
    records, reused
        The shards that it wrote in a pass, and the number of those that were finished before.
    """

    part: PartNumber
    jobs: int | None
    engine: str | None
    progress: Progress
    records: list[ShardRecord]
    reused: int = 0

    def choose_tasks(
        self, tasks: Sequence[_Task], finished: Mapping[int, FinishedShard]
    ) -> list[_Task]:
        """Choose the tasks of this part that are not finished; begins a pass."""
        self.records.clear()
        own_tasks = [task for task in tasks if self.part.has_shard(task.number)]
        chosen = [task for task in own_tasks if task.number not in finished]
        self.reused = len(own_tasks) - len(chosen)
        for task in own_tasks:
            if task.number in finished:
                record = finished[task.number].record
                self.progress(record.rows, record.bytes)
        return chosen

    def find_engine(self, tasks: int) -> Engine:
        """Find the engine that is asked for."""
        return find_engine(self.engine, self.jobs, tasks)


def pack_own_shards(
    plan: Plan, folder: PartFolder, run: PartRun, kind: type[ShardWork] = ShardWork
) -> None:
    """Write the unfinished shards of a part, by a `kind` of work."""
    finished = folder.find_finished()
    if isinstance(plan.source, SequenceSource):
        texts = [task for task in plan.source.tasks if run.part.has_shard(task.number)]
        plan = cut_together(plan, folder, texts, run.find_engine(len(plan.source.tasks)))
    tasks = run.choose_tasks(plan.tasks, finished)
    if not tasks:
        return
    engine = run.find_engine(len(tasks))
    if (warning := folder.prepare(estimate_shard_bytes(plan), engine)) is not None:
        warn(warning)
    own_tasks = [task for task in plan.tasks if run.part.has_shard(task.number)]
    prepared = prepare_together(plan, folder, own_tasks, engine)

    def accept(record: ShardRecord) -> None:
        folder.accept_shard(record, run.part.parts)
        run.records.append(record)

    work = kind(plan, prepared, folder.attempts, engine.jobs)
    write_shards(work, tasks, accept, engine, run.progress)


def publish_shards(
    plan: Plan,
    path: Path,
    folder: PartFolder,
    of_pass: str = "",
    complete: Callable[[Manifest], Manifest] = lambda manifest: manifest,
) -> tuple[Manifest, list[ShardRecord]]:
    """Publish a slab whose shards are all packed: its manifest, and the records of the shards.

    Parameters
    ----------
    path
        The plan file, for messages.
    of_pass
        Which pass it is, for messages.
    complete
        What is done to the manifest.

    Raises
    ------
    PartsMissing
        Some shards are not finished; nothing is changed.
    """
    finished = folder.find_finished()
    if isinstance(plan.source, SequenceSource):
        if uncounted := list_uncounted_texts(plan, folder):
            raise PartsMissing(
                f"the tokens of {len(uncounted)} of {len(plan.source.tasks)} groups of texts are "
                "not counted yet",
                file=folder.out,
                hint=_make_all_parts_hint(path),
            )
        plan = cut_together(plan, folder, (), InProcessEngine(1))
    check_complete(folder, path, finished, len(plan.tasks), of_pass)
    records = [finished[index].record for index in sorted(finished)]
    with folder:
        prepared = prepare_together(plan, folder, (), InProcessEngine(1))
        manifest = complete(finish_slab(plan, records, prepared, folder))
        folder.publish(manifest)
    return manifest, records


def check_complete(
    folder: PartFolder,
    path: Path,
    finished: Mapping[int, FinishedShard],
    shards: int,
    of_pass: str = "",
) -> None:
    """Raise PartsMissing where shards are missing.

    It names the parts, as far as all were of one number.
    """
    missing = [index for index in range(shards) if index not in finished]
    if not missing:
        return
    counts = {shard.parts for shard in finished.values()}
    problem = f"{len(missing)} of {shards} shards{of_pass} are not packed yet"
    if len(counts) != 1:
        shards_text, hint = _name_some("shard", missing), _make_all_parts_hint(path)
        raise PartsMissing(problem, file=folder.out, found=f"without {shards_text}", hint=hint)
    count = counts.pop()
    parts = sorted({index % count + 1 for index in missing})
    command = f"{mark_option('plan', str(path))}, {mark_option('part', f'{parts[0]}/{count}')}"
    hint = f"Pack these parts: {command}{', and so on' if len(parts) > 1 else ''}."
    missing_parts = _name_some("part", [f"{number}/{count}" for number in parts])
    raise PartsMissing(problem, file=folder.out, found=f"without {missing_parts}", hint=hint)


def _make_all_parts_hint(path: Path) -> str:
    return f"Pack all parts: {mark_option('plan', str(path))}, {mark_option('part', 'K/N')}."


def _name_some(noun: str, items: list[int] | list[str]) -> str:
    more = f" and {len(items) - _MOST_NAMED} more" if len(items) > _MOST_NAMED else ""
    plural = "s" if len(items) > 1 else ""
    return f"{noun}{plural} {', '.join(map(str, items[:_MOST_NAMED]))}{more}"
