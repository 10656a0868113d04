"""What is in an HDF5 file: its datasets, by a walk over its links."""

import os
from dataclasses import dataclass, field, replace
from math import prod
from typing import Any

import h5py
from h5py import h5d, h5g, h5i, h5l, h5o

from fieldslab.packer.sources.hdf5.attributes import read_attributes
from fieldslab.packer.sources.hdf5.conventions import (
    DIMENSIONS,
    MATLAB_CLASS,
    MATLAB_HIDDEN,
    convert_matlab_columns,
    is_matlab_vector,
    is_phantom,
    put_rows_first,
    read_dimensions,
    read_signal_axes,
    read_text_attribute,
)
from fieldslab.packer.sources.hdf5.elements import (
    NOTHING,
    Element,
    TypeRefusal,
    TypeRules,
    decode_name,
)
from fieldslab.packer.sources.hdf5.encoded import (
    NOT_ROWS,
    Encoding,
    compute_var_digest,
    describe_group,
)
from fieldslab.packer.sources.hdf5.episodes import EpisodeRules
from fieldslab.packer.sources.hdf5.hdf5_files import name_hdf5_errors, open_file
from fieldslab.packer.sources.hdf5.outside import NOT_ADMITTED, find_outside_files, resolve_path
from fieldslab.packer.sources.hdf5.types import HDF5Column, list_columns
from fieldslab.packer.sources.local_file import LocalFile
from fieldslab.schemas.errors import SourceUnreadable
from fieldslab.schemas.optiontext import mark_option

_MOST_DEPTH = 64
_PANDAS_FIXED = ("frame", "series", "wide")
_SPARSE_HINT = (
    "Save full(x), or write it as a sparse matrix of AnnData; or leave it out: "
    f"{mark_option('exclude', ['{}'])}."
)
_PYTABLES_INDEX = ("TINDEX", "INDEX")


@dataclass(frozen=True, slots=True)
class Dataset:
    """A dataset, or something in a dataset's place that cannot be packed.

    Attributes
    ----------
    name
        Where it stands in the file that was asked for, as text: `g/h/x`.
    file, place
        The file that holds it, which an external link may have led to, and its path there.
    shape
        That of the rows first; None where it has no rows: an empty dataspace, or not a dataset.
    chunks
        The same of a chunk; None where it is stored in one piece.
    item_bytes
        Bytes of one element in the file.
    outside
        Other files that its data lies in.
    axis
        Which axis has the rows, as it is stored.
    is_matlab
        Whether MATLAB wrote it.
    encoding
        Of a group that stands for a dataset; see `fieldslab.packer.sources.hdf5.encoded`.
    """

    name: str
    file: str
    place: bytes
    shape: tuple[int, ...] | None
    chunks: tuple[int, ...] | None
    item_bytes: int
    columns: tuple[HDF5Column, ...]
    attributes: dict[str, Any]
    outside: tuple[str, ...] = ()
    axis: int = 0
    is_matlab: bool = False
    encoding: Encoding | None = None

    @property
    def rows(self) -> int | None:
        """Length of axis 0; None for a scalar and for what has no shape."""
        return self.shape[0] if self.shape else None

    @property
    def row_shape(self) -> tuple[int, ...]:
        """Shape of one row."""
        return self.shape[1:] if self.shape else ()

    @property
    def row_bytes(self) -> int:
        """Bytes of a row in the file; 16 for each element of variable length, wherever it lies."""
        return prod(self.row_shape) * self.item_bytes


@dataclass
class FileScan:
    """One file: its datasets in the order of its links, and what it says of itself.

    `episodes` are the needed attributes of each episode, by the path of its group. Of others,
    `idle_attributes` has the names. `var_digest` is that of the names of AnnData's variables.
    """

    file: LocalFile
    datasets: list[Dataset] = field(default_factory=list)
    attributes: dict[str, Any] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)
    others: list[LocalFile] = field(default_factory=list)
    episodes: dict[str, dict[str, Any]] = field(default_factory=dict)
    idle_attributes: dict[str, None] = field(default_factory=dict)
    var_digest: str | None = None


def scan_file(
    path: str,
    *,
    raw: bool = False,
    external: bool = False,
    rows_axis: int = 0,
    rules: EpisodeRules | None = None,
) -> FileScan:
    """Walk through a file.

    Soft links, and further names of the same object, are left out with a warning: what they lead
    to is packed under its own name.

    Raises SourceUnreadable where the file is missing or damaged.
    """
    walk = _Walker(FileScan(LocalFile.from_path(path)), raw, external, rows_axis, rules)
    with open_file(path) as file:
        walk.walk_from(file, path, "", 0)
    walk.scan.others = [LocalFile.from_path(other) for other in sorted(walk.others)]
    return walk.scan


