"""The files or episodes of one HDF5 source side by side: their columns, and where they differ."""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from fieldslab.packer.column_names import make_names_unique
from fieldslab.packer.source import ColumnHint
from fieldslab.packer.sources.hdf5.elements import decode_name
from fieldslab.packer.sources.hdf5.episode_columns import EpisodeColumn
from fieldslab.packer.sources.hdf5.episodes import EpisodeRules, make_natural_key, name_files
from fieldslab.packer.sources.hdf5.read import DatasetColumns
from fieldslab.packer.sources.hdf5.scan import Dataset, FileScan
from fieldslab.packer.sources.hdf5.types import HDF5Column, Member
from fieldslab.schemas.errors import SourceInconsistent
from fieldslab.schemas.fields import SPARSE_ATTRIBUTE
from fieldslab.schemas.optiontext import mark_option

Key = tuple[str, Member]
"""A column of any of the files: its dataset's name, and its place in the compound type."""

_MOST_LISTED = 20


@dataclass(frozen=True)
class Part:
    """One file, or one episode of it, and its columns.

    Attributes
    ----------
    scan
        The file.
    columns
        Names are those below `group`.
    attributes
        Those of the file, or those that are needed of the episode.
    group
        The path of the episode's group; "" for a file.
    """

    scan: FileScan
    columns: dict[Key, tuple[Dataset, HDF5Column]]
    attributes: dict[str, Any]
    group: str = ""

    @property
    def path(self) -> str:
        """The file."""
        return self.scan.file.path

    @property
    def name(self) -> str:
        """What the part is called in messages."""
        return f"{self.group} in {self.path}" if self.group else self.path

    def group_columns(self, keys: Iterable[Key]) -> list[DatasetColumns]:
        """Yield the datasets of these columns, each with its columns among them."""
        datasets: dict[str, tuple[Dataset, list[HDF5Column]]] = {}
        for key in keys:
            dataset, column = self.columns[key]
            datasets.setdefault(dataset.name, (dataset, []))[1].append(column)
        return [DatasetColumns(dataset, tuple(columns)) for dataset, columns in datasets.values()]

    def count_rows(self, keys: Sequence[Key], attribute: str | None) -> int:
        """Count the rows of these columns: their length, or what an attribute of the file says.

        Raises SourceInconsistent where that attribute is no number of rows.
        """
        length = min((self.columns[key][0].rows or 0 for key in keys), default=0)
        if attribute is None:
            return length
        rows = self.attributes.get(attribute)
        if isinstance(rows, list) and len(rows) == 1:
            rows = rows[0]
        if type(rows) is not int or not 0 <= rows <= length:
            raise SourceInconsistent(
                f"{mark_option('rows_attr')}: the attribute {attribute} of "
                f"{self.group or 'the file'} is not a valid number of rows",
                file=self.path,
                expected=f"0..{length}",
                found="no such attribute" if rows is None else rows,
                hint=f"Its attributes are: {', '.join(self.attributes) or 'none'}.",
            )
        return rows

    def check_lengths(self, keys: Sequence[Key], rules: EpisodeRules | None) -> None:
        """Raise SourceInconsistent where columns differ in length from most of them."""
        lengths = {key: self.columns[key][0].rows for key in keys}
        length = find_most_common(lengths.values())
        near = {length}
        if rules is not None and length is not None:
            shortest = length - 1 if length - 1 in lengths.values() else length
            near = {shortest, shortest + 1}
        allowed = near if rules is not None and rules.drop_extra_step else {length}
        differing = [key for key, rows in lengths.items() if rows is None or rows not in allowed]
        if not differing:
            return
        lines = [_format_column(key, *self.columns[key]) for key in differing[:_MOST_LISTED]]
        more = (
            f"; and {len(differing) - _MOST_LISTED} more" if len(differing) > _MOST_LISTED else ""
        )
        names = list(dict.fromkeys(name for name, _ in differing[:_MOST_LISTED]))
        hint = (
            f"{mark_option('exclude', names)} leaves them out; {mark_option('fields')} "
            "packs what it names."
        )
        if any(self.columns[key][0].is_matlab and not self.columns[key][0].axis for key in keys):
            option = mark_option("rows_axis", -1)
            hint = f"MATLAB stores the rows of tables along the last axis: {option}. {hint}"
        if any(lengths[key] in near for key in differing):
            option = mark_option("drop_extra_step", True)
            hint = f"{option} leaves out the last row of datasets with one more. {hint}"
        where = f"{self.group}: " if self.group else ""
        raise SourceInconsistent(
            f"{where}datasets without the {length or 0:,} rows that most have: "
            f"{'; '.join(lines)}{more}",
            file=self.path,
            hint=hint,
        )

    def list_differences(self, columns: "Columns", keys: Sequence[Key]) -> Iterator[str]:
        """List in words where these columns are not those of the other files."""
        for key in keys:
            part = columns[key]
            if _make_comparison_key(self, key) == _make_comparison_key(part, key):
                continue
            expected = f"{_format_column(key, *part.columns[key], rows=False)} in {part.path}"
            found = f", {_describe_column(self, key)} here"
            yield f"{expected}{found if key in self.columns else ' is missing here'}"


