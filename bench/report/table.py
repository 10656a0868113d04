"""What was measured, as tables for a terminal."""

from collections.abc import Iterator

from fieldslab.bench.machine import load_in_words
from fieldslab.bench.report import words
from fieldslab.bench.slab.results import Results, Speed, Spread, Target
from fieldslab.packer.commands.text_format import (
    escape_controls,
    format_count,
    format_size,
    format_stacked,
    format_table,
    wrap_lines,
)


def lines(results: Results, width: int | None) -> Iterator[str]:
    """Format every number, then the targets, notes and advice."""
    yield from wrap_lines(_head(results), width)
    for title, head, rows in (
        _latency(results),
        _batches(results),
        _subsets(results),
        _cold(results),
        _threads(results),
        _decode(results),
    ):
        if rows:
            yield ""
            yield from _table((title, *head, ""), [(*row, "") for row in rows], width)
    if results.memory is not None:
        memory = results.memory
        yield ""
        text = (
            f"memory of {memory.batches[-1]:,} random batches of {memory.batch}: "
            f"{format_size(max(memory.growth, 0))} more of its own, "
            f"{format_size(max(memory.mapped))} mapped"
        )
        yield from wrap_lines([text], width)
    yield ""
    verdicts: _Rows = [
        (
            "met" if target.met else "missed",
            target.name,
            found_text(target),
            f"{'below' if target.at_most else 'above'} {target.limit:,.0f} {target.unit}",
        )
        for target in results.targets
    ]
    score = (f"score {results.score}", "target", "found", "asked")
    yield from _table(score, verdicts, width, right="found")
    yield ""
    yield from wrap_lines((f"note: {note}" for note in results.notes), width)
    yield from wrap_lines((f"{advice.kind}: {advice.text}" for advice in results.advice), width)


def _table(
    head: tuple[str, ...], rows: "_Rows", width: int | None, right: str | None = None
) -> Iterator[str]:
    """A table with nothing cut; where that is too wide, its rows as blocks."""
    plain = list(
        format_table(head, rows, None, right=" ".join(head[1:]) if right is None else right)
    )
    if width is None or max(map(len, plain)) <= width:
        yield from plain
    else:
        yield from format_stacked(head, rows, width)


def found_text(target: Target) -> str:
    """Format what was measured for a target, with its unit."""
    if target.unit == "ms":
        return words.seconds(target.found / 1e3)
    if target.unit == "MB":
        return f"{max(target.found, 0):,.0f} MB"
    if target.unit == "%":
        return words.percent(target.found / 100)
    return f"{words.count(target.found)} {target.unit}"


def _head(results: Results) -> Iterator[str]:
    slab, machine = results.slab, results.machine
    yield (
        f"{escape_controls(slab['path'])}: {format_count(slab['rows'], 'row')}, "
        f"{format_count(len(slab['fields']), 'field')}, {format_size(slab['row_bytes'])} a row"
    )
    versions = ", ".join(f"{name} {version}" for name, version in machine["libraries"].items())
    yield f"id      {slab['id']}"
    cores = format_count(machine["cores"], "core")
    yield f"on      {machine['processor']}, {cores}, {machine['system']}"
    yield f"beside  {load_in_words(machine)}"
    yield f"with    {versions}, Python {machine['python']}"
    yield f"warm    {results.method['warm_up']}"


_Rows = list[tuple[str, ...]]
_Part = tuple[str, tuple[str, ...], _Rows]


def _latency(results: Results) -> _Part:
    latency = results.latency
    named = [(latency.direct.name, latency.direct)]
    named += [(f"loader, {loader.name} ahead", loader) for loader in latency.ahead]
    named += [("memcpy of a row", latency.memcpy)]
    rows: _Rows = [
        (name, *map(words.seconds, (s.median, s.mean, s.p95, s.p99)), words.count(1 / s.mean))
        for name, s in ((name, speed.seconds) for name, speed in named)
    ]
    return "random rows", ("median", "mean", "p95", "p99", "rows/s"), rows


def _batches(results: Results) -> _Part:
    rows: _Rows = []
    for group in results.batches:
        for speed in (*group.orders, group.memcpy):
            share = "" if speed is group.memcpy else _share(speed, group.memcpy)
            rows.append((f"{group.rows:>4} {speed.name}", *_speed(speed), share))
    return "batches", ("median", "quartiles", "rows/s", "speed", "of memcpy"), rows


def _subsets(results: Results) -> _Part:
    subsets = results.subsets
    rows: _Rows = [
        (strategy.name, *_speed(strategy), _share(strategy, subsets.memcpy))
        for strategy in subsets.strategies
    ]
    rows.append(("memcpy", *_speed(subsets.memcpy), ""))
    title = f"{subsets.rows:,} rows"
    return title, ("median", "quartiles", "rows/s", "speed", "of memcpy"), rows


def _cold(results: Results) -> _Part:
    head = ("rows/s cold", "rows/s warm", "warm/cold")
    if results.cold is None:
        return "", head, []
    rows: _Rows = [
        (
            cold.name,
            words.count(cold.rows_per_second),
            words.count(warm.rows_per_second),
            words.times(warm.rows_per_second / cold.rows_per_second),
        )
        for cold, warm in zip(results.cold.cold, results.cold.warm, strict=True)
    ]
    first = results.cold.first_row.median
    rows.append(("one row", words.count(1 / first), "", ""))
    return f"cold, by loader, {results.cold.batch}", head, rows


def _threads(results: Results) -> _Part:
    rows: _Rows = [
        (
            str(result.threads),
            words.count(result.rows_per_second),
            words.gigabytes(result.bytes_per_second),
            words.percent(result.bytes_per_second / result.memcpy_bytes_per_second),
        )
        for result in results.threads
    ]
    return "threads", ("rows/s", "speed", "of memcpy"), rows


def _decode(results: Results) -> _Part:
    rows: _Rows = [
        (f"{field.field}, {name}", *_speed(way)[:3])
        for field in results.decode
        for name, way in (("encoded", field.raw), *((way.name, way) for way in field.ways))
    ]
    return "images", ("median", "quartiles", "rows/s"), rows


def _speed(speed: Speed) -> tuple[str, str, str, str]:
    return (
        words.seconds(speed.seconds.median),
        _quartiles(speed.seconds),
        words.count(speed.rows_per_second),
        words.gigabytes(speed.bytes_per_second),
    )


def _quartiles(seconds: Spread) -> str:
    return f"{words.seconds(seconds.low)} - {words.seconds(seconds.high)}"


def _share(speed: Speed, memcpy: Speed) -> str:
    return words.percent(memcpy.seconds.median / speed.seconds.median)
