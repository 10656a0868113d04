"""Files with a JSON object in each line."""

from collections.abc import Mapping
from typing import Annotated, Any

import msgspec
import pyarrow as pa

from fieldslab.packer.column_names import match_names
from fieldslab.packer.source import ColumnHint
from fieldslab.packer.sources.table_files import AnyFile
from fieldslab.packer.sources.text.records import Block, FindEnds, find_lines
from fieldslab.packer.sources.text.text_source import TextFile, TextSource
from fieldslab.schemas.optiontext import mark_option

_JSON = pa.json_(pa.large_string())
_LIMITS = {
    pa.int64(): (-(2**63), 2**63 - 1),
    pa.uint64(): (0, 2**64 - 1),
}
_MIXED = ColumnHint(
    why="values of several types",
    refusal=(
        "the values of the sample have several types",
        f"{mark_option('cast', 'json', column='{0}')} keeps them as JSON text, "
        f"{mark_option('exclude', ['{0}'])} leaves them out.",
    ),
)


class _Mixed:
    """Stands for values of several types."""


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
                    _merge_members(types, row)
        self._known["mixed"] = [name for name, kind in types.items() if _holds_mixed(kind)]
        return {name: _make_type(kind) for name, kind in types.items()}

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
                self.types[name] = _choose_type(self.types.get(name, pa.null()), target)
                self._known["mixed"] = [n for n in self._known["mixed"] if n != name]
        self.set_schema()

    def parse(self, file: TextFile, block: Block, names: list[str]) -> pa.RecordBatch:
        """Parse some keys of a block; where all are asked for, there may be no others."""
        whole = len(names) == len(self.types)
        rows = _make_decoder({name: self.types[name] for name in names}, whole).decode_lines(
            block.data
        )
        arrays = [
            _make_array([getattr(row, f"f{index}") for row in rows], self.types[name])
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
        except ValueError:
            return None
        for name, raw in row.items():
            if name not in self.types:
                if len(names) == len(self.types):
                    return name, bytes(raw).decode(errors="replace")
            elif name in names:
                try:
                    member = msgspec.json.encode({name: raw})
                    rows = [_make_decoder({name: self.types[name]}, True).decode(member)]
                    _make_array([rows[0].f0], self.types[name])
                except ValueError:
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
        except ValueError as error:
            raise self._make_misfit_error(
                file, block._replace(ends=block.ends[: number + 1]), [], error
            ) from error


class JsonLinesFile(TextFile):
    """One file of JSON lines, which may have all columns."""

    @property
    def columns(self) -> dict[str, int]:
        """Position of each column of the source."""
        return {name: index for index, name in enumerate(self.types)}


def _merge_members(types: dict[str, Any], row: Mapping[str, Any]) -> None:
    for name, value in row.items():
        types[name] = _merge(types.get(name), _describe(value))


def _describe(value: Any) -> Any:
    """Describe a value: None, a type of Arrow, a list with one description, or a dict of them."""
    if value is None:
        return None
    if isinstance(value, dict):
        return {name: _describe(member) for name, member in value.items()}
    if isinstance(value, list):
        kind = None
        for item in value:
            kind = _merge(kind, _describe(item))
        return [kind]
    if isinstance(value, bool):
        return pa.bool_()
    if isinstance(value, int):
        return pa.int64() if -(2**63) <= value < 2**63 else _Mixed
    return pa.float64() if isinstance(value, float) else pa.string()


def _merge(one: Any, other: Any) -> Any:
    if one is None or other is None:
        return other if one is None else one
    if isinstance(one, dict) and isinstance(other, dict):
        merged = dict(one)
        for name, kind in other.items():
            merged[name] = _merge(merged.get(name), kind)
        return merged
    if isinstance(one, list) and isinstance(other, list):
        return [_merge(one[0], other[0])]
    if not (isinstance(one, pa.DataType) and isinstance(other, pa.DataType)):
        return _Mixed
    if {one, other} == {pa.int64(), pa.float64()}:
        return pa.float64()
    return one if one == other else _Mixed


def _holds_mixed(kind: Any) -> bool:
    if isinstance(kind, dict):
        return any(map(_holds_mixed, kind.values()))
    return kind is _Mixed


def _make_type(kind: Any) -> pa.DataType:
    """Return the type of a description; JSON text for lists of anything but scalars or lists."""
    if kind is None:
        return pa.null()
    if isinstance(kind, dict):
        members = [(name, _make_type(member)) for name, member in kind.items()]
        return pa.struct(members) if members else _JSON
    if isinstance(kind, list):
        inner = kind[0]
        while isinstance(inner, list):
            inner = inner[0]
        if isinstance(inner, dict) or inner is _Mixed:
            return _JSON
        return pa.list_(_make_type(kind[0]))
    return _JSON if kind is _Mixed else kind


def _choose_type(kind: pa.DataType, target: str) -> pa.DataType:
    """Choose how values are read that are cast to a target."""
    if target == "json":
        return _JSON
    if target in ("text", "binary", "categorical"):
        return pa.string() if pa.types.is_string(kind) or pa.types.is_null(kind) else _JSON
    if pa.types.is_list(kind):
        return pa.list_(_choose_type(kind.value_type, target))
    if target == "bool":
        return pa.bool_()
    if target.startswith(("float", "bfloat")):
        return pa.float64()
    return pa.uint64() if target == "uint64" else pa.int64()


def _make_decoder(types: Mapping[str, pa.DataType], strict: bool) -> Any:
    return msgspec.json.Decoder(_make_struct(types, strict))


def _make_struct(types: Mapping[str, pa.DataType], strict: bool) -> Any:
    fields = [
        (f"f{index}", _make_annotation(kind), None) for index, kind in enumerate(types.values())
    ]
    names = {f"f{index}": name for index, name in enumerate(types)}
    return msgspec.defstruct("Row", fields, rename=names, forbid_unknown_fields=strict)


def _make_annotation(kind: pa.DataType) -> Any:
    types = pa.types
    if kind == _JSON:
        return msgspec.Raw
    if types.is_struct(kind):
        return _make_struct({field.name: field.type for field in kind}, True) | None
    if types.is_list(kind):
        return list[_make_annotation(kind.value_type)] | None  # type: ignore[misc]
    if kind in _LIMITS:
        low, high = _LIMITS[kind]
        return Annotated[int, msgspec.Meta(ge=low, le=high)] | None
    if types.is_null(kind):
        return None
    return (bool if types.is_boolean(kind) else float if types.is_floating(kind) else str) | None


def _make_array(values: list[Any], kind: pa.DataType) -> pa.Array:
    if kind == _JSON:
        texts = [None if raw is None or bytes(raw) == b"null" else bytes(raw) for raw in values]
        return pa.ExtensionArray.from_storage(
            _JSON, pa.array(texts, pa.large_binary()).cast(pa.large_string())
        )
    if not pa.types.is_struct(kind):
        return pa.array(values, kind)
    children = [
        _make_array(
            [None if row is None else getattr(row, f"f{index}") for row in values], field.type
        )
        for index, field in enumerate(kind)
    ]
    mask = pa.array([row is None for row in values], pa.bool_())
    return pa.StructArray.from_arrays(children, fields=list(kind), mask=mask)
