"""Photographs decoded and cropped by SPDL, with FFmpeg's decoders and filters."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import spdl.io

from fieldslab.bench.peers.formats.spdl import run
from fieldslab.bench.peers.formats.views import SIZE, Views

SCALE, RATIO = (0.08, 1.0), (3 / 4, 4 / 3)


class Jpeg(Views):
    """JPEG files as they are, each decoded whole, then cropped and scaled by a filter."""

    configuration = (
        "demux_image, decode_packets with the filters crop and scale, convert_frames; a pipeline "
        "whose tasks are batches, as many at once as threads"
    )
    distributions = ("spdl_io", "numpy")

    def convert(self) -> None:
        """There is nothing to convert: SPDL has no format, and takes what is in memory."""

    def open(self) -> None:
        """The source is mapped already."""

    def loader(self, workers: int, seed: int) -> Iterator[Any]:
        """A shuffled epoch with as many threads."""
        rows = np.random.default_rng(seed).permutation(len(self.source))
        batches = [rows[start : start + self.batch] for start in range(0, len(rows), self.batch)]
        tasks = list(zip(batches, np.random.SeedSequence(seed).spawn(len(batches)), strict=True))
        return run(tasks, self._views, max(workers, 1))

    def _views(self, task: tuple[np.ndarray, Any]) -> dict[str, np.ndarray]:
        rows, seed = task
        rng = np.random.default_rng(seed)
        frames, labels = [], []
        for row in rows.tolist():
            values = self.source.row(row)
            packets = spdl.io.demux_image(values["image"])
            crop = draw(rng, packets.width, packets.height)
            filters = f"crop={crop},scale={SIZE}:{SIZE}:flags=bilinear,format=pix_fmts=rgb24"
            frames.append(spdl.io.decode_packets(packets, filter_desc=filters))
            labels.append(values["label"])
        images = spdl.io.to_numpy(spdl.io.convert_frames(frames))
        return {"image": images, "label": np.array(labels)}


def draw(rng: np.random.Generator, width: int, height: int) -> str:
    """A crop as torchvision's RandomResizedCrop draws it, as FFmpeg's filter takes it."""
    for _ in range(10):
        area = width * height * rng.uniform(*SCALE)
        ratio = np.exp(rng.uniform(*np.log(RATIO)))
        across, down = round((area * ratio) ** 0.5), round((area / ratio) ** 0.5)
        if 0 < across <= width and 0 < down <= height:
            left, top = rng.integers(width - across + 1), rng.integers(height - down + 1)
            return f"{across}:{down}:{left}:{top}"
    side = min(width, height)
    return f"{side}:{side}"
