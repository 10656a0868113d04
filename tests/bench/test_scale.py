"""The benchmark of windows, unions, mixtures and conditions."""

from pathlib import Path

from fieldslab.bench.gather import KIB
from fieldslab.bench.scale import (
    CONDITIONS,
    measure_categories,
    measure_elements,
    measure_mixed,
    measure_union,
    measure_where,
    measure_windows,
    pack_floats,
    pack_tokens,
)
from fieldslab.reader import open_slab


def test_every_part_measures_something(tmp_path: Path) -> None:
    """Each part gives ratios or numbers of small slabs; conditions agree with pyarrow."""
    paths = [pack_floats(tmp_path / f"{n}.slab", KIB, 4096 * KIB, n) for n in range(2)]
    single = open_slab(pack_floats(tmp_path / "single.slab", 4, 64 * KIB))
    one = open_slab(paths[0])
    ratios = [
        measure_windows(one, 16, 1),
        measure_windows(single, 64, 1),
        measure_elements(open_slab(pack_tokens(tmp_path / "tokens.slab", 10**6)), 33, 1),
        *measure_union([one, one], paths, 1),
        measure_categories(tmp_path, 1000, 1),
    ]
    assert len(ratios) == 6
    assert all(each.median > 0 for each in ratios)
    assert len(measure_mixed(single, 1)) == 4
    assert len(measure_where(tmp_path, 1000, 1)) == 2 * len(CONDITIONS)
