"""Batches and the packed rows in them."""

import copy
import pickle
from typing import Any

import numpy as np
import pytest

from fieldslab.reader import Batch, Binary, Ragged, Slab, Text
from fieldslab.schemas.errors import DamagedArray, RowOutOfRange, UnknownField, UsageError

ROWS = [[3, 4], [], [5, 6, 7, 8], [9]]


@pytest.fixture
def ragged() -> Ragged:
    """Four rows of int32."""
    values = np.concatenate(ROWS).astype(np.int32)
    return Ragged(values, np.cumsum([0, *map(len, ROWS)]), "x")


def packed(kind: Any, rows: list[bytes]) -> Any:
    """Text or binary rows."""
    return kind(np.frombuffer(b"".join(rows), np.uint8), np.cumsum([0, *map(len, rows)]), "x")


def test_ragged_rows(ragged: Ragged) -> None:
    """Length, rows by number from either end, iteration and lists agree."""
    assert len(ragged) == 4
    assert ragged.lengths.tolist() == [2, 0, 4, 1]
    assert ragged[2].tolist() == ragged[-2].tolist() == [5, 6, 7, 8]
    assert [row.tolist() for row in ragged] == ragged.tolist() == ROWS
    assert repr(ragged) == "Ragged(4 rows, int32[*])"
    with pytest.raises(RowOutOfRange):
        ragged[4]
    with pytest.raises(UsageError):
        ragged[1.0]  # type: ignore[call-overload]


@pytest.mark.parametrize("cut", [slice(1, 3), slice(None), slice(3, 1), slice(-1, None)])
def test_a_slice_of_rows_shares_values(ragged: Ragged, cut: slice) -> None:
    """`[a:b]` is of the same class, with offsets from 0 and the same memory."""
    part = ragged[cut]
    assert isinstance(part, Ragged)
    assert part.tolist() == ROWS[cut]
    assert part.offsets[0] == 0
    assert len(part.values) == 0 or np.shares_memory(part.values, ragged.values)
    with pytest.raises(UsageError, match="step"):
        ragged[::2]


def test_padding_to_the_longest(ragged: Ragged) -> None:
    """Without a length, rows are padded to the longest; nothing is lost."""
    padded = ragged.to_padded()
    assert padded.tolist() == [[3, 4, 0, 0], [0, 0, 0, 0], [5, 6, 7, 8], [9, 0, 0, 0]]
    assert padded.dtype == np.int32


@pytest.mark.parametrize("length", [0, 1, 2, 3, 4, 9])
def test_padding_to_a_length(ragged: Ragged, length: int) -> None:
    """Shorter rows are filled, longer ones cut."""
    wanted = [(row + [-1] * length)[:length] for row in ROWS]
    assert ragged.to_padded(length, fill=-1).tolist() == wanted


def test_padding_keeps_trailing_shape() -> None:
    """Elements with a shape of their own are padded along axis 0 alone."""
    values = np.arange(12, dtype=np.float32).reshape(3, 2, 2)
    padded = Ragged(values, np.array([0, 1, 3])).to_padded(2, fill=7)
    assert padded.shape == (2, 2, 2, 2)
    assert np.array_equal(padded[1], values[1:])
    assert (padded[0, 1] == 7).all()


@pytest.mark.parametrize("fill", [1.5, "x", 2**40, None, [1.5]])
def test_padding_keeps_to_the_dtype(ragged: Ragged, fill: Any) -> None:
    """A fill value that the dtype cannot hold is refused, never rounded."""
    with pytest.raises(UsageError, match="is no int32"):
        ragged.to_padded(fill=fill)


def test_padding_of_nothing() -> None:
    """No rows, and rows without elements, can be padded."""
    nothing = Ragged(np.empty(0, "u1"), np.array([0]))
    assert nothing.to_padded().shape == (0, 0)
    assert Ragged(np.empty(0, "u1"), np.array([0, 0])).to_padded(3).tolist() == [[0, 0, 0]]
    with pytest.raises(UsageError):
        nothing.to_padded(-1)


def test_text_and_binary_rows() -> None:
    """Text gives str, binary gives bytes, and both may be empty."""
    text = packed(Text, ["größe".encode(), b"", b"x"])
    assert text.tolist() == ["größe", "", "x"]
    assert text[0] == "größe"
    binary = packed(Binary, [b"\0\xff", b"", b"x"])
    assert list(binary) == [b"\0\xff", b"", b"x"]
    assert binary[-3:1].tolist() == [b"\0\xff"]


def test_text_that_is_not_utf8() -> None:
    """Bytes that are no UTF-8 are DamagedArray with field, row and the byte."""
    text = packed(Text, [b"fine", b"ab\xffc"])
    assert text[0] == "fine"
    with pytest.raises(DamagedArray, match=r"field x, row '1 of the batch'.*byte 0xff at 2"):
        text[1]


def test_a_batch_is_a_mapping(slab: Slab) -> None:
    """A batch has the fields as keys, in order, and names them when asked for another."""
    batch = slab.gather([1, 2])
    assert isinstance(batch, Batch)
    assert list(batch) == list(slab.fields)
    assert len(batch) == len(slab.fields)
    assert "label" in batch
    assert "nothing" not in batch
    assert batch.get("nothing") is None
    with pytest.raises(UnknownField, match="'label'"):
        batch["nothing"]
    assert "2 rows" in repr(batch)
    assert "box: float32[2, 3]" in repr(batch)
    assert batch.nbytes == sum(values.nbytes for values in batch.values())


def test_a_batch_equals_itself_alone(slab: Slab) -> None:
    """Comparing batches never asks arrays for one truth value."""
    batch = slab.gather([1, 2])
    assert batch == batch
    assert batch != slab.gather([1, 2])
    assert batch in {batch}


def test_a_batch_travels_between_processes(slab: Slab) -> None:
    """A batch pickles with everything in it, as loaders with worker processes need."""
    batch = slab.gather([7, 299])
    for other in (pickle.loads(pickle.dumps(batch)), copy.deepcopy(batch)):
        assert other["caption"].tolist() == batch["caption"].tolist()
        assert other["label"].tolist() == [7, 299]
        assert other.rows.tolist() == [7, 299]
        assert other.valid["score"].tolist() == batch.valid["score"].tolist()
