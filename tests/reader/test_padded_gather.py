"""`Pad` at the front of a loader's transforms: done by the gather, with the same result."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.reader.conftest import Example
from tests.reader.loading import plain

from fieldslab.reader import Batch, Loader, Pad, Shuffled, Slab, open_slab
from fieldslab.reader.loading.chain import find_paddings


def _pads() -> st.SearchStrategy[list[Pad]]:
    fills = {"tokens": -3, "points": 0.5, "caption": 32, "blob": 7}
    pad = st.builds(
        lambda field, length, side, mask: Pad(field, length, fills[field], side, mask),
        st.sampled_from(sorted(fills)),
        st.none() | st.integers(0, 7),
        st.sampled_from(["left", "right"]),
        st.sampled_from([None, "mask", "other", "label"]),
    )
    return st.lists(pad, min_size=1, max_size=3, unique_by=lambda each: each.field)


@settings(deadline=None, max_examples=60)
@given(pads=_pads(), batch_size=st.integers(1, 40), verify=st.booleans())
def test_padded_by_the_gather_or_by_the_transform(
    example: Example, pads: list[Pad], batch_size: int, verify: bool
) -> None:
    """Same values, masks, validity and sequence of fields, for every kind that can be padded."""
    slab = open_slab(example.path, verify=verify)[:90]

    def unchanged(batch: Batch) -> dict[str, Any]:
        return {}

    together = Loader(slab, batch_size, Shuffled(1), transforms=pads)
    apart = Loader(slab, batch_size, Shuffled(1), transforms=[unchanged, *pads])
    assert bool(find_paddings(slab, pads, list(slab.fields), [])) == (pads[0].length is not None)
    assert not find_paddings(slab, [unchanged, *pads], list(slab.fields), [])
    for batch, expected in zip(together, apart, strict=True):
        assert list(batch) == list(expected)
        assert plain(batch) == plain(expected)
        for name in batch:
            if isinstance(batch[name], np.ndarray):
                assert batch[name].dtype == expected[name].dtype
                assert batch[name].shape == expected[name].shape


@pytest.mark.parametrize("output", ["numpy", "torch"])
def test_transforms_behind_see_what_was_padded(slab: Slab, output: Any) -> None:
    """The next transform gets the padded array and the mask, and draws as it does otherwise."""

    def count(batch: Any, rng: Any) -> dict[str, Any]:
        return {"count": batch["mask"].sum(1), "draw": rng.uniform(0, 1)}

    def unchanged(batch: Any) -> dict[str, Any]:
        return {}

    pad: Any = Pad("tokens", 5, mask="mask")
    fused, plainly = (
        list(Loader(slab, 7, Shuffled(1), transforms=transforms, output=output))
        for transforms in ([pad, count], [pad, unchanged, count])
    )
    for batch, other in zip(fused, plainly, strict=True):
        lengths = np.array([row % 6 for row in batch.rows.tolist()])
        assert batch["count"].tolist() == np.minimum(lengths, 5).tolist()
        assert batch["tokens"].tolist() == other["tokens"].tolist()


def test_fields_that_a_gather_cannot_pad(slab: Slab) -> None:
    """Left to transforms: fields padded before or named like a mask, and batches of any length."""
    names = list(slab.fields)
    first = Pad("tokens", 5, mask="mask")
    assert list(find_paddings(slab, [first, Pad("points", 3)], names, [])) == ["tokens", "points"]
    assert list(find_paddings(slab, [first, Pad("points")], names, [])) == ["tokens"]
    assert list(find_paddings(slab, [first, Pad("mask", 5)], names, [])) == ["tokens"]
    again = [Pad("points", 3, mask="tokens"), Pad("tokens", 3)]
    assert list(find_paddings(slab, again, names, [])) == ["points"]
    assert not find_paddings(slab, [first], names, ["photo"])
    assert not find_paddings(slab, [Pad("tokens", 5, mask="tokens")], names, [])
