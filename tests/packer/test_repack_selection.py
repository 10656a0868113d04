"""Slabs that are written again without any of their rows."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.slabs import write_slab

from fieldslab.packer import FieldslabWarning, repack
from fieldslab.reader import open_slab


def test_a_selection_that_leaves_no_row_is_a_warning(tmp_path: Path, cli: Any) -> None:
    """The new slab is empty, as one of an empty table, and the warning has the condition."""
    slab = write_slab(tmp_path / "x.slab", {"x": np.arange(70)})
    with pytest.warns(FieldslabWarning, match="for which x > 100 is true: .* no rows"):
        assert len(open_slab(repack(slab, tmp_path / "a", where="x > 100").path)) == 0
    with pytest.warns(FieldslabWarning, match="of 70 rows none is left: .* no rows"):
        repack(slab, tmp_path / "b", rows_file=[])
    done = cli("repack", slab, tmp_path / "c", "--where", "x > 100", "--quiet")
    assert "warning: of 70 rows none is left for which x > 100 is true" in done.err
    assert cli("repack", tmp_path / "c", tmp_path / "d", "--quiet").err == "", "it was empty before"
    done = cli("repack", slab, tmp_path / "e", "--where", "x > 100", "--json")
    assert len(done.json["warnings"]) == 1
