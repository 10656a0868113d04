"""What the numbers mean for whoever trains on the slab, in plain words."""

from collections.abc import Iterator

from fieldslab.bench.machine import busy
from fieldslab.bench.report import words
from fieldslab.bench.slab.results import Advice, Results, Target
from fieldslab.bench.slab.targets import MEMCPY_PERCENT
from fieldslab.schemas.images import PIXELS

_SMALL_FIELD, _SMALL_FIELDS = 64, 8
_NEAR = MEMCPY_PERCENT / 100
"""From this share of memcpy on, nothing but memory holds a gather back."""
_STEADY = 0.35
_GAIN = 1.25


def advise(results: Results) -> list[Advice]:
    """Return advice on a slab, the most useful first."""
    parts = (_machine, _targets, _fields, _sizes, _threads, _cold, _decode)
    sentences = [advice for part in parts for advice in part(results)]
    order = {"do": 0, "know": 1, "good": 2}
    return sorted(sentences, key=lambda advice: order[advice.kind])


def _targets(results: Results) -> Iterator[Advice]:
    missed = [target for target in results.targets if not target.met]
    if not missed:
        yield Advice("good", "All targets are met: reading will hardly hold training back.")
    for target in missed:
        yield Advice("do", _missed(results, target))


def _missed(results: Results, target: Target) -> str:
    fastest = results.fastest
    memcpy = fastest.memcpy.rows_per_second
    row = words.gigabytes(results.slab["row_bytes"]).removesuffix("/s")
    if target.unit == "MB":
        return (
            f"Memory grew by {target.found:,.0f} MB. Batches that are kept, or arrays taken from "
            "them, keep their memory: let them go, or copy what must stay."
        )
    if target.unit == "rows/s" and memcpy < 1.3 * target.limit:
        return (
            f"{words.count(target.found)} rows/s are below {target.limit:,.0f}, but rows of {row} "
            f"cannot come much faster here: even memcpy copies {words.count(memcpy)} of them a "
            "second. Read fewer fields (fields=[...]), or pack smaller rows: half precision, "
            "smaller images."
        )
    if target.unit == "rows/s":
        return (
            f"{words.count(target.found)} rows/s are below {target.limit:,.0f}: read only the "
            "fields that you need (fields=[...]), and leave the rest to the threads of a Loader."
        )
    share = results.largest.share_of_memcpy
    if target.unit == "%":
        return (
            f"Random batches of {results.largest.rows} come {words.of_memcpy(share)}: read fewer "
            "fields (fields=[...]), or pack numbers that are used together as one field "
            "(fieldslab pack --stack)."
        )
    if "batch" in target.name and share > _NEAR:
        return (
            f"{target.name.capitalize()} takes {target.found:,.0f} ms, {words.percent(share)} of "
            "what memcpy does: it is large. A Loader makes the next one during the training step."
        )
    return (
        f"{target.name.capitalize()} takes {words.seconds(target.found / 1e3)}, above "
        f"{target.limit:g} ms: use batches and a Loader, which works ahead of the training step."
    )


def _fields(results: Results) -> Iterator[Advice]:
    fields = results.slab["fields"]
    scalars = [field for field in fields if field["kind"] == "fixed" and not field["shape"]]
    share = results.largest.share_of_memcpy
    if len(scalars) >= _SMALL_FIELDS:
        yield Advice(
            "do",
            f"{len(scalars)} fields are single numbers, and each costs a copy a row. If training "
            "uses them together, pack them as one, with the option `stack`.",
        )
    compressed = [field["name"] for field in fields if field["compressed"]]
    if compressed and share < _NEAR:
        yield Advice(
            "do",
            f"{_listed(compressed)} {'is' if len(compressed) == 1 else 'are'} compressed, and is "
            f"decompressed with every batch: a gather has {words.percent(share)} of the speed of "
            "memcpy. Packed uncompressed it is larger and faster.",
        )
    elif share >= _NEAR:
        yield Advice(
            "good",
            f"Random batches of {results.largest.rows} come {words.of_memcpy(share)}: memory alone "
            "sets the pace.",
        )
    elif results.slab["row_bytes"] < _SMALL_FIELD * max(len(fields), 1):
        each = results.slab["row_bytes"] / max(len(fields), 1)
        yield Advice(
            "know",
            f"Values are small ({words.digits(each)} bytes a field), so finding them costs more "
            "than copying them: rows/s say more here than GB/s. Larger batches share that cost.",
        )


