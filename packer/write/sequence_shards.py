"""`--pack-sequences` by many tasks: count the tokens of all texts, then cut rows and shards.

Each task counts the tokens of some texts. Added up in the order of tasks, the counts tell which
texts each row is made of, so that any shard can be packed without the others. Shards are those that
one process cuts. Texts become tokens twice: this pays where there are machines to share the work.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator
from contextlib import closing
from copy import copy
from dataclasses import dataclass, replace
from itertools import accumulate, pairwise

import msgspec
import numpy as np

from fieldslab.packer.pack_options import Progress
from fieldslab.packer.plan import Plan
from fieldslab.packer.source import Unit
from fieldslab.packer.sources.sequence_source import SequenceSource, Texts
from fieldslab.packer.spans import ShardTask, Span
from fieldslab.packer.write.batches import BATCH_BYTES
from fieldslab.packer.write.engines.engine import find_engine


class TextTokens(msgspec.Struct, frozen=True):
    """The numbers of tokens of a task's texts.

    `lengths` has bytes for each span, little-endian uint64[texts]: the tokens of each text that has
    some; or of all texts together, where nobody needs to know where each begins.
    """

    number: int
    lengths: list[bytes]


@dataclass(frozen=True)
class TokenCountWork:
    """What it takes to count the tokens of any task, in this process or another."""

    source: SequenceSource

    def write(self, task: ShardTask, progress: Progress | None = None) -> TextTokens:
        """Count the tokens of a task's texts. Raises SourceError and its subclasses."""
        lengths, row = [], task.first_row
        for span in task.spans:
            pieces = [np.empty(0, np.int64)]
            for tokens, begins in self.source.read_texts([span], row, BATCH_BYTES):
                text_lengths = np.diff(begins, append=len(tokens))
                pieces.append(
                    text_lengths if self.source.asked.boundaries else np.array([len(tokens)])
                )
            lengths.append(np.concatenate(pieces).astype("<u8").tobytes())
            row += span.rows or 0
        return TextTokens(task.number, lengths)


def can_cut_sequences(plan: Plan) -> bool:
    """Whether a plan joins texts, and knows so much of them that tasks can share them."""
    return isinstance(plan.source, SequenceSource) and plan.source.can_be_cut


def cut_by_engine(plan: Plan, engine: str, jobs: int | None) -> Plan:
    """Count the tokens of all texts by an engine, and cut the rows into shards."""
    assert isinstance(plan.source, SequenceSource)
    tasks = plan.source.tasks
    run = find_engine(engine, jobs, len(tasks)).run
    with closing(run(TokenCountWork(plan.source), tasks, _ignore_progress)) as counts:
        return cut_sequences(plan, counts)


def _sort_as_they_come(counts: Iterable[TextTokens]) -> Iterator[TextTokens]:
    """Yield counts in the order of tasks; holds only those that came before their turn."""
    waiting: dict[int, TextTokens] = {}
    number = 0
    for count in counts:
        waiting[count.number] = count
        while number in waiting:
            yield waiting.pop(number)
            number += 1


def cut_sequences(plan: Plan, counts: Iterable[TextTokens]) -> Plan:
    """Cut the rows of a plan that joins texts into shards, from counts that come in any order."""
    source = copy(plan.source)
    assert isinstance(source, SequenceSource)
    spans = [span for task in source.tasks for span in task.spans]
    span_tokens: list[int] = []
    cutter = _ShardCutter(plan, source)
    for count in _sort_as_they_come(counts):
        for data in count.lengths:
            lengths = np.frombuffer(data, "<u8").astype(np.int64)
            span_tokens.append(int(lengths.sum()))
            cutter.add_texts(lengths)
    shard_rows = cutter.finish()
    first_tokens = list(accumulate(span_tokens, initial=0))
    first_texts = list(accumulate((span.rows or 0 for span in spans), initial=0))
    tasks = []
    for number, (row, end) in enumerate(pairwise(shard_rows)):
        token = row * source.asked.length
        first = bisect_right(first_tokens, token) - 1
        last = bisect_left(first_tokens, min(end * source.asked.length, first_tokens[-1]))
        texts = Texts(tuple(spans[first:last]), first_texts[first], token - first_tokens[first])
        largest = max(span.unit.bytes or 0 for span in texts.spans)
        unit = Unit(texts.spans[0].unit.name, end - row, largest, texts)
        tasks.append(ShardTask(number, row, end - row, (Span(unit, 0, end - row),)))
    source.units = [span.unit for task in tasks for span in task.spans]
    return replace(plan, source=source, tasks=tuple(tasks))


class _ShardCutter:
    """Cuts shards behind the row that fills each, as a stream of the same rows is cut."""

    def __init__(self, plan: Plan, source: SequenceSource) -> None:
        self._source = source
        self._size = plan.options.shard_size
        self._row_bytes = plan.fields[0].field.item_bytes
        self._start_bytes = plan.fields[1].field.item_bytes if source.asked.boundaries else 0
        self._tokens = self._starts = 0  # of all texts; in the row that is not full yet
        self._ends = [0]
        self._rows = 0
        self._room = self._size

    def add_texts(self, lengths: np.ndarray) -> None:
        """Add texts with these numbers of tokens: int64[texts]."""
        length = self._source.asked.length
        begins = self._tokens + np.cumsum(lengths) - lengths
        self._tokens += int(lengths.sum())
        full = self._tokens // length - self._rows
        starts = np.bincount(begins // length - self._rows, minlength=full + 1)
        starts[0] += self._starts
        self._starts = int(starts[full])
        self._add_rows(self._row_bytes + self._start_bytes * starts[:full])

    def finish(self) -> list[int]:
        """Return where shards begin and end, in rows."""
        rows = self._source.count_rows(self._tokens)
        if rows > self._rows:
            self._add_rows(np.array([self._row_bytes + self._start_bytes * self._starts]))
        return self._ends if self._ends[-1] == self._rows else [*self._ends, self._rows]

    def _add_rows(self, sizes: np.ndarray) -> None:
        filled = np.cumsum(sizes)
        row_count = 0
        while row_count < len(sizes):
            shard_start = int(filled[row_count - 1]) if row_count else 0
            count = int(np.searchsorted(filled, shard_start + self._room)) + 1
            if count > len(sizes):
                self._room -= int(filled[-1]) - shard_start
                break
            row_count = count
            self._ends.append(self._rows + row_count)
            number = len(self._ends) - 1
            self._room = max(self._size, number * self._size // 64)
        self._rows += len(sizes)


def _ignore_progress(rows: int, bytes: int) -> None:
    """Shards are what progress counts."""
