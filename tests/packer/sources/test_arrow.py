"""Arrow in memory as a source: what is taken, what is refused, how batches are cut."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from tests.packer.readback import Readback

from fieldslab.packer import pack
from fieldslab.packer.sources.arrow import ArrowSource
from fieldslab.schemas.errors import (
    FieldslabError,
    SourceInconsistent,
    SourceUnreadable,
    UsageError,
)

TABLE = pa.table({"n": list(range(100)), "t": [f"row {index}" for index in range(100)]})


class Capsule:
    """An object of some other library: it has `__arrow_c_stream__` and nothing else."""

    def __init__(self, table: pa.Table) -> None:
        """Keep the table."""
        self._table = table

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        """The table as a capsule."""
        return self._table.__arrow_c_stream__(requested_schema)


def _ipc_stream() -> Any:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, TABLE.schema) as writer:
        writer.write_table(TABLE, 7)
    return pa.ipc.open_stream(sink.getvalue())


SOURCES = {
    "table": lambda: TABLE,
    "batch": lambda: TABLE.to_batches()[0],
    "capsule": lambda: Capsule(TABLE),
    "reader": TABLE.to_reader,
    "ipc stream": _ipc_stream,
    "list of batches": lambda: TABLE.to_batches(9),
    "tuple of tables": lambda: (TABLE.slice(0, 50), TABLE.slice(50, 0), TABLE.slice(50)),
    "generator": lambda: (batch for batch in TABLE.to_batches(1)),
    "frame": TABLE.to_pandas,
}


@pytest.mark.parametrize("name", SOURCES)
def test_sources(tmp_path: Path, name: str) -> None:
    """Whatever speaks Arrow is a source, and all of them make the same slab."""
    packed = pack(SOURCES[name](), tmp_path / "slab")
    back = Readback(tmp_path / "slab")
    assert back.values("n").tolist() == list(range(100))
    assert back.column("t") == [f"row {index}" for index in range(100)]
    plain = pack(TABLE, tmp_path / "plain")
    if name != "frame":  # pandas has metadata and a string type of its own
        assert packed.manifest.id == plain.manifest.id


def test_frames(tmp_path: Path) -> None:
    """A pandas frame comes with its index, where that has a name, and its categories."""
    frame = pd.DataFrame({"x": [1.5, 2.5]}, index=pd.Index([7, 8], name="key"))
    pack(frame, tmp_path / "slab")
    assert set(Readback(tmp_path / "slab").fields) == {"x", "key"}


def test_empty_streams(tmp_path: Path) -> None:
    """A stream without batches has a schema all the same; an iterator without any has none."""
    empty = pa.RecordBatchReader.from_batches(TABLE.schema, iter([]))
    for source in (empty, TABLE.slice(0, 0), [TABLE.slice(0, 0)]):
        pack(source, tmp_path / "slab", force=True)
        assert Readback(tmp_path / "slab").rows == 0
    with pytest.raises(UsageError, match="needs a schema"):
        pack(iter([]), tmp_path / "other")


def test_an_array_is_no_table(tmp_path: Path) -> None:
    """The error of an array says what makes a table of it."""
    with pytest.raises(UsageError, match=r"pyarrow\.table\(columns\)"):
        pack(np.zeros((2, 3)), tmp_path / "slab")


def broken() -> Iterator[pa.RecordBatch]:
    """Batches, and then an error of pyarrow's."""
    yield TABLE.to_batches()[0]
    raise pa.ArrowInvalid("the other end hung up")


def other_columns() -> Iterator[pa.RecordBatch]:
    """A batch whose columns have another type than the first one's."""
    yield TABLE.to_batches()[0]
    yield pa.table({"n": [1.5], "t": ["x"]}).to_batches()[0]


def other_things() -> Iterator[Any]:
    """A batch, and then something else."""
    yield TABLE.to_batches()[0]
    yield "a string"


