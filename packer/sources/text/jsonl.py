"""Files with a JSON object in each line."""

import base64
from collections.abc import Mapping
from operator import attrgetter
from typing import Any

import msgspec
import pyarrow as pa

from fieldslab.packer.column_names import match_names
from fieldslab.packer.source import ColumnHint
from fieldslab.packer.sources.table_files import AnyFile
from fieldslab.packer.sources.text.json_values import (
    choose_json_type,
    holds_mixed,
    make_decoder,
    make_json_array,
    make_type,
    merge_members,
)
from fieldslab.packer.sources.text.records import Block, FindEnds, find_lines
from fieldslab.packer.sources.text.text_source import TextFile, TextSource
from fieldslab.schemas.optiontext import mark_option

_MIXED = ColumnHint(
    why="values of several types",
    refusal=(
        "the values of the sample have several types",
        f"{mark_option('cast', 'json', column='{0}')} keeps them as JSON text, "
        f"{mark_option('exclude', ['{0}'])} leaves them out.",
    ),
)


class JsonLinesSource(TextSource):
    """Rows of JSON lines; a key that a row lacks is null there."""

    name = "jsonl"
    kind = "JSON lines"
    endings_of_names = (".jsonl", ".ndjson")

    def make_finder(self, file: AnyFile) -> FindEnds:
        """Return what finds the ends of lines."""
        return find_lines

    def read_names(self, file: AnyFile, first: Block) -> tuple[list[str], int]:
        """Return no names: lines name their values."""
        return [], 0

    def open_table(self, file: AnyFile) -> TextFile:
        """Count the rows of a local file."""
        table = super().open_table(file)
        return JsonLinesFile(**table.__dict__)

    def infer_types(self, samples: list[tuple[TextFile, Block]]) -> dict[str, pa.DataType]:
        """Infer the types of all keys of the sample."""
        types: dict[str, Any] = {}
        for file, block in samples:
            start = 0
            for number, end in enumerate(block.ends.tolist()):
                line, start = block.data[start:end].strip(), end
                if line:
                    row = self._decode_line(file, block, number, line)
                    merge_members(types, row)
        self._known["mixed"] = [name for name, kind in types.items() if holds_mixed(kind)]
        nested = pa.schema([(name, make_type(kind, nested=True)) for name, kind in types.items()])
        self._known["nested"] = base64.b64encode(nested.serialize().to_pybytes()).decode()
        return {name: make_type(kind) for name, kind in types.items()}

    def set_schema(self) -> None:
        """Set the schema by the types of the keys."""
        super().set_schema()
        refused = self._known["mixed"]
        self.hints = {index: _MIXED for index, name in enumerate(self.types) if name in refused}

    def apply_casts(self, casts: Mapping[str, str]) -> None:
        """Read what is cast as `casts` need it. A key that no sample has becomes a column."""
        for pattern, target in casts.items():
            names = match_names(pattern, self.types)
            if not names and pattern.isidentifier():
                names = [pattern]
            for name in names:
                if target == "nested" and name in self.types:
                    data = base64.b64decode(self._known["nested"])
                    self.types[name] = pa.ipc.read_schema(pa.py_buffer(data)).field(name).type
                    continue
                self.types[name] = choose_json_type(self.types.get(name, pa.null()), target)
                self._known["mixed"] = [n for n in self._known["mixed"] if n != name]
        self.set_schema()

    def parse(self, file: TextFile, block: Block, names: list[str]) -> pa.RecordBatch:
        """Parse some keys of a block; where all are asked for, there may be no others."""
        has_all = len(names) == len(self.types)
        rows = make_decoder({name: self.types[name] for name in names}, has_all).decode_lines(
            block.data
        )
        arrays = [
            make_json_array(list(map(attrgetter(f"f{index}"), rows)), self.types[name])
            for index, name in enumerate(names)
        ]
        return pa.RecordBatch.from_arrays(arrays, names)

    def find_misfit(
        self, file: TextFile, record: bytes, names: list[str]
    ) -> tuple[str, str] | None:
        """Find the key whose value does not fit, or that no sample has."""
        try:
            row = msgspec.json.decode(record, type=dict[str, msgspec.Raw])
            msgspec.json.decode(record)
        except (ValueError, RecursionError):
            return None
        for name, raw in row.items():
            if name not in self.types:
                if len(names) == len(self.types):
                    return name, bytes(raw).decode(errors="replace")
            elif name in names:
                try:
                    member = msgspec.json.encode({name: raw})
                    rows = [make_decoder({name: self.types[name]}, True).decode(member)]
                    make_json_array([rows[0].f0], self.types[name])
                except (ValueError, RecursionError):
                    return name, bytes(raw).decode(errors="replace")
        return None

    def advise_cast(self, name: str, text: str) -> str:
        """Say which `--cast` reads a key with this value, in JSON."""
        if name not in self.types:
            target = "text" if text.startswith('"') else "json"
            return (
                f"{mark_option('cast', target, column=name)} makes the key a column, which "
                f"{mark_option('exclude', [name])} leaves out."
            )
        kind = self.types[name]
        value = msgspec.json.decode(text)
        target = "f8" if pa.types.is_integer(kind) and type(value) is float else "json"
        return f"{mark_option('cast', target, column=name)} reads the whole column as {target}."

    def _decode_line(self, file: TextFile, block: Block, number: int, line: bytes) -> Any:
        try:
            return msgspec.json.decode(line, type=dict[str, Any])
        except (ValueError, RecursionError) as error:
            raise self._make_misfit_error(
                file, block._replace(ends=block.ends[: number + 1]), [], error
            ) from error


class JsonLinesFile(TextFile):
    """One file of JSON lines, which may have all columns."""

    @property
    def columns(self) -> dict[str, int]:
        """Position of each column of the source."""
        return {name: index for index, name in enumerate(self.types)}