class _Walker:
    def __init__(
        self,
        scan: FileScan,
        raw: bool,
        external: bool,
        rows_axis: int,
        rules: EpisodeRules | None,
    ) -> None:
        self.scan = scan
        self.others: set[str] = set()
        self._raw = raw
        self._external = external
        self._rows_axis = rows_axis
        self._is_anndata = False
        self._episode_rules = rules
        self._axes: dict[str, list[str]] = {}
        self._columns: dict[tuple[HDF5Column, ...], tuple[HDF5Column, ...]] = {}
        self._real_paths: dict[str, str] = {}
        self._seen: dict[tuple[str, int], str] = {}

    def walk_from(
        self, file: h5py.File, path: str, name: str, depth: int, place: str = "/"
    ) -> None:
        """Yield everything below a place of a file, under `name`."""
        with name_hdf5_errors(path):
            rules = TypeRules(self._raw, "PYTABLES_FORMAT_VERSION" in file.attrs)
            object_id = h5o.open(file.id, place.encode(errors="surrogateescape"))
            self._visit_object(object_id, path, name, rules, depth)

    def _visit_object(
        self, object_id: Any, path: str, name: str, rules: TypeRules, depth: int
    ) -> None:
        if isinstance(object_id, h5d.DatasetID | h5g.GroupID):
            if path not in self._real_paths:  # there may be a hundred thousand objects
                self._real_paths[path] = os.path.realpath(path)
            key = (self._real_paths[path], h5o.get_info(object_id).addr)
            if key in self._seen:
                self._add_warning(f"{name} is another name of {self._seen[key]}: left out")
                return
            self._seen[key] = name or "/"
        if isinstance(object_id, h5d.DatasetID):
            self._visit_dataset(h5py.Dataset(object_id), path, name, rules)
        elif isinstance(object_id, h5g.GroupID):
            self._visit_group(h5py.Group(object_id), path, name, rules, depth)

    def _visit_group(
        self, group: h5py.Group, path: str, name: str, rules: TypeRules, depth: int
    ) -> None:
        if depth > _MOST_DEPTH:
            raise SourceUnreadable("groups are nested too deeply", file=path, field=name)
        if read_text_attribute(group, "CLASS") in _PYTABLES_INDEX or name in MATLAB_HIDDEN:
            return
        if "MATLAB_sparse" in group.attrs:
            refusal = TypeRefusal("a sparse matrix of MATLAB", _SPARSE_HINT)
            self._add_refused(name, path, "sparse matrix", refusal)
            return
        if read_text_attribute(group, "pandas_type") in _PANDAS_FIXED:
            self._add_refused(
                name,
                path,
                "pandas, fixed layout",
                TypeRefusal(
                    "the fixed layout of pandas holds pickled objects",
                    "Write it as Parquet: pandas.read_hdf(file, key).to_parquet(...); or leave it "
                    f"out: {mark_option('exclude', ['{}'])}.",
                ),
            )
            return
        if self._visit_encoded(group, path, name, rules):
            return
        if not self._visit_episode(group, name):
            attributes = read_attributes(group)
            if signal_axes := read_signal_axes(attributes):
                self._axes["/".join(filter(None, [name, signal_axes[0]]))] = signal_axes[1]
            if name:
                attributes = {f"{name}/": attributes} if attributes else {}
            self.scan.attributes |= attributes
        for child in group:
            raw = child if isinstance(child, bytes) else child.encode(errors="surrogateescape")
            full = f"{name}/{decode_name(raw)}" if name else decode_name(raw)
            with name_hdf5_errors(path, full):
                self._visit_link(group, raw, path, full, rules, depth)

    def _visit_encoded(self, group: h5py.Group, path: str, name: str, rules: TypeRules) -> bool:
        """Enter a group that stands for a dataset, or that is not about rows; say if it was one."""
        if not name:
            self._is_anndata = read_text_attribute(group, "encoding-type") == "anndata"
            self.scan.var_digest = compute_var_digest(group) if self._is_anndata else None
        if self._is_anndata and name in NOT_ROWS:
            if len(group):
                self._add_warning(f"{name}: left out, it is not about single rows")
            return True
        encoded = describe_group(group, rules)
        if encoded is None:
            return False
        if isinstance(encoded, TypeRefusal):
            self._add_refused(name, path, "encoded group", encoded)
            return True
        self.scan.datasets.append(
            Dataset(
                name,
                path,
                h5i.get_name(group.id),
                (encoded.rows,),
                None,
                encoded.row_bytes,
                encoded.columns,
                encoded.attributes,
                encoding=encoded.encoding,
            )
        )
        return True

    def _visit_episode(self, group: h5py.Group, name: str) -> bool:
        """Enter a group that is an episode; return whether its attributes belong to one alone."""
        rules = self._episode_rules
        episode = None if rules is None else rules.find_episode(name)
        if rules is None or episode is None:
            return False
        if episode == name:
            chosen = rules.read_attributes(group.attrs)
            self.scan.episodes[name] = chosen
            if name:
                self.scan.idle_attributes |= dict.fromkeys(set(group.attrs) - set(chosen))
        return bool(episode)

    def _visit_link(
        self, group: h5py.Group, raw: bytes, path: str, name: str, rules: TypeRules, depth: int
    ) -> None:
        kind = group.id.links.get_info(raw).type
        if kind == h5l.TYPE_HARD:
            self._visit_object(h5o.open(group.id, raw), path, name, rules, depth + 1)
        elif kind == h5l.TYPE_SOFT:
            target = decode_name(group.id.links.get_val(raw))
            self._add_warning(f"{name} is a link to {target}: left out")
        elif kind == h5l.TYPE_EXTERNAL:
            file, place = map(os.fsdecode, group.id.links.get_val(raw))
            self._visit_external_link(path, file, place, name, depth)
        else:
            self._add_refused(name, path, "user-defined link", TypeRefusal("a user-defined link"))

    def _visit_external_link(self, path: str, file: str, place: str, name: str, depth: int) -> None:
        what, target = f"link to {place} in {file}", resolve_path(path, file)
        if not self._external:
            refusal = TypeRefusal("an external link reads another file", NOT_ADMITTED)
            self._add_refused(name, path, what, refusal)
            return
        if not os.path.isfile(target):
            refusal = TypeRefusal(f"the file {target} of an external link is missing")
            self._add_refused(name, path, what, refusal)
            return
        self.others.add(target)
        with open_file(target) as opened:
            self.walk_from(opened, target, name, depth + 1, place)

    def _visit_dataset(self, dataset: h5py.Dataset, path: str, name: str, rules: TypeRules) -> None:
        outside = find_outside_files(dataset, path, self._external)
        if isinstance(outside, TypeRefusal):
            self._add_refused(name, path, "dataset with data outside", outside, dataset.shape)
            return
        self.others.update(outside)
        kind = dataset.id.get_type()
        columns = tuple(list_columns(kind, rules))
        columns = self._columns.setdefault(columns, columns)  # thousands of episodes share them
        if not columns:
            self._add_refused(name, path, "compound without members", TypeRefusal("holds nothing"))
            return
        if read_text_attribute(dataset, "PSEUDOATOM") == "object":
            self._add_refused(
                name,
                path,
                "pickled objects",
                TypeRefusal(
                    "holds pickled Python objects, which are never read: unpickling runs code"
                ),
                dataset.shape,
            )
            return
        if is_phantom(dataset):
            return
        converted = convert_matlab_columns(dataset, columns)
        if isinstance(converted, TypeRefusal):
            what = f"{read_text_attribute(dataset, MATLAB_CLASS)} of MATLAB"
            self._add_refused(name, path, what, converted, dataset.shape)
            return
        columns = converted
        attributes = read_attributes(dataset)
        shape, chunks, axis = dataset.shape, dataset.chunks, 0
        dimensions = read_dimensions(dataset) or self._axes.get(name, [])
        if self._rows_axis and shape is not None and len(shape) > 1:
            axis = len(shape) - 1
            shape = put_rows_first(shape, axis)
            chunks = None if chunks is None else put_rows_first(chunks, axis)
            if len(dimensions) == len(shape):
                dimensions = list(put_rows_first(dimensions, axis))
            if is_matlab_vector(dataset):
                shape, chunks = shape[:1], None if chunks is None else chunks[:1]
        if dimensions:
            attributes[DIMENSIONS] = dimensions
        if columns[0].member and attributes:  # one copy, and not one for each member
            self.scan.attributes[f"{name}/"] = attributes
            attributes = {}
        self.scan.datasets.append(
            Dataset(
                name,
                path,
                h5i.get_name(dataset.id),
                shape,
                chunks,
                kind.get_size(),
                columns,
                attributes,
                outside,
                axis,
                MATLAB_CLASS in dataset.attrs,
            )
        )

    def _add_refused(
        self,
        name: str,
        path: str,
        what: str,
        refusal: TypeRefusal,
        shape: tuple[int, ...] | None = None,
    ) -> None:
        nothing = HDF5Column((), _make_placeholder(what), (), refusal)
        self.scan.datasets.append(Dataset(name, path, b"", shape, None, 0, (nothing,), {}))

    def _add_warning(self, text: str) -> None:
        self.scan.warnings.append(text)


def _make_placeholder(what: str) -> Element:
    return replace(NOTHING, why=what)
