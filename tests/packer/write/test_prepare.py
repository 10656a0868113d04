"""What shards share, found task by task."""

from contextlib import closing
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.packer.packing import pack_shards

from fieldslab.packer.options import parse_options
from fieldslab.packer.plan import make_plan
from fieldslab.packer.source import find_source
from fieldslab.packer.write.engines.engine import find_engine
from fieldslab.packer.write.prepare import (
    CategoryWork,
    join_shared_data,
    prepare_shared_data,
)
from fieldslab.packer.write.stream import ignore_progress
from fieldslab.schemas.errors import SourceInconsistent

NAMES = [["b", "a", "b"], ["c", "a", "a"], ["a", "d", "c"], ["b", "b", "e"]]


@pytest.fixture
def categories(tmp_path: Path) -> Path:
    """A Parquet file with a column of categories, each row group with others."""
    path = tmp_path / "names.parquet"
    table = pa.table(
        {"name": pa.array([name for names in NAMES for name in names]).dictionary_encode()}
    )
    pq.write_table(table, path, row_group_size=3)
    return path


def test_categories_do_not_depend_on_the_order_of_results(categories: Path) -> None:
    """Lists of tasks that come in any order are joined in the order of first appearance."""
    plan = make_plan(find_source(categories), parse_options(shard_size=1))
    results = [CategoryWork(plan).write(task) for task in plan.tasks]
    assert len(results) == len(NAMES)
    for order in (results, results[::-1]):
        joined = join_shared_data(plan, order).categories["name"].values
        assert joined.to_pylist() == ["b", "a", "c", "d", "e"]
    alone = prepare_shared_data(plan).categories["name"].values
    assert alone.to_pylist() == ["b", "a", "c", "d", "e"]


def test_categories_are_found_in_processes(categories: Path) -> None:
    """Lists made in two processes are joined as those of one, in whatever order they come."""
    plan = make_plan(find_source(categories), parse_options(shard_size=1))
    engine = find_engine("processes", 2, len(plan.tasks))
    with closing(engine.run(CategoryWork(plan), plan.tasks, ignore_progress)) as results:
        joined = join_shared_data(plan, results).categories["name"].values
    assert joined.to_pylist() == ["b", "a", "c", "d", "e"]


def test_ordered_categories_in_another_order(tmp_path: Path) -> None:
    """Shards that order the same categories in another way are refused."""
    path = tmp_path / "sizes.parquet"
    schema = pa.schema([("size", pa.dictionary(pa.int32(), pa.string(), ordered=True))])
    with pq.ParquetWriter(path, schema) as writer:
        for names in (["small", "large"], ["large", "small"]):
            sizes = pa.DictionaryArray.from_arrays(
                pa.array([0, 1], pa.int32()), names, ordered=True
            )
            writer.write_table(pa.table([sizes], schema=schema))
    with pytest.raises(SourceInconsistent, match="another order"):
        pack_shards(path, tmp_path / "x.slab")
