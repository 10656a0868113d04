"""Checks that the sizes, codes and index points of images match their bytes."""

from collections.abc import Iterator
from functools import partial

import numpy as np

from fieldslab.packer.check.findings import Problem
from fieldslab.packer.check.threads import MapInThreads
from fieldslab.schemas.access import Folder
from fieldslab.schemas.arrays import HEADER
from fieldslab.schemas.fields import Field, Role
from fieldslab.schemas.files import RemoteDescriptor, read_bytes
from fieldslab.schemas.images import CODES, PIXELS

ROWS = 2048
"""Rows that are checked at a time."""

_HEADS = (1024, 64 * 1024, 2**62)
"""Bytes of an image that are read to find its header: mostly the first will do."""


def check_pictures(folder: Folder, field: Field, run: MapInThreads) -> Iterator[Problem]:
    """Check an image field of a shard whose arrays are intact; threads share the rows.

    Pixels must be as many as height and width say; index points as many as the JPEG's header
    says, or none, their bits rising inside the image.
    """
    for problems in run(partial(_check_window, folder, field), range(0, folder.rows, ROWS)):
        yield from problems


def _check_window(folder: Folder, field: Field, start: int) -> list[Problem]:
    return list(_RowWindow(folder, field, start, min(start + ROWS, folder.rows)).find_problems())


class _RowWindow:
    """Some rows of an image field."""

    def __init__(self, folder: Folder, field: Field, start: int, stop: int) -> None:
        self.folder = folder
        self.field = field
        self.start = start
        self.ends = (
            folder.get_required_array(field, "offsets").read(start, stop + 1).astype(np.int64)
        )
        self.lengths = np.diff(self.ends)
        self.sizes = folder.get_required_array(field, "size").read(start, stop).astype(np.int64)
        codes = folder.get_array(field, "codec")
        whole = CODES[field.codec] if field.codec in PIXELS else 0
        self.codes = np.full(stop - start, whole, np.uint8)
        if codes is not None:
            self.codes = codes.read(start, stop)

    def find_problems(self) -> Iterator[Problem]:
        """Yield the first problem of each sort."""
        height, width = self.sizes.T
        of_chroma = ((height + 1) // 2) * ((width + 1) // 2)
        expected = {"rgb": 3 * height * width, "yuv420": height * width + 2 * of_chroma}
        for codec, bytes_ in expected.items():
            wrong = (self.codes == CODES[codec]) & (self.lengths != bytes_)
            yield from self._report_first(
                wrong,
                "size",
                8,
                f"not the number of bytes that its pixels need ({codec})",
                bytes_,
                self.lengths,
            )
        if self.field.index is not None:
            yield from self._check_points(self.field.index)

    def _check_points(self, every: int) -> Iterator[Problem]:
        stop = self.start + len(self.lengths)
        ends = self.folder.get_required_array(self.field, "points.offsets").read(
            self.start, stop + 1
        )
        ends = ends.astype(np.int64)
        counts = np.diff(ends)
        expected = self._count_points(np.flatnonzero(counts), every)
        if expected is None:
            expected = counts
        wrong = (counts > 0) & (counts != expected)
        text = "the number of index points does not match the image's header"
        yield from self._report_first(wrong, "points.offsets", 8, text, expected, counts)

        from fieldslab.packer.check.index_point_counts import find_misplaced_point

        points = self.folder.get_required_array(self.field, "points.values").read(
            *ends[[0, -1]].tolist()
        )
        index = find_misplaced_point(points, counts, self.lengths)
        if index >= 0:
            row = int(np.searchsorted(ends - ends[0], index, side="right")) - 1
            bits = [int(low) | int(high) << 16 for low, high in points[: index + 1, :2][-2:]]
            before = -1 if index == ends[row] - ends[0] else bits[0]
            yield self._make_problem(
                row,
                "points.values",
                HEADER + 10 * (int(ends[0]) + index),
                "an index point lies outside its image, or before the previous point",
                f"{before + 1}..{8 * self.lengths[row] - 1}",
                str(bits[-1]),
            )

    def _count_points(self, rows: np.ndarray, every: int) -> np.ndarray | None:
        """Count the points that the JPEG images at `rows` have if indexed: int64[all rows].

        None for images on another machine: to look at the header of each takes too long.
        """
        from fieldslab.packer.check.index_point_counts import (
            count_points,  # compiled kernels take their time
        )

        expected = np.zeros(len(self.lengths), np.int64)
        values = self.folder.get_required_array(self.field, "values")
        with values.open() as fd:
            if isinstance(fd, RemoteDescriptor):
                return None
            for most in _HEADS:
                starts, sizes = HEADER + self.ends[rows], np.minimum(self.lengths[rows], most)
                counts = np.zeros(len(rows), np.int64)
                while (failed := count_points(fd, starts, sizes, every, counts)) < len(rows):
                    start, size = int(starts[failed]), int(sizes[failed])
                    read_bytes(fd, size, start, values.path, self.field.name)  # raises why
                expected[rows] = np.maximum(counts, 0)
                rows = rows[counts < 0]  # their headers are longer
        if self.field.coded:
            expected[self.codes != CODES["jpeg"]] = 0
        return expected

    def _report_first(
        self,
        wrong: np.ndarray,
        role: Role,
        item: int,
        text: str,
        expected: np.ndarray,
        actual: np.ndarray,
    ) -> Iterator[Problem]:
        if wrong.any():
            row = int(np.argmax(wrong))
            offset = HEADER + item * (self.start + row)
            yield self._make_problem(row, role, offset, text, str(expected[row]), str(actual[row]))

    def _make_problem(
        self, row: int, role: Role, offset: int, text: str, expected: str, actual: str
    ) -> Problem:
        number = self.folder.first_row + self.start + row
        return Problem(
            problem=text,
            file=str(self.folder.get_required_array(self.field, role).path),
            field=self.field.name,
            rows=(number, number),
            offset=offset,
            expected=expected,
            found=actual,
        )