def _sizes(results: Results) -> Iterator[Advice]:
    by_rows = {size.rows: size.random for size in results.batches}
    if 64 in by_rows and 256 in by_rows and results.slab["measured_rows"] >= 256:
        gain = by_rows[256].rows_per_second / by_rows[64].rows_per_second
        if gain > _GAIN:
            yield Advice(
                "do",
                f"Batches of 256 rows bring {words.times(gain)} the rows/s of batches of 64: "
                "gather more at a time where the model allows it.",
            )


def _threads(results: Results) -> Iterator[Advice]:
    alone, best = (
        results.threads[0],
        max(results.threads, key=lambda result: result.bytes_per_second),
    )
    if best.threads == 1 and len(results.threads) > 1:
        text = (
            "More threads did not read faster: memory is busy with one, or rows are so short that "
            "threads wait for the interpreter."
        )
        if not results.decode:  # what gains from threads where reading does not
            text += " Loader(threads=1) leaves the cores to the model."
        yield Advice("know", text)
    elif best.threads > 1:
        gain = best.bytes_per_second / alone.bytes_per_second
        kind = "good" if gain > _GAIN else "know"
        yield Advice(
            kind,
            f"{best.threads} threads read {words.times(gain)} as fast as one "
            f"({words.gigabytes(best.bytes_per_second)})"
            + (f": Loader(threads={best.threads})." if gain > _GAIN else "."),
        )


def _cold(results: Results) -> Iterator[Advice]:
    if results.cold is None:
        return
    cold = {speed.name: speed.rows_per_second for speed in results.cold.cold}
    warm = {speed.name: speed.rows_per_second for speed in results.cold.warm}
    slower = warm["random"] / cold["random"]
    size, memory = results.slab["stored_bytes"], results.machine["memory_bytes"]
    if slower > 2 and size < 0.7 * memory:
        yield Advice(
            "know",
            f"From the disk, random rows come {words.times(slower)} slower than from memory. The "
            "slab fits into memory: only the first epoch waits for the disk, if other programs "
            "leave room.",
        )
    best = max(("blocked", "sequential"), key=lambda name: cold[name])
    gain = cold[best] / cold["random"]
    if size >= 0.7 * memory and gain > _GAIN:
        order = {"blocked": "Blocked()", "sequential": "Sequential()"}[best]
        yield Advice(
            "do",
            f"The slab is about as large as memory, or larger, so rows will come from the disk. "
            f"There, {best} rows come {words.times(gain)} as fast as random ones: "
            f"Loader(order={order}).",
        )


def _decode(results: Results) -> Iterator[Advice]:
    codecs = {field["name"]: field["codec"] for field in results.slab["fields"]}
    for decoding in results.decode:
        alone, together = decoding.training, decoding.ways[-1]
        share = decoding.raw.seconds.median / alone.seconds.median
        smaller = "pack them smaller, in the form `jpeg,short-side=256`"
        if codecs.get(decoding.field) in PIXELS:
            smaller = "store fewer pixels, by a smaller `short-side`"
        yield Advice(
            "know",
            f"Images of '{decoding.field}' are decoded at {words.count(alone.rows_per_second)} a "
            f"second by one thread and at {words.count(together.rows_per_second)} by a Loader with "
            f"all cores ({alone.name}); reading their bytes takes {words.percent(share)} of that "
            f"time. If training wants more, {smaller}.",
        )


def _machine(results: Results) -> Iterator[Advice]:
    seconds = results.fastest.random.seconds
    if warning := busy(results.machine):
        yield Advice("do", warning)
    elif (seconds.high - seconds.low) / seconds.median > _STEADY:
        yield Advice(
            "know",
            "Times spread widely: the middle half of the batches took "
            f"{words.seconds(seconds.low)} to {words.seconds(seconds.high)}, though nothing else "
            "was seen to use the machine: measure again, for longer.",
        )


def _listed(names: list[str]) -> str:
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more fields" if len(names) > 3 else "")
