"""Photographs decoded and cropped by FFCV."""

from collections.abc import Callable, Iterator
from functools import cache
from io import BytesIO
from typing import Any

import numpy as np
from ffcv.fields import IntField, RGBImageField
from ffcv.fields.decoders import IntDecoder, RandomResizedCropRGBImageDecoder
from ffcv.fields.rgb_image import IMAGE_MODES
from ffcv.loader import Loader, OrderOption
from ffcv.writer import DatasetWriter
from PIL import Image

from fieldslab.bench.peers.formats.ffcv import epoch
from fieldslab.bench.peers.formats.views import SIZE, Views
from fieldslab.bench.peers.source import Workload

_LOADER = "Loader, RandomResizedCropRGBImageDecoder((224, 224)), os_cache=True, OrderOption.RANDOM"


class Jpeg(Views):
    """JPEG files as they are. Loaders are kept, since FFCV compiles its code anew for each."""

    configuration = f"RGBImageField, mode jpg, with the files' own bytes; {_LOADER}"
    distributions = ("ffcv", "numba", "numpy", "torch")

    def convert(self) -> None:
        """Write files and labels."""
        self._write(Files(), bytes)

    def open(self) -> None:
        """Loaders open the file themselves."""
        self._loader = cache(self._make_loader)

    def loader(self, workers: int, seed: int) -> Iterator[Any]:
        """The next shuffled epoch with as many threads."""
        return epoch(self._loader(workers))

    def _write(self, field: RGBImageField, image_of: Callable[[bytes], Any]) -> None:
        path = str(self.folder / "data.beton")
        writer = DatasetWriter(path, {"image": field, "label": IntField()}, num_workers=1)
        writer.from_indexed_dataset(Pairs(self.source, image_of))

    def _make_loader(self, threads: int) -> Any:
        decoder = RandomResizedCropRGBImageDecoder((SIZE, SIZE))
        return Loader(
            str(self.folder / "data.beton"),
            self.batch,
            threads,
            os_cache=True,
            seed=0,
            order=OrderOption.RANDOM,
            drop_last=False,
            custom_fields={"image": RGBImageField},
            pipelines={"image": [decoder], "label": [IntDecoder()]},
        )


class Pixels(Jpeg):
    """All pixels."""

    configuration = f"RGBImageField, write_mode='raw'; {_LOADER}"

    def convert(self) -> None:
        """Write pixels and labels."""
        self._write(RGBImageField(write_mode="raw"), picture)


class SmallPixels(Jpeg):
    """Pixels of pictures whose longer side is 256: the fastest that FFCV has for pixels."""

    configuration = f"RGBImageField, write_mode='raw', max_resolution=256; {_LOADER}"

    def convert(self) -> None:
        """Write pixels and labels."""
        self._write(RGBImageField(write_mode="raw", max_resolution=256), picture)


class Files(RGBImageField):  # type: ignore[misc]
    """Stores files as they are; FFCV's own field would encode pixels anew."""

    def encode(self, destination: Any, image: bytes, malloc: Any) -> None:
        """Called by FFCV's writer for each image."""
        destination["mode"] = IMAGE_MODES["jpg"]
        destination["width"], destination["height"] = picture(image).size
        destination["data_ptr"], storage = malloc(len(image))
        storage[:] = np.frombuffer(image, np.uint8)


class Pairs:
    """Image and label of each row, as FFCV's writer wants them."""

    def __init__(self, source: Workload, image_of: Callable[[bytes], Any]) -> None:
        self.source = source
        self.image_of = image_of

    def __len__(self) -> int:
        return len(self.source)

    def __getitem__(self, row: int) -> tuple[Any, int]:
        """One row."""
        values = self.source.row(row)
        return self.image_of(values["image"]), int(values["label"])


def picture(file: bytes) -> Image.Image:
    """A file as Pillow decodes it."""
    return Image.open(BytesIO(file)).convert("RGB")
