"""Makes views of all shapes with all memory between guard pages: `make campaign-views`.

Pixels, planes, index points, scratch memory and output are no larger than they must be, and end or
begin at a page that nobody may touch: a read or write beside them ends the process. A view must not
depend on what the memory held before, and is what Pillow makes of the same box, where it is RGB.
What is found is printed with its seed; the exit status then is 1.
"""

import faulthandler
import random
import sys
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from tests.campaigns import options, say
from tests.guarded import Guarded
from tests.jpegs import SAMPLINGS, encode, photograph
from tests.reader.decoders.decoding import crops_of, encoded
from tests.reader.pixels.pictures import FORMS, ONE, ZERO, resized
from tests.turbojpegs import library_of

from fieldslab.reader.decoders.decoder import Crops, EncodedImages, Target
from fieldslab.reader.decoders.planes import Planes
from fieldslab.reader.decoders.roi import Roi
from fieldslab.reader.decoders.turbojpeg import TurboJpeg
from fieldslab.reader.pixels import finish, store
from fieldslab.schemas.images import CODES
from fieldslab.schemas.jit import make_zero_record

Box = tuple[int, int, int, int]

ROOM = 2**27
_SIDES = (1, 2, 3, 7, 8, 15, 16, 17, 31, 32, 33, 47, 64, 100)
_SHAPES = ((1, 1), (1, 700), (700, 1), (2, 700), (224, 224))


class View(NamedTuple):
    """What to make: `first` and `flip` as `write_view` has them, `at_end` where memory ends."""

    picture: tuple[int, int]
    box: Box
    size: tuple[int, int]
    form: int
    first: bool
    flip: bool
    at_end: bool


def make_view(rng: random.Random) -> View:
    """Mostly small; sometimes of an extreme shape."""
    height, width = rng.choice(_SIDES), rng.choice(_SIDES)
    if rng.randrange(12) == 0:
        height, width = rng.choice([(1, 5000), (5000, 1), (300, 400), (2, 3001)])
    high, wide = rng.randint(1, height), rng.randint(1, width)
    if rng.randrange(4) == 0:
        high, wide = height, width
    top, left = rng.choice([0, height - high]), rng.choice([0, width - wide])
    if rng.randrange(3):
        top, left = rng.randint(0, height - high), rng.randint(0, width - wide)
    size = rng.choice(_SIDES), rng.choice(_SIDES)
    if rng.randrange(12) == 0:
        size = rng.choice(_SHAPES)
    form, bits = rng.randrange(4), [bool(rng.randrange(2)) for _ in range(3)]
    return View((height, width), (top, left, high, wide), size, form, *bits)


class Room:
    """Guarded memory, of exactly as many bytes as are asked for."""

    def __init__(self) -> None:
        self._guarded = Guarded(ROOM)
        self.at_end = True

    def empty(self, size: int, fill: int) -> np.ndarray:
        """uint8[size]."""
        return self._guarded.take(size, self.at_end, fill)

    def holding(self, data: np.ndarray) -> int:
        """The address of a copy of these bytes."""
        copy = self.empty(data.nbytes, 0)
        copy[:] = data.reshape(-1).view(np.uint8)
        return int(copy.ctypes.data)


class Tight:
    """Scratch memory as `Scratch` gives it, without the quarter that TurboJpeg asks for more."""

    def __init__(self, room: Room, more: bool) -> None:
        self._room = room
        self._more = more
        self.fill = 0

    def get_address(self, room: int) -> int:
        """The address of as many bytes as are needed."""
        needed = room
        if self._more:
            needed = (4 * room + 3) // 5
            assert needed + needed // 4 == room
        return int(self._room.empty(needed, self.fill).ctypes.data)

    def trim(self) -> None:
        """Keep it."""


