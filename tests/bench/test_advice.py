"""Score and advice for what was measured."""

import pytest
from tests.bench.made import results

from fieldslab.bench.report.advice import advise
from fieldslab.bench.slab.results import Results


def advice(results: Results, kind: str) -> str:
    """All advice of a kind, as one text."""
    return " ".join(item.text for item in advise(results) if item.kind == kind)


def test_all_is_well() -> None:
    """Where every target is met the score is 100, and nothing is to be done."""
    outcome = results()
    assert outcome.score == 100
    assert advice(outcome, "do") == ""
    assert "All targets are met" in advice(outcome, "good")
    assert "80 % of the speed of memcpy" in advice(outcome, "good")


@pytest.mark.parametrize(
    ("values", "score", "words"),
    [
        ({"row": 2e-3}, 90, "A random row takes 2.0 ms, above 1 ms"),
        ({"growth": 10**9}, 90, "Memory grew by 1,000 MB"),
        ({"per_row": 400e-6, "memcpy": 100e-6}, 62, "A random batch of 256 takes 102 ms"),
        ({"per_row": 400e-6, "memcpy": 390e-6}, 75, "even memcpy copies 2,564 of them"),
        ({"memcpy": 0.8e-6}, 82, "Random batches of 256 come at 8.0 % of the speed of memcpy"),
    ],
)
def test_what_is_missed_costs_points_and_has_advice(
    values: dict[str, float], score: int, words: str
) -> None:
    """A missed target costs the more, the more it is missed, and says what to do."""
    outcome = results(**values)  # type: ignore[arg-type]
    assert outcome.score == score
    assert words in advice(outcome, "do")
    assert "All targets" not in advice(outcome, "good")


def test_advice_comes_in_order() -> None:
    """What is to be done comes first, then what is to be known, then what is good."""
    kinds = [item.kind for item in advise(results(row=1, cold=1e-2))]
    assert kinds == sorted(kinds, key=["do", "know", "good"].index)
    assert set(kinds) == {"do", "know", "good"}


def test_fields_that_cost() -> None:
    """Many single numbers and compressed fields are pointed out, with the option of pack."""
    many = tuple({"name": f"x{index}", "shape": []} for index in range(12))
    assert "12 fields are single numbers" in advice(results(fields=many), "do")
    slow = results(fields=({"name": "text", "compressed": True},), memcpy=2e-6)
    assert "text is compressed" in advice(slow, "do")
    small = results(row_bytes=8, memcpy=2e-6)
    assert "8.0 bytes a field" in advice(small, "know")


def test_disk_and_memory() -> None:
    """A slab that fits into memory is said to; one that does not has an order advised."""
    assert "10x slower than from memory" in advice(results(), "know")
    large = results(stored=10**10)
    assert "Loader(order=Blocked())" in advice(large, "do")
    assert "fits into memory" not in advice(large, "know")
    assert "disk" not in advice(results(cold=None), "know")


def test_threads_and_machine() -> None:
    """Threads are advised where they help, and a busy machine is named."""
    assert "2 threads read 1.8x as fast" in advice(results(), "good")
    assert "Loader(threads=1)" in advice(results(threads=(10e9, 9e9)), "know")
    assert "2 threads read 1.1x as fast as one (11 GB/s)." in advice(
        results(threads=(10e9, 11e9)), "know"
    )
    assert "thread" not in advice(results(threads=(10e9,)), "know")
    assert "Times spread widely" in advice(results(width=0.8), "know")
    assert "Times spread widely" not in advice(results(), "know")


def test_a_machine_that_did_other_things_is_named_first() -> None:
    """Other programs and a host that withholds time are warned of before all other advice."""
    for words, machine in {
        "other programs on 30% of the processors": {"others": 0.3, "stolen": 0.0},
        "5.0% of their time withheld by the host": {"others": 0.0, "stolen": 0.05},
        "load 1.5 at the start": {"load": 1.5},
    }.items():
        outcome = results()
        outcome.machine |= machine
        assert words in advise(outcome)[0].text
        assert "measure again when it is idle" in advise(outcome)[0].text
    quiet = results()
    quiet.machine |= {"others": 0.05, "stolen": 0.0, "load": 9.0}
    assert "busy" not in advice(quiet, "do")


def test_images() -> None:
    """What decoding costs beside reading is said."""
    text = advice(results(images=True), "know")
    assert "decoded at 5,000 a second by one thread and at 9,091 by a Loader" in text
    assert "reading their bytes takes 5.0 % of that" in text
    assert "`jpeg,short-side=256`" in text


def test_images_stored_as_pixels() -> None:
    """JPEG is slower to decode than pixels that are stored: it is not advised instead of them."""
    text = advice(results(images=True, fields=({"name": "image", "codec": "yuv420"},)), "know")
    assert "store fewer pixels" in text
    assert "jpeg" not in text


def test_threads_decode() -> None:
    """Where images are decoded, one thread is not advised because bytes come no faster."""
    text = advice(results(images=True, threads=(10e9, 9e9)), "know")
    assert "More threads did not read faster" in text
    assert "threads=1" not in text
