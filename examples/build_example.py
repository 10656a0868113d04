"""Rebuild photos.parquet: small JPEG crops of freely licensed photographs, with annotations.

The pictures come from inside the wheels of scikit-image and scikit-learn; nothing is fetched.
Run by hand, in an environment of its own, from the root of the checkout::

    python3 -m venv build/example-venv
    build/example-venv/bin/pip install -c constraints.txt \
        numpy pyarrow pillow scikit-image scikit-learn
    build/example-venv/bin/python examples/build_example.py

The same versions write the same bytes. Who made the pictures, and under which licence:
examples/README.md.
"""

import io
import json
from dataclasses import dataclass
from importlib import resources
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq
from PIL import Image, ImageOps

TARGET = Path(__file__).with_name("photos.parquet")
SEED = 20
ROWS_PER_GROUP = 16
JPEG_QUALITY = 90
SIDES = (200, 500)  # pixels, shortest and longest side of a crop
ASPECTS = (1.0, 4 / 3, 3 / 2, 16 / 9, 3 / 4, 2 / 3)  # width / height
UNWEIGHTED = 12  # rows whose weight is null


@dataclass(frozen=True)
class Picture:
    """One source picture: where it lies, how many crops to take, what to say about them."""

    label: str
    package: str
    file: str
    crops: int
    captions: tuple[str, ...]


PICTURES = (
    Picture(
        "camera",
        "skimage.data",
        "camera.png",
        2,
        (
            "A photographer behind a camera on a tripod, in black and white.",
            "Ein Fotograf mit Stativ, im Hintergrund hohe Gebäude.",
        ),
    ),
    Picture(
        "cat",
        "skimage.data",
        "chelsea.png",
        16,
        (
            "A tabby cat looks just past the camera.",
            "Chelsea the cat, close enough to count the whiskers.",
            "Eine getigerte Katze mit weißen Schnurrhaaren.",
            "Un chat tigré, les oreilles dressées.",
            "カメラのそばを見つめる猫。",
        ),
    ),
    Picture(
        "coffee",
        "skimage.data",
        "coffee.png",
        20,
        (
            "A cup of espresso on a wooden table.",
            "A spoon rests on the saucer beside the cup.",
            "Un café serré et sa cuillère, posés sur une table en bois.",
            "Kaffee in einer rotbraunen Tasse, daneben ein Löffel.",
        ),
    ),
    Picture(
        "deep field",
        "skimage.data",
        "hubble_deep_field.jpg",
        16,
        (
            "Thousands of galaxies in a patch of sky smaller than the Moon.",
            "Every smudge of light here is a galaxy of its own.",
            "Far away galaxies: spirals, ellipses and faint red points.",
            "Des galaxies lointaines, photographiées par le télescope Hubble.",
        ),
    ),
    Picture(
        "flower",
        "sklearn.datasets.images",
        "flower.jpg",
        22,
        (
            "A dahlia in full bloom.",
            "Petals in rows, each one curled towards the middle.",
            "Eine Dahlie, deren Blütenblätter sich nach innen rollen.",
            "Une fleur de dahlia, vue de très près.",
            "Una dalia abierta; detrás, hojas verdes.",
        ),
    ),
    Picture(
        "retina",
        "skimage.data",
        "retina.jpg",
        12,
        (
            "The back of a healthy left eye, with the blood vessels spreading out.",
            "Blood vessels on the retina.",
            "Netzhaut eines linken Auges; die Gefäße verzweigen sich.",
        ),
    ),
    Picture(
        "rocket",
        "skimage.data",
        "rocket.jpg",
        18,
        (
            "A Falcon 9 with the DSCOVR satellite on board, waiting on its pad.",
            "Dusk at Cape Canaveral: a rocket, lattice masts and the lights of the pad.",
            "Une fusée sur son pas de tir, juste après le coucher du soleil.",
            "夕暮れの発射台に立つロケット。",
        ),
    ),
    Picture(
        "temple",
        "sklearn.datasets.images",
        "china.jpg",
        22,
        (
            "A Chinese tower with curved, tiled roofs above a hazy lake.",
            "Trees, a pale sky over the water, and the eaves of a painted tower.",
            "Ein chinesischer Turm mit geschwungenen Dächern über einem See.",
            "Une tour aux toits recourbés, entourée d'arbres, au bord d'un lac.",
            "湖边的中国古塔。",
        ),
    ),
)