def check_same_columns(parts: Sequence[Part], columns: "Columns", keys: Sequence[Key]) -> None:
    """Raise SourceInconsistent where these columns are not the same in all parts."""
    choice = f"choose what they share with {mark_option('fields')} or {mark_option('exclude')}."
    if parts[0].group:
        if differing := _find_differing_episodes(parts, keys):
            texts = [f"{name}: {'; '.join(lines)}" for name, lines in differing.items()]
            more = f". And {len(texts) - _MOST_LISTED} more" if len(texts) > _MOST_LISTED else ""
            raise SourceInconsistent(
                f"datasets differ in {len(texts):,} of {len(parts):,} episodes: "
                f"{'. '.join(texts[:_MOST_LISTED])}{more}",
                file=parts[0].path,
                hint=f"Name fewer groups with {mark_option('episodes')}, or {choice}",
            )
        return
    for part in parts:
        if part.scan.var_digest != parts[0].scan.var_digest:
            raise SourceInconsistent(
                f"its variables (var) are not those of {parts[0].path}, in the same order",
                file=part.path,
                hint="Join the files by anndata.concat first, or pack them apart.",
            )
        if lines := list(part.list_differences(columns, keys)):
            raise SourceInconsistent(
                f"datasets differ from file to file: {'; '.join(lines[:_MOST_LISTED])}",
                file=part.path,
                hint=f"Pack the files apart, or {choice}",
            )


def _find_differing_episodes(parts: Sequence[Part], keys: Sequence[Key]) -> dict[str, list[str]]:
    """Find the episodes whose columns are not those of most, and say what differs."""
    several = len({part.path for part in parts}) > 1
    differing: dict[str, list[str]] = {}
    for key in keys:
        forms = [_make_comparison_key(part, key) for part in parts]
        ((usual, count),) = Counter(forms).most_common(1)
        if count == len(parts):
            continue
        expected = _describe_column(parts[forms.index(usual)], key)
        for part, form in zip(parts, forms, strict=True):
            if form != usual:
                name = f"{part.group} in {part.path}" if several else part.group
                actual = _describe_column(part, key)
                text = f"{_format_key(key)}: {actual} instead of {expected}"
                differing.setdefault(name, []).append(text)
    return differing


def split_file(scan: FileScan, rules: EpisodeRules | None) -> list[Part]:
    """Make the parts of a file: the file itself, or its episodes in the order of their numbers."""
    if rules is None or not rules.groups:
        attributes = scan.attributes if rules is None else scan.episodes[""] | scan.attributes
        return [Part(scan, _key_columns(scan.datasets, 0), attributes)]
    datasets: dict[str, list[Dataset]] = {group: [] for group in scan.episodes}
    outside = []
    for dataset in scan.datasets:
        episode = rules.find_episode(dataset.name)
        if episode is None or episode == dataset.name:
            outside.append(dataset.name)
        else:
            datasets[episode].append(dataset)
    if outside:
        names = ", ".join(outside[:_MOST_LISTED]) + (", ..." if len(outside) > _MOST_LISTED else "")
        scan.warnings.append(f"left out, outside of episodes: {names}")
    if scan.idle_attributes:
        names = ", ".join(sorted(scan.idle_attributes)[:_MOST_LISTED])
        scan.warnings.append(
            f"left out, attributes of episodes: {names}. The option `episode_attrs` packs them"
        )
    return [
        Part(scan, _key_columns(datasets[group], len(group) + 1), scan.episodes[group], group)
        for group in sorted(datasets, key=make_natural_key)
    ]


def describe_dropped_steps(parts: Sequence[Part], keys: Sequence[Key]) -> Iterator[str]:
    """Describe the rows that are left out because others of their episode have one less."""
    counts: Counter[str] = Counter()
    for part in parts:
        rows = part.count_rows(keys, None)
        counts.update({key[0] for key in keys if part.columns[key][0].rows != rows})
    for name, count in sorted(counts.items()):
        yield f"{name}: left out, the last row of {count:,} of {len(parts):,} episodes"