class Finish:
    """`write_view` on planes of every kind, of which there is no more than it may read."""

    def __init__(self) -> None:
        self._planes = [Room() for _ in range(3)]
        self._out, self._work = Room(), Room()

    def examine(self, rng: random.Random, view: View) -> str:
        """What is wrong, or nothing."""
        height, width = view.picture
        pixels = np.frombuffer(rng.randbytes(3 * height * width), np.uint8)
        pixels = pixels.reshape(height, width, 3)
        picture = self._picture(rng, view, pixels)
        out, again = (self._make(picture, view, fill) for fill in (0, 255))
        if (out != again).any():
            return "depends on what was in memory"
        whole = picture.kind == finish.RGB and picture.shrink == 0
        if not whole or view.form != store.UINT8:
            return ""
        out = np.moveaxis(out, 0, 2) if view.first else out
        out = out[:, ::-1] if view.flip else out
        off = np.abs(out.astype(int) - resized(pixels, view.box, view.size)).max()
        return f"is not what Pillow makes, by {off}" if off > 1 else ""

    def _picture(self, rng: random.Random, view: View, pixels: np.ndarray) -> Any:
        """Planes of the box, and of chroma around it at times, in guarded memory."""
        picture = make_zero_record(finish.PICTURE)
        picture.kind = kind = rng.choice([finish.GREY, finish.YCC, finish.RGB])
        picture.shrink = rng.choice([0, 0, 0, 1, 2, 3])
        picture.chroma_shrink = rng.choice([0, 0, 1, 2, 3])
        top, left, high, wide = view.box
        if kind == finish.YCC:
            above, before = rng.randint(0, min(top, 3)), rng.randint(0, min(left, 3))
            below = rng.randint(0, min(view.picture[0] - top - high, 3))
            behind = rng.randint(0, min(view.picture[1] - left - wide, 3))
            top, left = top - above, left - before
            high, wide = high + above + below, wide + before + behind
            picture.height, picture.width = high, wide
            picture.across, picture.down = rng.randrange(2), rng.randrange(2)
        picture.top, picture.left = top, left
        for plane in range(3 if kind == finish.YCC else 1):
            down = across = picture.shrink
            if plane > 0:
                down = picture.chroma_shrink + picture.down
                across = picture.chroma_shrink + picture.across
            rows = slice(top >> down, -(-(top + high) >> down))
            columns = slice(left >> across, -(-(left + wide) >> across))
            samples = pixels[rows, columns]
            if kind != finish.RGB:
                samples = samples[..., plane]
            if plane < 2:
                spare = rng.choice([0, 0, 1, 40])
            lines = samples.reshape(len(samples), -1)
            stride = lines.shape[1] + spare
            data = np.pad(lines, ((0, 0), (0, spare))).reshape(-1)
            self._planes[plane].at_end = view.at_end
            address = self._planes[plane].holding(data[: len(data) - spare])
            picture.planes[plane] = address
            picture["stride" if plane == 0 else "chroma_stride"] = stride
        return picture

    def _make(self, picture: Any, view: View, fill: int) -> np.ndarray:
        self._out.at_end = self._work.at_end = view.at_end
        dtype = np.dtype(FORMS[view.form])
        out = self._out.empty(3 * view.size[0] * view.size[1] * dtype.itemsize, fill)
        work = self._work.empty(finish.count_work_bytes(*view.box[2:], *view.size), fill)
        shape = (3, *view.size) if view.first else (*view.size, 3)
        output = store.describe_output(out.view(dtype).reshape(shape), view.first, ONE, ZERO)
        finish.write_view(picture, finish.Box(*view.box), view.flip, output, 0, work.ctypes.data)
        return out.copy().view(dtype).reshape(shape)


