"""Photographs are indexed in threads, and what is written does not depend on them."""

from contextlib import closing
from pathlib import Path

import pytest

from fieldslab.packer.options import parse_options
from fieldslab.packer.plan import Plan, make_plan
from fieldslab.packer.source import find_source
from fieldslab.packer.write import indexing
from fieldslab.packer.write.prepare import prepare_shared_data
from fieldslab.packer.write.stream import RowStream, ignore_progress
from fieldslab.packer.write.writers import ShardRecord

PHOTOS = Path(__file__).parents[3] / "examples" / "photos.parquet"


def written(plan: Plan, folder: Path, threads: int) -> ShardRecord:
    """Write the only shard with so many threads."""
    folder.mkdir()
    with closing(RowStream(plan, prepare_shared_data(plan), plan.tasks[0], threads)) as stream:
        return stream.write_shard(0, folder, ignore_progress)


def test_a_shard_does_not_depend_on_threads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One thread or several, large pieces or single rows: the same bytes and counts."""
    plan = make_plan(find_source(PHOTOS), parse_options(nulls="weight=mask"))
    records = []
    for threads, piece_bytes in ((1, 1), (2, 100_000), (5, 1)):
        monkeypatch.setattr(indexing, "PIECE_BYTES", piece_bytes)
        records.append(written(plan, tmp_path / str(threads), threads))
    assert records[0].points[0] > 0
    for record in records[1:]:
        assert record.root == records[0].root
        assert record.points == records[0].points
        assert record.tallies == records[0].tallies