def load(picture: Picture) -> Image.Image:
    """Read a source picture; the very large ones are halved, so that crops show something."""
    with resources.files(picture.package).joinpath(picture.file).open("rb") as stream:
        source = Image.open(stream)
        image = source.convert("L" if source.mode == "L" else "RGB")
    return image.reduce(2) if min(image.size) > 800 else image


def crop(image: Image.Image, rng: np.random.Generator) -> Image.Image:
    """Cut a rectangle of random size, aspect and place, mirrored half of the time."""
    shortest, longest = SIDES
    aspect = ASPECTS[rng.integers(len(ASPECTS))]
    widest = min(image.width, longest, image.height * aspect, longest * aspect)
    narrowest = shortest * max(1.0, aspect)
    width = round(rng.uniform(min(narrowest, widest), widest))
    height = min(round(width / aspect), image.height)
    left = int(rng.integers(image.width - width + 1))
    top = int(rng.integers(image.height - height + 1))
    part = image.crop((left, top, left + width, top + height))
    return ImageOps.mirror(part) if rng.random() < 0.5 else part


def to_jpeg(image: Image.Image, rng: np.random.Generator) -> bytes:
    """Encode with full (4:4:4) or halved (4:2:0) colour resolution."""
    subsampling = "4:4:4" if rng.random() < 0.4 else "4:2:0"
    stream = io.BytesIO()
    image.save(stream, "JPEG", quality=JPEG_QUALITY, subsampling=subsampling, optimize=True)
    return stream.getvalue()


def histogram(image: Image.Image) -> npt.NDArray[np.float32]:
    """Return the share of pixels in each of 16 colour bins: 2 of red, 4 of green, 2 of blue."""
    pixels = np.asarray(image.convert("RGB"), dtype=np.int64).reshape(-1, 3)
    red, green, blue = pixels.T
    bins = (red >> 7) * 8 + (green >> 6) * 2 + (blue >> 7)
    return (np.bincount(bins, minlength=16) / len(bins)).astype(np.float32)


def huggingface_metadata() -> bytes:
    """Describe the columns as HuggingFace `datasets` does, with the names of the labels."""

    def value(dtype: str) -> dict[str, object]:
        return {"dtype": dtype, "_type": "Value"}

    features = {
        "image": value("binary"),
        "label": {"names": [picture.label for picture in PICTURES], "_type": "ClassLabel"},
        "caption": value("string"),
        "tokens": {"feature": value("int32"), "_type": "List"},
        "weight": value("float32"),
        "embedding": {"feature": value("float32"), "length": 16, "_type": "List"},
    }
    return json.dumps({"info": {"features": features}}).encode()


def build() -> pa.Table:
    """Make all rows, in a shuffled order that stays the same from run to run."""
    rng = np.random.default_rng(SEED)
    labels = [i for i, picture in enumerate(PICTURES) for _ in range(picture.crops)]
    images = [load(picture) for picture in PICTURES]
    rows = []
    for label in rng.permutation(labels).tolist():
        picture = PICTURES[label]
        part = crop(images[label], rng)
        caption = picture.captions[rng.integers(len(picture.captions))]
        rows.append(
            {
                "image": to_jpeg(part, rng),
                "label": label,
                "caption": caption,
                "tokens": list(caption.encode()),  # one token a UTF-8 byte
                "weight": len(labels) / (len(PICTURES) * picture.crops),  # balances the labels
                "embedding": histogram(part),
            }
        )
    for i in rng.choice(len(rows), UNWEIGHTED, replace=False):
        rows[i]["weight"] = None
    fields: list[tuple[str, pa.DataType]] = [
        ("image", pa.binary()),
        ("label", pa.int64()),
        ("caption", pa.string()),
        ("tokens", pa.list_(pa.int32())),
        ("weight", pa.float32()),
        ("embedding", pa.list_(pa.float32(), 16)),
    ]
    schema = pa.schema(fields, metadata={b"huggingface": huggingface_metadata()})
    return pa.Table.from_pylist(rows, schema)


def main() -> None:
    """Write photos.parquet beside this file."""
    table = build()
    pq.write_table(
        table, TARGET, row_group_size=ROWS_PER_GROUP, compression="zstd", write_page_checksum=True
    )
    print(f"{TARGET.name}: {table.num_rows} rows, {TARGET.stat().st_size / 1e6:.2f} MB")


if __name__ == "__main__":
    main()