class Decoding:
    """A decoder, for which images, index points, scratch memory and output lie between guards."""

    def __init__(self, decoder: Any, codes: list[str]) -> None:
        self._decoder = decoder
        self._codes = codes
        self._data, self._points, self._out = Room(), Room(), Room()
        self._scratch, self._work = Room(), Room()
        self._rooms = [self._data, self._points, self._out, self._scratch, self._work]
        self._tight = Tight(self._scratch, isinstance(decoder, TurboJpeg))
        if isinstance(decoder, Roi):
            decoder._memory.make_room = self._make_room  # type: ignore[method-assign]
        else:
            decoder._scratch = self._tight

    def examine(self, rng: random.Random, view: View) -> str:
        """What is wrong, or nothing."""
        height, width = view.picture
        code = rng.choice(self._codes)
        pixels = photograph(height, width, rng.randrange(4))
        if code == "rgb":
            data = pixels.tobytes()
        elif code == "yuv420":
            data = rng.randbytes(height * width + 2 * ((height + 1) // 2) * ((width + 1) // 2))
        else:
            ways: list[dict[str, Any]] = [{}, {"optimize": True}, {"restart_marker_blocks": 3}]
            options = rng.choice(ways)
            data = encode(pixels, rng.choice(SAMPLINGS), quality=rng.choice([30, 95]), **options)
        boxes = [view.box, *(make_box(rng, height, width) for _ in range(rng.randrange(3)))]
        for room in self._rooms:
            room.at_end = view.at_end
        batch, (_, points) = encoded([data], [view.picture], CODES[code])
        batch.addresses[0] = self._data.holding(np.frombuffer(data, np.uint8))
        if len(points):
            batch.points[0] = self._points.holding(points)
        crops = crops_of([boxes], view.flip)
        views = [self._make(batch, crops, view, fill) for fill in (0, 255)]
        for _, status in views:
            if status != 0:
                return f"{code} was refused: {status}"
        if (views[0][0] != views[1][0]).any():
            return "depends on what was in memory"
        return ""

    def _make(
        self, batch: EncodedImages, crops: Crops, view: View, fill: int
    ) -> tuple[np.ndarray, int]:
        self._tight.fill = fill
        if isinstance(self._decoder, Roi):
            self._put(np.empty(0, np.int32), np.empty(0, np.uint8))
        dtype = np.dtype(FORMS[view.form])
        of_view = (3, *view.size) if view.first else (*view.size, 3)
        shape = (1, crops.flips.shape[1], *of_view)
        out = self._out.empty(int(np.prod(shape)) * dtype.itemsize, fill)
        target = Target(out.view(dtype).reshape(shape), view.first, ONE, ZERO)
        statuses = self._decoder.decode(batch, np.zeros(1, np.int64), crops, target, 2**26)
        return out.copy(), int(statuses[0])

    def _make_room(self, planes: int, resize: int) -> None:
        memory = self._scratch.empty(4 * planes, self._tight.fill).view(np.int32)
        self._put(memory, self._work.empty(resize, self._tight.fill))

    def _put(self, planes: np.ndarray, resize: np.ndarray) -> None:
        memory = self._decoder._memory
        memory.workspace, memory.resize = memory.workspace._replace(planes=planes), resize


def make_box(rng: random.Random, height: int, width: int) -> Box:
    """Somewhere inside."""
    high, wide = rng.randint(1, height), rng.randint(1, width)
    return rng.randint(0, height - high), rng.randint(0, width - wide), high, wide


SUBJECTS: dict[str, Callable[[], Any]] = {
    "finish": Finish,
    "planes": lambda: Decoding(Planes(), ["rgb", "yuv420"]),
    "roi": lambda: Decoding(Roi(), ["jpeg"]),
    "turbojpeg-2": lambda: Decoding(TurboJpeg(library_of("2")), ["jpeg"]),
    "turbojpeg-3": lambda: Decoding(TurboJpeg(library_of("3")), ["jpeg"]),
}


def main() -> int:
    """Run for some minutes, or so many views; the exit status tells whether anything was found."""
    arguments = options(__doc__, "subject", SUBJECTS)
    faulthandler.enable()
    failures = 0
    names = arguments.subject or list(SUBJECTS)
    for name in names:
        subject = SUBJECTS[name]()
        until = time.monotonic() + 60 * arguments.minutes / len(names)
        count = 0
        while count < arguments.cases and time.monotonic() < until:
            rng = random.Random(arguments.seed + count)
            view = make_view(rng)
            if problem := subject.examine(rng, view):
                failures += 1
                say(f"{name}, seed {arguments.seed + count}: {problem}: {view}")
            count += 1
        say(f"{name}: {count} views from seed {arguments.seed} on")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
