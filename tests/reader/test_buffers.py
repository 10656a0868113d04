"""Memory of batches: used again, never under a batch that somebody still holds."""

import gc
import threading
import weakref
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import torch
from tests.slabs import write_slab

from fieldslab.reader import Slab, open_slab
from fieldslab.reader.buffers import SMALL, SPARE, Pool, ReusedMemory
from fieldslab.schemas.mapping import get_address

BYTES = np.dtype(np.uint8)
ROWS, WIDTH = 64, 20_000


@pytest.fixture
def large(tmp_path: Path) -> Slab:
    """A slab whose batches of a few rows are large enough for the pool; row `i` holds `i`."""
    rows = np.repeat(np.arange(ROWS, dtype=np.uint8)[:, None], WIDTH, 1)
    return open_slab(write_slab(tmp_path / "x.slab", {"x": rows, "b": [r.tobytes() for r in rows]}))


def test_memory_is_used_again() -> None:
    """A block returns when its array dies, and the next array of about that size gets it."""
    pool = Pool()
    array = pool.allocate_array(None, (SMALL,), BYTES)
    address = get_address(array)
    del array
    assert pool.idle_bytes == SMALL
    assert get_address(pool.allocate_array(None, (SMALL // 8,), np.dtype("f8"))) == address


@pytest.mark.parametrize(
    "view",
    [
        lambda array: array[5:],
        lambda array: array.view("f4"),
        lambda array: array.reshape(2, -1)[1:, ::2].T,
        lambda array: memoryview(array),
        lambda array: np.asarray(memoryview(array[3:9])),
        lambda array: np.lib.stride_tricks.as_strided(array, (3,), (1,)),
        lambda array: np.from_dlpack(array),
        lambda array: array.view(np.recarray)[1:],
        lambda array: np.ndarray((3,), "u1", buffer=array),
        lambda array: np.frombuffer(array.base, "u1"),
        lambda array: np.asarray(array.base),
        lambda array: array.base[1:],
        lambda array: array.base.view(np.ndarray)[::2],
        lambda array: memoryview(array[7:].base),
        lambda array: np.frombuffer(array.base, "u1").base,
        lambda array: memoryview(array.base).obj,
        lambda array: np.ctypeslib.as_ctypes(array),
        lambda array: torch.from_numpy(array)[3:],
        lambda array: torch.frombuffer(array.base, dtype=torch.uint8),
        lambda array: torch.utils.dlpack.from_dlpack(array).untyped_storage(),
        lambda array: pa.py_buffer(array).slice(5),
        lambda array: weakref.WeakValueDictionary({0: array}) and array[::-1][::-1],
    ],
)
def test_any_view_keeps_the_memory(view: Any) -> None:
    """As long as a view lives, in whatever form, its memory is given to nobody else."""
    pool = Pool()
    array = pool.allocate_array(None, (SMALL,), BYTES)
    held = view(array)
    address = get_address(array)
    del array
    assert pool.idle_bytes == 0
    assert get_address(pool.allocate_array(None, (SMALL,), BYTES)) != address
    del held
    gc.collect()
    assert pool.idle_bytes == 2 * SMALL


def test_the_base_of_a_batch_keeps_it(large: Slab) -> None:
    """Whoever follows `base` as far as it goes holds a batch that does not change."""
    for name in ("x", "b"):
        values = large.gather([7] * 5)[name]
        base = values if isinstance(values, np.ndarray) else values.values
        while base.base is not None:
            base = base.base
        seen = np.frombuffer(base, np.uint8)
        del values, base
        for row in range(20):
            large.gather([row] * 5)
        assert set(seen[: 5 * WIDTH].tolist()) == {7}


def test_batches_never_alias(large: Slab) -> None:
    """A hundred batches, held at once or by a slice alone, keep their values to the end."""
    rng = np.random.default_rng(0)
    held: list[tuple[Any, int]] = []
    for turn in range(100):
        row = int(rng.integers(ROWS))
        batch = large.gather([row] * 5)
        for array in (batch["x"], batch["b"].values):
            held.append((array, row))
        if turn % 3 == 0:
            held = [(array[-1000:], row) for array, row in held]
        if turn % 7 == 0:
            del held[::5]
    assert len(held) > 50
    for array, row in held:
        assert (array == row).all()


def test_a_dropped_batch_makes_room(large: Slab) -> None:
    """A loop that holds one batch at a time settles on two blocks for each large array."""
    places = set()
    for turn in range(50):
        batch = large.gather([turn % ROWS] * 5, ["x"])
        places.add(get_address(batch["x"]))
    assert len(places) == 2


def test_idle_memory_follows_use() -> None:
    """After a burst of held arrays, idle blocks shrink to about what is in use at one time."""
    pool = Pool()
    burst = [pool.allocate_array(None, (SMALL,), BYTES) for _ in range(50)]
    burst.clear()
    assert pool.idle_bytes == 50 * SMALL
    for _ in range(600):
        held = pool.allocate_array(None, (SMALL,), BYTES)
        del held
    assert pool.idle_bytes <= (1 + SPARE) * SMALL


def test_arrays_of_two_sizes_in_turn_find_their_memory() -> None:
    """Gathering a large field, then a small one, then the large one again takes no fresh pages."""
    pool = Pool()
    places: dict[int, set[int]] = {SMALL: set(), 64 * SMALL: set()}
    for turn in range(600):
        size = SMALL if turn % 2 else 64 * SMALL
        held = pool.allocate_array(None, (size,), BYTES)
        places[size].add(get_address(held))
        del held
    assert [len(actual) for actual in places.values()] == [1, 1]


def test_a_small_array_does_not_take_a_giant_block() -> None:
    """A block far larger than what is asked for waits for something its size."""
    pool = Pool()
    giant = pool.allocate_array(None, (64 * SMALL,), BYTES)
    del giant
    small = pool.allocate_array(None, (SMALL,), BYTES)
    assert pool.idle_bytes == 64 * SMALL
    assert small.nbytes == SMALL


def test_small_arrays_are_not_pooled() -> None:
    """Below 64 KiB numpy's own allocator serves."""
    pool = Pool()
    small = pool.allocate_array(None, (SMALL - 1,), BYTES)
    assert small.base is None
    assert pool.idle_bytes == 0


def test_too_much_memory_is_a_memory_error() -> None:
    """What no system has is a MemoryError, and the pool goes on."""
    pool = Pool()
    for size in (2**46, 2**62, 2**70):
        with pytest.raises(MemoryError):
            pool.allocate_array(None, (size,), BYTES)
    assert pool.allocate_array(None, (SMALL,), BYTES).nbytes == SMALL


def test_threads_share_a_pool() -> None:
    """Many threads that take and drop arrays at once never get the same memory."""
    pool, wrong = Pool(), []

    def work(number: int) -> None:
        for turn in range(300):
            array = pool.allocate_array(None, (SMALL + turn % 7,), BYTES)
            array[:] = number
            if (array != number).any():
                wrong.append(number)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []
    assert pool.idle_bytes <= 8 * 2 * 2 * SMALL


def test_kept_memory_grows_and_stays() -> None:
    """Memory of an `out` batch is kept per name, and replaced only where it is too small."""
    kept = ReusedMemory(Pool())
    first = get_address(kept.allocate_array("a", (SMALL,), BYTES))
    assert get_address(kept.allocate_array("a", (10,), BYTES)) == first
    assert get_address(kept.allocate_array("b", (SMALL,), BYTES)) != first
    grown = get_address(kept.allocate_array("a", (9 * SMALL,), BYTES))
    assert get_address(kept.allocate_array("a", (10 * SMALL,), BYTES)) == grown
    assert kept.allocate_array("c", (0, 5), BYTES).shape == (0, 5)
