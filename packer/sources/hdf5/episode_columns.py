"""The columns that are added to those of episodes: number, step, name, and attributes."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from fieldslab.packer.source import ColumnHint
from fieldslab.packer.sources.hdf5.attributes import make_json_ready
from fieldslab.packer.sources.hdf5.windows import Piece
from fieldslab.packer.sources.nested_arrays import nest_lists
from fieldslab.schemas.errors import SourceInconsistent, SourceUnsupported
from fieldslab.schemas.optiontext import mark_option

_MOST_NAMED = 10


class EpisodeColumn:
    """A column that has one value for all rows of an episode.

    Attributes
    ----------
    name, type, hint
        What it is for those who plan fields.
    """

    def __init__(self, name: str, values: pa.Array, why: str) -> None:
        """Take a value for each episode."""
        self.name, self._values = name, values
        self.type, self.hint = values.type, ColumnHint(why=why)

    @property
    def row_bytes(self) -> float:
        """Bytes of a row, roughly."""
        if pa.types.is_dictionary(self.type):
            return 4
        return self._values.nbytes / max(len(self._values), 1)

    def make_array(self, pieces: Sequence[Piece]) -> pa.Array:
        """Make the column for pieces of episodes that follow each other."""
        counts = [piece.stop - piece.start for piece in pieces]
        episodes = np.array([piece.part for piece in pieces], np.int64)
        return self._values.take(pa.array(np.repeat(episodes, counts)))


class StepColumn(EpisodeColumn):
    """The number of each row within its episode."""

    def __init__(self, name: str) -> None:
        """Give it a name."""
        super().__init__(name, pa.array([0], pa.int64()), "number of the row in its episode")

    def make_array(self, pieces: Sequence[Piece]) -> pa.Array:
        """Make the column for pieces of episodes that follow each other."""
        steps = [np.arange(piece.start, piece.stop, dtype=np.int64) for piece in pieces]
        return pa.array(np.concatenate(steps))


def make_episode_columns(
    names: Sequence[str], attributes: Sequence[Mapping[str, Any]], chosen: Iterable[str]
) -> list[EpisodeColumn]:
    """Make the columns that are added: number, step, name, and the chosen attributes.

    Raises SourceInconsistent, SourceUnsupported for attributes that some episodes lack, or that
    cannot be a column.
    """
    numbers = pa.array(np.arange(len(names), dtype=np.int64))
    columns = [
        EpisodeColumn("episode", numbers, "number of the episode"),
        StepColumn("step"),
        EpisodeColumn("episode_name", _encode_texts(names), "name of the episode"),
    ]
    for name in chosen:
        values = _make_attribute_values(name, names, attributes)
        columns.append(EpisodeColumn(name, values, "attribute of the episode"))
    return columns


def _encode_texts(texts: Sequence[str]) -> pa.Array:
    return pa.array(texts, pa.large_string()).dictionary_encode()


def _make_attribute_values(
    name: str, names: Sequence[str], attributes: Sequence[Mapping[str, Any]]
) -> pa.Array:
    """Make the values of an attribute, one for each episode: text as categories, or numbers."""
    option = mark_option("episode_attrs")
    lacking = [episode for episode, each in zip(names, attributes, strict=True) if name not in each]
    if lacking:
        all_names = sorted({key for each in attributes for key in each})
        raise SourceInconsistent(
            f"{option}: {len(lacking):,} of {len(names):,} episodes have no such attribute",
            field=name,
            found=_shorten(lacking),
            hint="An attribute can be a column where every episode has it. The attributes are: "
            f"{', '.join(all_names) or 'none'}.",
        )
    values = [each[name] for each in attributes]
    if all(isinstance(value, str | bytes) for value in values):
        texts = [make_json_ready(value) for value in values]
        if all(isinstance(text, str) for text in texts):
            return _encode_texts(texts)
    arrays = [np.asarray(value) for value in values]
    kinds = {(array.dtype.newbyteorder("<"), array.shape) for array in arrays}
    first, *others = sorted(kinds, key=str)
    if others:
        raise SourceInconsistent(
            f"{option}: the attribute differs in type from episode to episode",
            field=name,
            expected=f"{first[0]}{list(first[1])}",
            found=f"{others[0][0]}{list(others[0][1])}",
        )
    dtype, shape = first
    if dtype.kind not in "biuf" or dtype.itemsize > 8:
        raise SourceUnsupported(
            f"{option}: only numbers and text can be columns", field=name, found=str(dtype)
        )
    flat = np.stack(arrays).astype(dtype).reshape(-1)
    kind: pa.DataType = pa.from_numpy_dtype(dtype)
    for length in reversed(shape):
        kind = pa.list_(kind, length)
    return nest_lists(pa.array(flat), kind, len(values))


def _shorten(names: Sequence[str]) -> str:
    return ", ".join(names[:_MOST_NAMED]) + (", ..." if len(names) > _MOST_NAMED else "")
