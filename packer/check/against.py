"""Compare a slab with its source: pack the source again, in memory, and compare every value."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec

from fieldslab.packer.check.differences import Difference, find_differences
from fieldslab.packer.check.findings import Findings, Problem, VerifyProgress, make_problem
from fieldslab.packer.check.stored import StoredSlab
from fieldslab.packer.convert.batch import SourceBatch
from fieldslab.packer.convert.categories import CategoryIndex
from fieldslab.packer.convert.columns import convert_field
from fieldslab.packer.convert.damaged_rows import find_damaged_rows, find_runs_between
from fieldslab.packer.convert.fieldplan import FieldPlan
from fieldslab.packer.convert.tokens import add_tokenizer_paths
from fieldslab.packer.options import CASTS, DTYPES, Options
from fieldslab.packer.plan import Plan, make_plan
from fieldslab.packer.source import find_source
from fieldslab.packer.write.ahead import read_ahead
from fieldslab.packer.write.batches import read_batches
from fieldslab.schemas.errors import (
    DamagedArray,
    DamagedManifest,
    FieldslabError,
    MissingLibrary,
    NullsFound,
    SourceInconsistent,
    SourceUnsupported,
    Unreadable,
    UsageError,
)
from fieldslab.schemas.fields import Field
from fieldslab.schemas.folder import SlabFiles
from fieldslab.schemas.manifest import SHUFFLE_ATTRIBUTE, Manifest

_DIFFERENT = (NullsFound, SourceInconsistent, SourceUnsupported, UsageError)
"""What planning and conversion raise where the source is not what was packed."""
_NOT_PACKED = "the source cannot be packed as this slab was: "


def compare(
    files: SlabFiles,
    source: Any,
    from_: str | None,
    chosen: set[str],
    findings: Findings,
    progress: VerifyProgress | None = None,
    tokenizers: Sequence[str | Path] = (),
    storage_options: Mapping[str, Any] | None = None,
) -> None:
    """Compare the chosen fields of a slab with `source`; enter what differs.

    Raises SourceUnreadable and SourceChanged, UsageError for an unknown `from_`, and MissingLibrary
    where the source cannot be converted without one.
    `tokenizers` are files: see `fieldslab.packer.convert.tokens.add_tokenizer_paths`.
    """
    slab = StoredSlab(files, checked=False)
    manifest = slab.manifest
    options, name = load_options(manifest, files.path)
    if SHUFFLE_ATTRIBUTE in manifest.attributes:
        raise UsageError(
            "the rows of the slab were shuffled, so they cannot be compared with a source",
            file=files.path,
            hint="Compare a slab before it is shuffled; verify without a source checks every byte.",
        )
    options = add_tokenizer_paths(options, tokenizers)
    settings = options.settings if from_ in (None, name) else {}
    opened_source = find_source(
        source,
        from_ or name,
        settings,
        tolerant=options.leave_out,
        storage_options=storage_options,
    )
    try:
        plan = make_plan(opened_source, options)
    except MissingLibrary:
        raise
    except _DIFFERENT as error:
        findings.add(make_problem(error, prefix=_NOT_PACKED))
        return
    plans = list(_select_matching_plans(manifest, plan, chosen, findings))
    if plan.rows is not None and plan.rows != manifest.rows and not options.leave_out:
        _report_row_counts(findings, plan.rows, manifest.rows)
    if plans:
        # Images tell which rows were left out, whatever is compared.
        names = {field_plan.field.name for field_plan in plans}
        fields = tuple(
            field_plan
            for field_plan in plan.fields
            if field_plan.field.name in names or field_plan.skips_damaged_images
        )
        comparison = _Comparison(slab, replace(plan, fields=fields), plans, findings)
        comparison.run(progress)


def load_options(manifest: Manifest, path: Path) -> tuple[Options, str | None]:
    """Load the options that a slab was packed with, and the name of its kind of source.

    Raises DamagedManifest where they are none that `pack` could have been given.
    """
    recorded_options = dict(manifest.made.options)
    name = recorded_options.pop("from", None)
    try:
        options = msgspec.convert(recorded_options, Options)
    except msgspec.ValidationError as error:
        raise DamagedManifest(f"unknown options of pack: {error}", file=path) from error
    dtypes = {tensor.dtype for tensor in options.tensor.values()}
    if not (set(options.cast.values()) <= set(CASTS) and dtypes <= set(DTYPES)):
        raise DamagedManifest("unknown options of pack: no such dtype", file=path)
    # What was packed from memory has no name that a path could be found by.
    return options, name if isinstance(name, str) and name != "arrow" else None


class _Comparison:
    """Goes through the source batch by batch and reads the same rows of the slab."""

    def __init__(
        self, slab: StoredSlab, plan: Plan, compared: list[FieldPlan], findings: Findings
    ) -> None:
        self._slab = slab
        self._plan = plan
        self._compared = compared
        self._findings = findings
        self._fields = {field.name: field for field in slab.manifest.fields}
        self._open: dict[str, Difference] = {}
        self._known = {
            name: slab.read_categories(field)
            for name, field in self._fields.items()
            if field.kind == "categorical"
            and name in {field_plan.field.name for field_plan in compared}
        }
        # One index maps to the slab's codes, the other finds out what the source has.
        self._indices = {name: CategoryIndex(texts) for name, texts in self._known.items()}
        self._seen = {name: CategoryIndex() for name in self._known}

    def run(self, progress: VerifyProgress | None) -> None:
        plan, rows = self._plan, self._slab.manifest.rows
        slab_row = 0
        spans = [span for task in plan.tasks for span in task.spans]
        with closing(read_ahead(read_batches(plan.source, spans, plan.fields))) as stream:
            for batch in stream:
                try:
                    damaged = self._find_left_out_rows(batch)
                except _DIFFERENT as error:
                    self._report_unconvertible(error)
                    return
                for start, count in find_runs_between(damaged, len(batch)):
                    common = batch.slice(start, min(count, max(rows - slab_row, 0)))
                    if len(common) and not self._compare_batch(common, slab_row):
                        return
                    slab_row += count
                if progress is not None:
                    progress(len(batch), batch.rows.nbytes)
        for name in list(self._open):
            self._report_difference(name)
        if (plan.rows is None or plan.options.leave_out) and slab_row != rows:
            _report_row_counts(
                self._findings, slab_row, rows, spent=not slab_row and not plan.source.rereadable
            )
        self._compare_categories()

    def _compare_batch(self, batch: SourceBatch, row: int) -> bool:
        """Compare rows of the source, the first of which is `row` of the slab.

        False where the source cannot be converted any further.
        """
        for field_plan in self._compared:
            field = self._fields[field_plan.field.name]
            index, categories = self._indices.get(field.name), self._seen.get(field.name)
            # An index that the slab does without is no difference, nor is another one.
            source_field = msgspec.structs.replace(
                field_plan.field, index=field.index, coded=field.coded
            )
            field_plan = replace(field_plan, field=source_field, skips_damaged_images=False)
            try:
                converted = convert_field(field_plan, batch, index)
                if categories is not None:
                    convert_field(field_plan, batch, categories)
            except MissingLibrary:
                raise
            except _DIFFERENT as error:
                self._report_unconvertible(error)
                return False
            try:
                stored = self._slab.read(field, row, row + len(batch))
            except (DamagedArray, Unreadable) as error:
                rows = (row, row + len(batch) - 1)
                self._findings.add(make_problem(error, rows))
                continue
            for difference in find_differences(field, converted, stored, row):
                self._add_difference(field.name, difference)
        return True

    def _find_left_out_rows(self, batch: SourceBatch) -> Collection[int]:
        """Find the rows of a batch that `pack` left out; their categories count as seen."""
        damaged = find_damaged_rows(self._plan.fields, batch)
        for field_plan in self._compared if damaged else ():
            if field_plan.field.name in self._seen:
                convert_field(field_plan, batch, self._seen[field_plan.field.name])
        return damaged

    def _report_unconvertible(self, error: FieldslabError) -> None:
        """Report why the source cannot be converted any further."""
        self._findings.add(make_problem(error, prefix=_NOT_PACKED))

    def _add_difference(self, name: str, difference: Difference) -> None:
        """Join a difference to the one in front of it, or report that one and start a new one."""
        before = self._open.get(name)
        if before is not None and before.last + 1 == difference.first:
            self._open[name] = before._replace(last=difference.last)
            return
        if before is not None:
            self._report_difference(name)
        self._open[name] = difference

    def _report_difference(self, name: str) -> None:
        difference = self._open.pop(name)
        file, offset = self._slab.locate(
            self._fields[name], difference.role, difference.first, difference.byte
        )
        self._findings.add(
            Problem(
                problem="differs from the source, first in row "
                f"{difference.first}: {difference.what}",
                file=str(file),
                field=name,
                rows=(difference.first, difference.last),
                offset=offset,
                expected=difference.expected,
                found=difference.found,
            )
        )

    def _compare_categories(self) -> None:
        """Report categories that only the slab has, or only the source."""
        for name, texts in self._known.items():
            stored_texts, source_texts = set(texts), set(self._seen[name].values.to_pylist())
            if self._plan.options.leave_out:  # rows that are not there may have had others
                source_texts &= stored_texts
            if stored_texts != source_texts:
                self._findings.add(
                    Problem(
                        problem="the categories differ from the source's",
                        field=name,
                        expected=_format_categories(source_texts - stored_texts),
                        found=_format_categories(stored_texts - source_texts),
                    )
                )


def _select_matching_plans(
    manifest: Manifest, plan: Plan, chosen: set[str], findings: Findings
) -> Iterator[FieldPlan]:
    """Yield the plans of chosen fields that slab and source agree on; report the others."""
    stored = {field.name: field for field in manifest.fields}
    planned = {field_plan.field.name: field_plan for field_plan in plan.fields}
    for name in stored:
        if name not in chosen:
            continue
        if name not in planned:
            findings.add(Problem(problem="the source has no such field", field=name))
        elif _describe_type(stored[name]) != _describe_type(planned[name].field):
            findings.add(
                Problem(
                    problem="the field differs from the one in the source",
                    field=name,
                    expected=_describe_type(planned[name].field),
                    found=_describe_type(stored[name]),
                )
            )
        else:
            yield planned[name]
    if chosen == set(stored):
        for name in planned.keys() - stored.keys():
            findings.add(Problem(problem="the slab lacks this field of the source", field=name))


def _describe_type(field: Field) -> str:
    """Describe what must agree before values can: kind, dtype, shape, and logical type."""
    logical = "" if field.logical is None else f" {msgspec.json.encode(field.logical).decode()}"
    return f"{field.kind} {field.dtype}{list(field.shape)}{logical}"


def _report_row_counts(findings: Findings, source: int, slab: int, spent: bool = False) -> None:
    problem = "source and slab differ in rows"
    if spent:
        problem += "; a stream can be read only once: make a new one"
    findings.add(Problem(problem=problem, expected=str(source), found=str(slab)))


def _format_categories(categories: set[str]) -> str:
    names = sorted(categories)
    return ", ".join(map(repr, names[:5])) + (", ..." if len(names) > 5 else "") or "no others"
