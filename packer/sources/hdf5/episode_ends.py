"""Episodes of one table: they end where columns such as `terminals` and `timeouts` are true."""

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from fieldslab.packer.sources.hdf5.dataset_storage import check_filters
from fieldslab.packer.sources.hdf5.episode_columns import EpisodeColumn, make_episode_columns
from fieldslab.packer.sources.hdf5.episodes import EpisodeRules
from fieldslab.packer.sources.hdf5.parts import Part, name_parts
from fieldslab.packer.sources.hdf5.read import DatasetColumns, OpenFiles, read_columns
from fieldslab.packer.sources.hdf5.windows import Piece
from fieldslab.schemas.errors import UsageError
from fieldslab.schemas.optiontext import mark_option

_ROWS_AT_ONCE = 1 << 22


class RunColumn(EpisodeColumn):
    """The number of the episode of each row, or that of the row in its episode."""

    def __init__(self, name: str, why: str, starts: Sequence[np.ndarray]) -> None:
        """Take the rows at which episodes start, for each part: int64[episodes], the first 0."""
        super().__init__(name, pa.array([0], pa.int64()), why)
        self._starts = starts
        counts = [len(each) for each in starts]
        self._firsts = np.cumsum(counts) - counts

    def make_array(self, pieces: Sequence[Piece]) -> pa.Array:
        """Make the column for pieces of parts that follow each other."""
        return pa.array(np.concatenate([self._number_rows(piece) for piece in pieces]))

    def count_rows(self, part_rows: Sequence[int]) -> list[int]:
        """Count the rows of each episode, where parts have so many."""
        lengths: list[int] = []
        for starts, rows in zip(self._starts, part_rows, strict=True):
            lengths += np.diff(starts[starts < rows], append=rows).tolist()
        return lengths

    def _number_rows(self, piece: Piece) -> np.ndarray:
        starts, rows = self._starts[piece.part], np.arange(piece.start, piece.stop, dtype=np.int64)
        episodes = np.searchsorted(starts, rows, side="right") - 1
        if self.name == "step":
            return rows - starts[episodes]
        return episodes + self._firsts[piece.part]


def make_added_columns(parts: Sequence[Part], rules: EpisodeRules) -> list[EpisodeColumn]:
    """Make the columns that tell of episodes. Raises SourceError, UsageError."""
    if not rules.ends:
        attributes = [part.attributes for part in parts]
        return make_episode_columns(name_parts(parts, rules), attributes, rules.attributes)
    starts = [_find_starts(part, rules.ends) for part in parts]
    return [
        RunColumn("episode", "number of the episode", starts),
        RunColumn("step", "number of the row in its episode", starts),
    ]


def count_episode_rows(added: Sequence[EpisodeColumn], part_rows: Sequence[int]) -> list[int]:
    """Count the rows of each episode, without empty ones."""
    first = added[0]
    lengths = first.count_rows(part_rows) if isinstance(first, RunColumn) else part_rows
    return [length for length in lengths if length]


def _find_starts(part: Part, names: Sequence[str]) -> np.ndarray:
    """Find the rows at which episodes start: the first one, and each behind an end."""
    starts = [np.zeros(1, np.int64)]
    opened = OpenFiles(part.path)
    for name in names:
        dataset, column = part.columns.get((name, ()), (None, None))
        if (
            dataset is None
            or column is None
            or dataset.encoding
            or _count_items(dataset.shape) != 1
        ):
            raise UsageError(
                f"{mark_option('episodes')}: no dataset with a number for each row",
                file=part.path,
                field=name,
            )
        check_filters(opened.get_dataset(dataset), dataset)
        for start in range(0, dataset.rows or 0, _ROWS_AT_ONCE):
            stop = min(start + _ROWS_AT_ONCE, dataset.rows or 0)
            (values,) = read_columns(opened, DatasetColumns(dataset, (column,)), start, stop)
            while pa.types.is_fixed_size_list(values.type):
                values = values.flatten()
            if column.element.form not in ("number", "flag"):
                raise UsageError(
                    f"{mark_option('episodes')}: ends of episodes are numbers that are not 0",
                    file=part.path,
                    field=name,
                    found=column.element.why,
                )
            following = np.flatnonzero(values.to_numpy(zero_copy_only=False)) + start + 1
            starts.append(following[following < (dataset.rows or 0)])
    opened.close()
    return np.unique(np.concatenate(starts)).astype(np.int64)


def _count_items(shape: tuple[int, ...] | None) -> int:
    """Count the elements of a row; 0 where there are no rows."""
    return int(np.prod(shape[1:])) if shape else 0