def name_parts(parts: Sequence[Part], rules: EpisodeRules) -> list[str]:
    """Name episodes: by what differs of the paths of groups, or by files, or by both."""
    files = name_files(list(dict.fromkeys(part.path for part in parts)))
    names = []
    for part in parts:
        file = [files[part.path]] if len(files) > 1 or not part.group else []
        names.append("/".join([*file, *([rules.shorten_name(part.group)] if part.group else [])]))
    return names


def _key_columns(datasets: Iterable[Dataset], prefix: int) -> dict[Key, tuple[Dataset, HDF5Column]]:
    """Find the columns of datasets by name, without so many letters of it, and member."""
    return {
        (dataset.name[prefix:], column.member): (dataset, column)
        for dataset in datasets
        for column in dataset.columns
    }


Columns = dict[Key, Part]
"""Every column of any part, and the first part that has it: all others must have the same."""


def collect_columns(parts: Sequence[Part]) -> Columns:
    """Collect the columns of all files, those of the first file first."""
    columns: Columns = {}
    for part in parts:
        for key in part.columns:
            columns.setdefault(key, part)
    return columns


def describe_columns(
    columns: Columns, added: Sequence[EpisodeColumn]
) -> tuple[pa.Schema, dict[int, ColumnHint]]:
    """Return the schema of the columns, with unique names, and their hints by index."""
    described = [(key, *part.columns[key]) for key, part in columns.items()]
    names = [key[0] + column.suffix for key, _, column in described]
    types = [column.make_arrow_type(dataset.row_shape) for _, dataset, column in described]
    hints = [column.make_hint(dataset.attributes) for _, dataset, column in described]
    unique = make_names_unique(names + [column.name for column in added])
    fields = zip(unique, types + [column.type for column in added], strict=True)
    return pa.schema(fields), dict(enumerate(hints + [column.hint for column in added]))


def collect_warnings(scans: Sequence[FileScan]) -> list[str]:
    """Collect warnings of what was left out, and of attributes that differ from the first file."""
    warnings = [text for scan in scans for text in scan.warnings]
    first = scans[0].attributes
    differing: dict[str, None] = {}
    for scan in scans[1:]:
        names = first.keys() | scan.attributes.keys()
        differing_names = (
            name
            for name in sorted(names)
            if _get_attribute(first, name) != _get_attribute(scan.attributes, name)
        )
        differing |= dict.fromkeys(differing_names)
    if differing:
        warnings.append(
            f"files differ in the attributes {', '.join(differing)}: those of "
            f"{scans[0].file.path} are kept"
        )
    if any(dataset.is_matlab and not dataset.axis for dataset in scans[0].datasets):
        warnings.append(
            "MATLAB stores axes in reverse order: rows are those of its last dimension. The option "
            "`rows_axis` takes those of its first one"
        )
    return list(dict.fromkeys(warnings))


def find_most_common(lengths: Iterable[int | None]) -> int | None:
    """Find the most common length; the largest of several."""
    counts = Counter(length for length in lengths if length is not None)
    return max(counts, key=lambda length: (counts[length], length), default=None)


def _get_attribute(attributes: dict[str, Any], name: str) -> tuple[bool, Any]:
    return name in attributes, attributes.get(name)


def _make_comparison_key(part: Part, key: Key) -> tuple[Any, ...] | None:
    """Make a key of what must agree in all parts; byte order, filters and chunks may differ."""
    if key not in part.columns:
        return None
    dataset, column = part.columns[key]
    element = column.element
    kind = column.make_arrow_type(dataset.row_shape)
    sparse = dataset.attributes.get(SPARSE_ATTRIBUTE, {}).get("columns")
    return kind, element.hint, element.logical, column.refusal is None, sparse


def _describe_column(part: Part, key: Key) -> str:
    """Describe the type and shape of a row."""
    if key not in part.columns:
        return "nothing"
    dataset, column = part.columns[key]
    return f"{column.element.why} {[*dataset.row_shape, *column.shape]}"


def _format_key(key: Key) -> str:
    return ".".join([key[0], *map(decode_name, key[1])])


def _format_column(key: Key, dataset: Dataset, column: HDF5Column, rows: bool = True) -> str:
    """Format a column with its type and shape, with or without the number of rows."""
    shape = dataset.shape if rows else dataset.row_shape
    text = "no rows" if shape is None else str([*shape, *column.shape])
    if rows and text == "[]":
        text = "(one value)"
    return f"{_format_key(key)}: {column.element.why} {text}"
