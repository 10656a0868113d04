"""What the system says of pages, and is told."""

import mmap

import numpy as np

from fieldslab.reader.loading import paging
from fieldslab.schemas.mapping import get_address

PAGE = mmap.PAGESIZE


def test_a_range_is_there_when_all_of_its_pages_are() -> None:
    """The first page of a range alone does not count, nor do pages behind its end."""
    memory = mmap.mmap(-1, 8 * PAGE)
    if hasattr(mmap, "MADV_NOHUGEPAGE"):
        memory.madvise(mmap.MADV_NOHUGEPAGE)
    start = get_address(np.frombuffer(memory, np.uint8))
    for page in (0, 1, 2, 5):
        memory[page * PAGE] = 1

    def resident(*ranges: tuple[int, int]) -> bool:
        begins, ends = np.array(ranges, np.int64).reshape(-1, 2).T
        return paging.are_resident(
            np.ascontiguousarray(start + begins), np.ascontiguousarray(start + ends), PAGE
        )

    assert resident()
    assert resident((0, 3 * PAGE))
    assert resident((PAGE + 7, 2 * PAGE + 1), (5 * PAGE, 5 * PAGE + 1))
    assert not resident((0, 3 * PAGE + 1))
    assert not resident((0, PAGE), (5 * PAGE, 7 * PAGE))
    assert not resident((3 * PAGE, 3 * PAGE + 1))