def invalid() -> Iterator[pa.RecordBatch]:
    """A batch whose offsets point outside of its text."""
    offsets = pa.array([0, 1, 2_000_000_000], pa.int32()).buffers()[1]
    text = pa.Array.from_buffers(pa.string(), 2, [None, offsets, pa.py_buffer(b"ab")])
    yield pa.RecordBatch.from_arrays([pa.array([1, 2]), text], ["n", "t"])


def bad_index() -> Iterator[pa.RecordBatch]:
    """A dictionary array whose index points behind its dictionary."""
    indices = pa.array([0, 7], pa.int8())
    array = pa.DictionaryArray.from_arrays(indices, pa.array(["a"]), safe=False)
    yield pa.RecordBatch.from_arrays([array], ["c"])


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (broken, SourceUnreadable, "hung up"),
        (other_columns, SourceInconsistent, "n: double"),
        (other_things, SourceInconsistent, "found str"),
        (invalid, SourceUnreadable, "damaged"),
        (bad_index, SourceUnreadable, "damaged"),
    ],
)
def test_broken_streams(
    tmp_path: Path, make: Any, error: type[FieldslabError], message: str
) -> None:
    """A stream that breaks off, changes or is invalid is an error, not a crash."""
    with pytest.raises(error, match=message):
        pack(make(), tmp_path / "slab")
    assert list(tmp_path.iterdir()) == []


def test_exceptions_of_the_caller_are_the_callers(tmp_path: Path) -> None:
    """What the caller's own generator raises comes through as it is."""

    def failing() -> Iterator[pa.RecordBatch]:
        yield TABLE.to_batches()[0]
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        pack(failing(), tmp_path / "slab")
    assert list(tmp_path.iterdir()) == []


HUGE = pa.RunEndEncodedArray.from_arrays(pa.array([10_000_000], pa.int32()), pa.array([7]))
WIDE = pa.ListViewArray.from_arrays(
    pa.array([0] * 5000, pa.int32()), pa.array([1000] * 5000, pa.int32()), pa.array(range(1000))
)
SAME = pa.DictionaryArray.from_arrays(np.zeros(5000, np.int32), [b"x" * 10_000])


@pytest.mark.parametrize("array", [HUGE, WIDE, SAME], ids=["runs", "views", "dictionary"])
def test_batches_stay_small(array: pa.Array) -> None:
    """Layouts that share values are cut by what their rows hold, not by what they take up."""
    source = ArrowSource(pa.table({"a": array}))
    budget = 2**20
    rows = 0
    for batch in source.read(source.units[0], [0], budget):
        row_bytes = {"runs": 8, "views": 8000, "dictionary": 10_000}
        rows += batch.num_rows
        size = row_bytes["runs" if array is HUGE else "views" if array is WIDE else "dictionary"]
        assert batch.num_rows * size <= 2 * budget
    assert rows == len(array)


def test_slices_of_a_large_batch(tmp_path: Path) -> None:
    """Small slices of one large batch are packed as small batches, each with its own values."""
    table = pa.table(
        {"a": pa.array(range(100_000)), "l": pa.array([[index] for index in range(100_000)])}
    )
    (batch,) = table.to_batches()
    pack((batch.slice(index, 10) for index in range(0, 100_000, 10_000)), tmp_path / "slab")
    back = Readback(tmp_path / "slab")
    expected = [index + row for index in range(0, 100_000, 10_000) for row in range(10)]
    assert back.values("a").tolist() == back.values("l").tolist() == expected


def test_limit_and_rows(tmp_path: Path) -> None:
    """`--rows` and `--limit` count over the batches of a stream, which ends early."""
    taken = 0

    def counted() -> Iterator[pa.RecordBatch]:
        nonlocal taken
        for batch in TABLE.to_batches(10):
            taken += 1
            yield batch

    pack(counted(), tmp_path / "slab", rows="15:38")
    assert Readback(tmp_path / "slab").values("n").tolist() == list(range(15, 38))
    assert taken < 10
    pack(TABLE.to_batches(10), tmp_path / "slab", limit=3, force=True)
    assert Readback(tmp_path / "slab").values("n").tolist() == [0, 1, 2]
