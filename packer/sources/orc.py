"""ORC files: their stripes are read one by one."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from fieldslab.packer.column_names import check_utf8_names
from fieldslab.packer.source import Unit
from fieldslab.packer.sources.batches import cut_batch, make_damage_error
from fieldslab.packer.sources.table_files import AnyFile, TableFile
from fieldslab.packer.sources.table_source import TableSource
from fieldslab.schemas.errors import FieldslabError

_END = 1 << 16
"""Bytes at the end of a file that are read first."""


@dataclass(frozen=True)
class OrcFile(TableFile):
    """One file: the rows of its stripes."""

    stripes: tuple[int, ...]

    def list_units(self) -> list[list[Any]]:
        """List rows and bytes of each stripe; bytes are shared out evenly."""
        size, total = self.file.size, max(sum(self.stripes), 1)
        return [[rows, size * rows // total] for rows in self.stripes]


class OrcSource(TableSource):
    """Stripes of one or many ORC files."""

    name = "orc"
    kind = "ORC"
    suffixes = (".orc",)
    magic = (b"ORC",)

    def open_table(self, file: AnyFile) -> OrcFile:
        """Read the footer of a file."""
        with _open_orc(file, file.path) as orc:
            check_utf8_names(orc.schema)
            return OrcFile(file, orc.schema, {}, tuple(_count_rows(orc)))

    def read_table(
        self, table: OrcFile, unit: Unit, positions: list[int], batch_bytes: int
    ) -> Iterator[pa.RecordBatch]:
        """Read a stripe; every value is validated."""
        stripe = unit.key[1]
        if not positions:
            yield pa.RecordBatch.from_arrays([pa.nulls(table.stripes[stripe])], ["rows"])
            return
        with table.refuse_changed(), _open_orc(table.file, unit.name) as orc:
            batch = orc.read_stripe(stripe, columns=positions)
            table.file.check_unchanged()
            batch.validate(full=True)
            yield from cut_batch(batch, batch_bytes)

    def name_unit(self, path: str, unit: int) -> str:
        """Return the name of a stripe."""
        return f"{path} stripe {unit}"


def _count_rows(orc: Any) -> Iterator[int]:
    """Count the rows of each stripe, which pyarrow tells only by reading a column of it."""
    if orc.nstripes == 1:
        yield orc.nrows
        return
    scalars = [n for n, field in enumerate(orc.schema) if not field.type.num_fields]
    fixed = [n for n in scalars if pa.types.is_primitive(orc.schema.field(n).type)]
    column = next(iter([*fixed, *scalars, 0]))
    for stripe in range(orc.nstripes):
        yield orc.read_stripe(stripe, columns=[column]).num_rows


@contextmanager
def _open_orc(file: AnyFile, what: str) -> Iterator[Any]:
    """Open a file for a `with` block, and turn what is raised on bad files into a named error."""
    import pyarrow.orc  # takes a while to load

    try:
        opened = file.fetch_end(_END).open()
        with pa.OSFile(opened) if isinstance(opened, str) else opened as stream:
            yield pyarrow.orc.ORCFile(stream)
    except FieldslabError:
        raise
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        raise make_damage_error(error, "ORC", what) from error
