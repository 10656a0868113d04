"""Photographs of a slab, decoded and cropped by its loader."""

from collections.abc import Iterator
from typing import Any

from fieldslab.bench.peers.formats.views import SIZE, Views
from fieldslab.reader import Loader, RandomResizedCrop, Shuffled, open_slab


class Jpeg(Views):
    """JPEG files as they are, with the index that pack makes."""

    configuration = "--image image; Loader, decode=[RandomResizedCrop(224)]"
    distributions = ("fieldslab", "numba")
    image = "image"

    @classmethod
    def prepare(cls) -> None:
        """Import the packer."""
        import fieldslab.packer  # noqa: F401

    def convert(self) -> None:
        """Pack Arrow batches."""
        from fieldslab.packer import pack

        pack(self.source.batches(), self.folder / "data.slab", image=self.image)

    def open(self) -> None:
        """Open the slab."""
        self.slab = open_slab(self.folder / "data.slab")

    def loader(self, workers: int, seed: int) -> Iterator[Any]:
        """A shuffled loader with as many threads."""
        steps = {"image": [RandomResizedCrop(SIZE)]}
        return iter(Loader(self.slab, self.batch, Shuffled(seed), decode=steps, threads=workers))


class Pixels(Jpeg):
    """All pixels, decoded when packed."""

    configuration = "--image image:rgb; Loader, decode=[RandomResizedCrop(224)]"
    image = "image:rgb"


class SmallPixels(Jpeg):
    """Pixels of pictures whose longer side is 256."""

    configuration = "--image image:rgb,long-side=256; Loader, decode=[RandomResizedCrop(224)]"
    image = "image:rgb,long-side=256"
