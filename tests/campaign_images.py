"""Gives decoders damaged images between guard pages: `make campaign-images`.

A read outside of an image or of its index points, which may lie, ends the process. What a decoder
calls whole must not depend on what was decoded before, on what the output held, nor on where the
image lies; what it refuses must leave the output as it was. What is found is printed with its
seed; the exit status then is 1.
"""

import faulthandler
import random
import sys
import time
from collections import Counter
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from tests.campaigns import options, say
from tests.guarded import Guarded
from tests.jpegdamage import damaged
from tests.jpegs import SAMPLINGS, UNUSUAL, encode, photograph
from tests.reader.decoders.decoding import crops_of, decode, encoded
from tests.turbojpegs import library_of

from fieldslab.reader.decoders.decoder import Decoder, Status
from fieldslab.reader.decoders.roi import Roi
from fieldslab.reader.decoders.turbojpeg import TurboJpeg
from fieldslab.schemas.images import CODES, read_image_size

DECODERS: dict[str, Callable[[], Decoder]] = {
    "roi": Roi,
    "turbojpeg-2": lambda: TurboJpeg(library_of("2")),
    "turbojpeg-3": lambda: TurboJpeg(library_of("3")),
}
MOST_PIXELS = 2**20
ROOM = 2**17


def make_images() -> list[bytes]:
    """Small images of every kind that JPEG has."""
    images = [encode(photograph(75, 117, 1), sampling, quality=88) for sampling in SAMPLINGS]
    images += [make(photograph(61, 80, 2)) for make in UNUSUAL.values()]
    images.append(encode(photograph(64, 96, 3), restart_marker_blocks=2))
    images.append(encode(photograph(40, 90, 4), "4:4:4", optimize=True, comment=b"x" * 300))
    return images


class Case(NamedTuple):
    """An image before and after it was damaged, lies in its index, and what is asked of it."""

    whole: bytes
    data: bytes
    size: tuple[int, int]
    box: tuple[int, int, int, int]
    out: tuple[int, int]
    lies: tuple[tuple[int, int, int], ...] = ()
    """Point, column, and the bits in which the number is wrong."""


def make_lies(rng: random.Random) -> tuple[tuple[int, int, int], ...]:
    """Mostly none, or a few, or many."""
    numbers = range(rng.choice([0, 0, 0, 1, 3, 200]))
    bits = [lambda: 1 << rng.randrange(16), lambda: rng.randrange(2**16)]
    return tuple((rng.randrange(2**16), rng.randrange(5), rng.choice(bits)()) for _ in numbers)


def make_case(seed: int, images: list[bytes]) -> Case:
    """The same for the same seed."""
    rng = random.Random(seed)
    whole, data = damaged(rng, images)
    data = data[:ROOM]
    height, width = read_image_size(memoryview(data))[1:]
    if rng.randrange(10) == 0 or not height:
        height, width = 75, 117
    high, wide = rng.randint(1, min(height, 2000)), rng.randint(1, min(width, 2000))
    box = (rng.randint(0, height - high), rng.randint(0, width - wide), high, wide)
    out = rng.choice([(16, 16), (33, 20), (9, 5)])
    return Case(whole, data, (height, width), box, out, make_lies(rng))


class Examiner:
    """Decodes cases with one decoder, each twice, in other surroundings."""

    def __init__(self, decoder: Decoder) -> None:
        self.decoder = decoder
        self._room, self._points = Guarded(ROOM), Guarded(ROOM)
        self._before = []
        for number in range(2):
            pixels = photograph(140, 200, number)
            data = encode(pixels, "4:4:4", quality=30 + 60 * number, optimize=bool(number))
            self._before.append(Case(data, data, (140, 200), (0, 0, 140, 200), (40, 40)))

    def examine(self, case: Case) -> tuple[Status, str]:
        """What the decoder said, and what is wrong about it, or nothing."""
        results = []
        for number in range(2):
            if self._decode(self._before[number], False, 0)[0] != Status.OK:
                return Status.OK, "a whole image that was decoded before was refused"
            results.append(self._decode(case, bool(number), 255 * number))
        (status, pixels), (other, again) = results
        if status != other:
            return status, f"{status.name} at first, {other.name} then"
        if status != Status.OK and (pixels.any() or (again != 255).any()):
            return status, "something was written"
        if status == Status.OK and (pixels != again).any():
            return status, "other pixels at the second time"
        return status, ""

    def _decode(self, case: Case, at_end: bool, fill: int) -> tuple[Status, np.ndarray]:
        batch, (_, points) = encoded([case.data], [case.size], CODES["jpeg"], [case.whole])
        for number, column, bits in case.lies if len(points) else ():
            points[number % len(points), column] ^= bits
        batch.addresses[0] = self._room.put(case.data, at_end)
        batch.points[0] = self._points.put(points.tobytes(), at_end) if len(points) else 0
        out, (status,) = decode(
            self.decoder, batch, crops_of([case.box]), case.out, fill, MOST_PIXELS
        )
        return Status(int(status)), out


def main() -> int:
    """Run for some minutes, or so many cases; the exit status tells whether anything was found."""
    arguments = options(__doc__, "decoder", DECODERS)
    faulthandler.enable()
    images = make_images()
    count = 0
    names = arguments.decoder or list(DECODERS)
    for name in names:
        examiner = Examiner(DECODERS[name]())
        until = time.monotonic() + 60 * arguments.minutes / len(names)
        counts = Counter[str]()
        seed = arguments.seed
        while counts.total() < arguments.cases and time.monotonic() < until:
            status, problem = examiner.examine(make_case(seed, images))
            counts[status.name] += 1
            if problem:
                count += 1
                say(f"{name}, seed {seed}: {problem}")
            seed += 1
        say(
            f"{name}: {counts.total()} damaged images from seed {arguments.seed} on, {dict(counts)}"
        )
    return 1 if count else 0


if __name__ == "__main__":
    sys.exit(main())
