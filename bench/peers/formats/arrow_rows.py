"""Rows of Arrow tables, for the peers that return them."""

from typing import Any

import numpy as np

from fieldslab.bench.peers.source import Row


def arrow_rows(table: Any) -> list[Row]:
    """The rows of a table or record batch: arrays and bytes."""
    columns = {name: _values(table.column(name)) for name in table.schema.names}
    return [{name: values[i] for name, values in columns.items()} for i in range(table.num_rows)]


def _values(column: Any) -> list[Any]:
    if hasattr(column, "combine_chunks"):
        column = column.combine_chunks()
    kind = str(column.type)
    if kind.endswith("binary"):
        return column.to_pylist()
    if "list" in kind:
        return [value.values.to_numpy(zero_copy_only=False) for value in column]
    return list(np.asarray(column))
