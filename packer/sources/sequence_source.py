"""`--pack-sequences`: the tokens of all texts, joined and cut into rows of one length.

It is a source over another: a stream, since each row begins where the one before it ended. In one
process, a pack that was interrupted therefore starts over, and all cores make tokens whatever
`--jobs` is. Several machines first count the tokens of all texts, so that each knows where its rows
begin: `cut_sequences` of `fieldslab.packer.write.sequence_shards`.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import msgspec
import numpy as np
import pyarrow as pa

from fieldslab.packer.convert.batch import SourceBatch
from fieldslab.packer.convert.columns import convert_field
from fieldslab.packer.convert.fieldplan import FieldPlan
from fieldslab.packer.convert.leaves import ColumnOptions
from fieldslab.packer.convert.tokens import ATTRIBUTE, find_separator
from fieldslab.packer.options import Sequences
from fieldslab.packer.source import Source, Unit
from fieldslab.packer.spans import ShardTask, Span, read_span
from fieldslab.schemas.errors import UsageError
from fieldslab.schemas.fields import Field, make_file_stem
from fieldslab.schemas.optiontext import mark_option


class Texts(NamedTuple):
    """The texts that some rows of tokens are made of: the key of a unit.

    `first_text` counts the texts in front of `spans`, and `skip` the first tokens in them that
    belong to rows before.
    """

    spans: tuple[Span, ...]
    first_text: int = 0
    skip: int = 0


class SequenceSource(Source):
    """Rows of tokens, made from texts as they are read."""

    def __init__(
        self, source: Source, tasks: Sequence[ShardTask], text: FieldPlan, asked: Sequences
    ) -> None:
        """Take the texts' source and rows in `tasks`, and how one text becomes tokens.

        Raises UsageError where the tokenizer has no token to go between texts, or to fill up with.
        """
        self.name = source.name
        self.attributes = source.attributes
        self.libraries = source.libraries
        spans = tuple(span for task in tasks for span in task.spans)
        self.units = [Unit("the texts", None, None, Texts(spans))]
        self.tasks = tuple(tasks)
        self.asked = asked
        self._source = source
        self._text = text
        assert text.options.tokenize is not None
        tokens = text.field.attributes[ATTRIBUTE]
        self._separator = find_separator(text.options.tokenize, asked.separator)
        self._fill = tokens.get("pad", self._separator)
        if self._fill is None and not asked.drop_last:
            raise UsageError(
                f"{mark_option('pack_sequences')}: the tokenizer has no token to fill up the "
                "last row",
                file=text.options.tokenize.file,
                field=text.field.name,
                hint=f"{mark_option('drop_last', True)} leaves that row out.",
            )
        self._dtype = text.field.storage
        self.fields = self._make_plans(tokens)
        arrow = pa.from_numpy_dtype(self._dtype)
        columns = [pa.list_(arrow, asked.length), pa.large_list(pa.int32())]
        self.schema = pa.schema(
            (field_plan.field.name, kind)
            for field_plan, kind in zip(self.fields, columns, strict=False)
        )

    @property
    def can_be_cut(self) -> bool:
        """Whether the texts can be read again, by several tasks that know which are theirs."""
        return self._source.rereadable and all(task.rows is not None for task in self.tasks)

    def read(self, unit: Unit, columns: list[int], batch_bytes: int) -> Iterator[pa.RecordBatch]:
        """Read the rows of a unit; the very last is padded or left out, as `endings` says."""
        length, joined, starts = self.asked.length, np.empty(0, self._dtype), np.empty(0, np.int64)
        spans, first_text, skip = unit.key
        total, rows_left = 0, unit.rows
        for tokens, begins in self.read_texts(spans, first_text, batch_bytes):
            starts = np.concatenate([starts, begins + len(joined)])
            joined = np.concatenate([joined, tokens])
            total += len(tokens)
            dropped = min(skip, len(joined))
            if dropped:
                joined, starts = joined[dropped:], starts[starts >= dropped] - dropped
                skip -= dropped
            rows = (
                len(joined) // length
                if rows_left is None
                else min(len(joined) // length, rows_left)
            )
            size = rows * length
            text_count = int(np.searchsorted(starts, size))
            if size:
                yield self._make_batch(joined[:size], starts[:text_count]).select(columns)
                joined, starts = joined[size:], starts[text_count:] - size
            if rows_left is not None:
                rows_left -= rows
                if not rows_left:
                    return
        if rows_left is None:
            rows_left = self.count_rows(total) - total // length
        if rows_left and len(joined):
            fill = np.full(length - len(joined), self._fill, self._dtype)
            yield self._make_batch(np.concatenate([joined, fill]), starts).select(columns)

    def count_rows(self, total: int) -> int:
        """Count the rows that all tokens become; `endings` then says what the last ones become."""
        name, length = self._text.field.name, self.asked.length
        rows, rest = divmod(total, length)
        if rest and self.asked.drop_last:
            self.endings = (
                f"{name}: the last {rest:,} of {total:,} tokens fill no row of {length:,} and were "
                "left out, as asked for",
            )
        elif rest:
            rows += 1
            self.endings = (
                f"{name}: the last row holds {rest:,} tokens of text; token {self._fill} fills it "
                f"up, {length - rest:,} times",
            )
        return rows

    def null_count(self, path: tuple[int, ...]) -> int | None:
        """Return 0: there are no nulls."""
        return 0

    def fingerprint(self) -> list[dict[str, Any]]:
        """Return the fingerprint of the texts."""
        return self._source.fingerprint()

    def read_texts(
        self, spans: Sequence[Span], row: int, batch_bytes: int
    ) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Read the tokens of texts, joined, and where each text with tokens begins: int64[texts].

        `row` counts the texts in front of the spans.
        """
        (path,) = self._text.paths
        for span in spans:
            for batch in read_span(self._source, span, [path[0]], batch_bytes):
                tokens = convert_field(self._text, SourceBatch(batch, {path[0]: 0}, row))
                row += batch.num_rows
                values, lengths = tokens.values, tokens.lengths
                assert lengths is not None
                if self._separator is not None:
                    values = np.insert(values, np.cumsum(lengths), self._separator)
                    lengths = lengths + 1
                begins = np.cumsum(lengths) - lengths
                yield values, begins[lengths > 0]

    def _make_batch(self, tokens: np.ndarray, starts: np.ndarray) -> pa.RecordBatch:
        length = self.asked.length
        columns = [pa.FixedSizeListArray.from_arrays(pa.array(tokens), length)]
        if self.asked.boundaries:
            offsets = np.searchsorted(starts, np.arange(0, len(tokens) + 1, length))
            begins = pa.array((starts % length).astype(np.int32))
            columns.append(pa.LargeListArray.from_arrays(pa.array(offsets, pa.int64()), begins))
        return pa.RecordBatch.from_arrays(columns, schema=self.schema)

    def _make_plans(self, tokens: dict[str, Any]) -> tuple[FieldPlan, ...]:
        """Plan the field of tokens and, if requested, the field of where texts begin."""
        text, length = self._text, self.asked.length
        attribute = {**tokens, "sequences": length}
        if self._separator is not None:
            attribute["separator"] = self._separator
        attributes = text.field.attributes | {ATTRIBUTE: attribute}
        field = msgspec.structs.replace(
            text.field, kind="fixed", shape=(length,), attributes=attributes
        )
        between = "joined" if self._separator is None else f"joined by token {self._separator}"
        why = f"{text.why}, {between}, in rows of {length:,}"
        options = replace(text.options, tokenize=None)
        plan = replace(text, field=field, form="dense", paths=((0,),), options=options, why=why)
        if not self.asked.boundaries:
            return (plan,)
        name = f"{field.name}.starts"
        starts = FieldPlan(
            field=Field(name=name, stem=make_file_stem(1, name), kind="ragged", dtype="int32"),
            form="list",
            paths=((1,),),
            columns=text.columns,
            options=ColumnOptions(),
            why="where in a row texts begin",
        )
        return plan, starts
