"""Slabs that a stranger forged, with right digests: a short `make campaign-hostile`."""

import ctypes
import os
import random
import signal
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, get_args

import msgspec
import numpy as np
import pyarrow as pa
import pytest
from tests.hostile import cpp
from tests.hostile.cases import try_case
from tests.hostile.flips import Flips, make_subjects
from tests.hostile.forks import try_cases
from tests.hostile.guards import compile_guards, guard_arrays, guard_maps
from tests.hostile.small_slabs import make_slabs
from tests.slabs import (
    array_path,
    categorical,
    lie,
    lie_about,
    poke,
    ragged,
    redigest,
    write_slab,
)

from fieldslab.packer import pack, verify
from fieldslab.reader import open_slab
from fieldslab.schemas.arrays import HEADER
from fieldslab.schemas.errors import DamagedArray, UsageError
from fieldslab.schemas.fields import Logical, Role
from fieldslab.schemas.folder import load_manifest


@pytest.fixture(scope="module")
def guards(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    """The compiled guards."""
    return compile_guards(tmp_path_factory.mktemp("guards"))


@pytest.mark.filterwarnings("ignore::fieldslab.packer.FieldslabWarning")
def test_forged_slabs_are_read_right_or_refused(guards: ctypes.CDLL, tmp_path: Path) -> None:
    """A few cases of the campaign, between guard pages: each is right or an error of ours."""
    wholes = make_slabs(tmp_path)
    assert len(wholes) > 10

    def try_number(number: int, place: Path) -> Counter[str]:
        if number == 0:
            guard_maps(guards)
            guard_arrays(guards)
        return try_case(random.Random(number), wholes, place)

    outcome = try_cases(range(60), tmp_path, try_number)
    assert outcome.failed == {}
    assert sum(outcome.counts.values()) > 60


def test_planted_faults_are_found(guards: ctypes.CDLL, tmp_path: Path) -> None:
    """A crash, an exception, and writes and reads beside an array are each one case's failure."""

    def plant(number: int, place: Path) -> Counter[str]:
        guard_arrays(guards)
        array = np.arange(16, dtype=np.uint8)
        if number == 1:
            os.kill(os.getpid(), signal.SIGSEGV)
        if number == 2:
            raise IndexError("planted")
        if number == 3:
            ctypes.string_at(array.ctypes.data + 16, 1)
        if number == 4:
            ctypes.memset(array.ctypes.data + 14, 0, 1)
            small = array[:14].copy()
            ctypes.memset(small.ctypes.data + 14, 0, 1)
        return Counter(passed=1)

    outcome = try_cases(range(6), tmp_path, plant)
    assert sorted(outcome.failed) == [1, 2, 3, 4]
    assert "IndexError: planted" in outcome.failed[2]
    assert "ended with -11" in outcome.failed[1]
    assert "ended with -11" in outcome.failed[3]
    assert "written beside an array of 14 bytes" in outcome.failed[4]
    assert outcome.counts == {"passed": 2}


@pytest.mark.parametrize("code", [-2, 2, 2**31 - 1])
def test_codes_without_a_category_are_refused(tmp_path: Path, code: int) -> None:
    """Whatever looks categories up checks each code, since right digests do not say it is right."""
    path = write_slab(tmp_path / "x.slab", {"c": categorical([0, 1, 0], ["a", "b"])})
    poke(array_path(path, "c"), np.array([code], "<i4"), 4)
    redigest(path)
    slab = open_slab(path)
    for look in (
        lambda: slab.split({"a": 0.5, "b": 0.5}, by="c"),
        slab.to_arrow,
        lambda: slab.where("c == 'a'"),
        lambda: slab["c"][1],
    ):
        with pytest.raises(DamagedArray, match="a code has no category"):
            look()


def test_rows_that_are_too_long_for_arrow_are_refused(tmp_path: Path) -> None:
    """A shape that Arrow cannot say is a named error, even if no row has a byte."""
    path = write_slab(tmp_path / "x.slab", {"x": np.zeros((2, 0, 2**31), "u1")})
    with pytest.raises(UsageError, match="Arrow has no lists"):
        open_slab(path).to_arrow()


def test_a_shape_does_not_decide_what_is_allocated(tmp_path: Path) -> None:
    """Files are compared with the manifest before memory is taken for what it says they hold."""
    columns = {"x": np.zeros((3, 4), "u1"), "r": ragged([[1], [2], [3]], "int32")}
    path = write_slab(tmp_path / "x.slab", columns)
    fields = load_manifest(path).fields
    x = msgspec.structs.replace(fields[0], shape=(2**40,))
    r = msgspec.structs.replace(fields[1], shape=(2**38,))
    lie(path, fields=(x, r))
    slab = open_slab(path, verify=False)
    for name in ("x", "r"):
        with pytest.raises(DamagedArray, match="bytes"):
            slab.gather([0, 1, 2], [name])
        with pytest.raises(DamagedArray, match="bytes"):
            slab.gather_windows([0, 1], 2, [name])
    for buffered in (slab, slab.cast({"x": "float16"})):
        with pytest.raises(DamagedArray, match="bytes"):
            buffered.buffers(2, ["x"])
    other = write_slab(tmp_path / "y.slab", {"y": np.arange(3)})
    union = open_slab([other, path], missing="null", verify=False)
    reads: list[Callable[[], Any]] = [
        lambda: union.gather([0, 1], ["x"]),
        lambda: union.gather_windows([0], 2, ["x"]),
        lambda: union.buffers(2, ["x"]),
        lambda: union["x"][:2],
    ]
    for read in reads:
        with pytest.raises(DamagedArray, match="bytes"):
            read()


def test_an_empty_slab_needs_no_memory(tmp_path: Path) -> None:
    """Buffers of a slab without rows are empty, whatever shape its rows would have."""
    path = write_slab(tmp_path / "x.slab", {"x": np.zeros((0, 4), "u1")})
    lie_about(path, "x", shape=(2**40,))
    assert open_slab(path).buffers(3).nbytes == 0


def test_elements_without_bytes_are_counted_when_compressed(tmp_path: Path) -> None:
    """Rows of elements of shape (0,) have as many of them as their lengths say."""
    rows = pa.table({"r": pa.array([[], [], []], pa.list_(pa.int32()))})
    path = pack(rows, tmp_path / "x.slab", compress="r").path
    lie_about(path, "r", shape=(0,))
    poke(array_path(path, "r", "lengths"), np.array([2, 0, 5], "<u8"))
    redigest(path)
    slab = open_slab(path)
    batch = slab.gather([2, 0], ["r"])
    assert [row.shape for row in batch["r"]] == [(5, 0), (2, 0)]
    windows = slab.gather_windows([1], delta_indices={"r": [0, 1, 2]}, edges="zeros")
    assert [row.shape for row in windows["r"]] == [(0, 0), (5, 0), (0, 0)]


@pytest.mark.filterwarnings("ignore::fieldslab.packer.FieldslabWarning")
def test_flipped_bits_are_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A few cases of `make campaign-bits`, and what is not looked at is a failure."""
    flips = Flips(make_subjects(tmp_path))
    roles = {name.split(".", 1)[1] for group in flips.groups for name in group.files}
    assert {f"{role}.npy" for role in get_args(Role)} < roles
    for number in range(20):
        flips.try_case(number, tmp_path / "cases")
    arrays = max(flips.groups, key=lambda group: len(group.files))
    bit = 8 * HEADER + 3
    counts = flips.try_bit(arrays, bit, tmp_path / "cases")
    assert counts["fields: refused"] > 20
    with monkeypatch.context() as patch:
        patch.setattr("tests.hostile.flips.open_slab", partial(open_slab, verify=False))
        with pytest.raises(AssertionError, match="other rows"):
            flips.try_bit(arrays, bit, tmp_path / "cases")
    monkeypatch.setattr("tests.hostile.flips.verify", partial(verify, quick=True))
    with pytest.raises(AssertionError, match=r"`verify` misses .*int16.values.npy"):
        flips.try_bit(arrays, bit, tmp_path / "cases")


@pytest.mark.filterwarnings("ignore::fieldslab.packer.FieldslabWarning")
def test_forged_slabs_are_read_in_cpp_as_in_python(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A few cases of `make campaign-cpp`; a reader that dies, or reads other rows, is noticed."""
    wholes, reader = make_slabs(tmp_path), cpp.Reader(cpp.compile_reader(tmp_path, []))
    counts = Counter[str]()
    for number in range(40):
        counts += cpp.try_case(random.Random(number), wholes, tmp_path / "case", reader)
    assert counts["fields: read alike"] > 20
    path = write_slab(tmp_path / "x.slab", {"x": np.arange(3)})
    assert cpp.compare(path, reader) == {"fields: read alike": 1}
    monkeypatch.setattr(cpp, "sum_rows", lambda slab, name: 0)
    with pytest.raises(AssertionError, match="reads other rows"):
        cpp.compare(path, reader)
    reader.close()
    with pytest.raises(AssertionError, match="the reader ended"):
        cpp.Reader(Path("/bin/false")).read(path)


def test_a_logical_type_does_not_widen_what_is_read(tmp_path: Path) -> None:
    """Times whose unit takes another dtype are plain numbers in Arrow; bfloat16 is uint16 alone."""
    path = write_slab(tmp_path / "x.slab", {"x": np.arange(5, dtype="u1")})
    for logical in (
        Logical("time", unit="us"),
        Logical("time", unit="ms"),
        Logical("date", unit="D"),
    ):
        lie_about(path, "x", logical=logical)
        assert open_slab(path, verify=False).to_arrow()["x"].type == pa.uint8()
    with pytest.raises(ValueError, match="stored as uint16"):
        lie_about(path, "x", logical=Logical("bfloat16"))
