"""What notebooks show of slabs and batches."""

import base64
import io
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from tests.slabs import array_path, flip, images, ragged, write_slab

from fieldslab.reader import open_slab
from fieldslab.schemas.images import read_image_size

EVIL = "<script>alert('x')</script>&\"'"
GOLDEN = Path(__file__).parents[1] / "golden" / "images"


class Page(HTMLParser):
    """Tags, pictures, and the cells of every table row."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.pictures: list[Image.Image] = []
        self.rows: list[list[str]] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Count a tag; decode the picture of an image."""
        self.tags.append(tag)
        if tag == "tr":
            self.rows.append([])
        if tag in ("td", "th"):
            self.rows[-1].append("")
        if tag == "img":
            kind, _, data = (dict(attrs)["src"] or "").partition(",")
            assert kind == "data:image/png;base64"
            self.pictures.append(Image.open(io.BytesIO(base64.b64decode(data))))

    def handle_data(self, data: str) -> None:
        """Add text to its cell."""
        if self.rows and self.rows[-1]:
            self.rows[-1][-1] += data


@pytest.fixture
def columns() -> dict[str, Any]:
    """Eight rows of several kinds, with names and texts that are markup."""
    encoded = [(GOLDEN / name).read_bytes() for name in ("tiny.jpeg", "tiny.png")] * 4
    sizes = [read_image_size(memoryview(image))[1:] for image in encoded]
    return {
        EVIL: np.arange(8),
        "text": [EVIL] * 8,
        "list": ragged([range(row) for row in range(8)], "int32"),
        "bytes": [b"<b>" * row for row in range(8)],
        "image": images(encoded, np.array(sizes)),
    }


def test_everything_from_data_is_escaped(tmp_path: Path, columns: dict[str, Any]) -> None:
    """Names and texts that are markup are shown as text, by slabs and by batches."""
    slab = open_slab(write_slab(tmp_path / "<i>.slab", columns))
    for shown in (slab, slab.gather([7, 0, 1])):
        page = Page(shown._repr_html_())
        assert set(page.tags) == {
            "div",
            "p",
            "b",
            "table",
            "thead",
            "tbody",
            "tr",
            "th",
            "td",
            "img",
        }
        fields = {row[0]: row[2:] for row in page.rows[1:]}
        assert fields.keys() == columns.keys()
        assert fields["text"][0] == EVIL


def test_first_rows_are_shown(tmp_path: Path, columns: dict[str, Any]) -> None:
    """A slab shows its first rows, a batch those gathered first, with their numbers."""
    slab = open_slab(write_slab(tmp_path / "a.slab", columns))
    page = Page(slab[2:]._repr_html_())
    assert page.rows[0][2:] == [f"row {row}" for row in range(5)]
    assert page.rows[1][1:] == ["int64", "2", "3", "4", "5", "6"]
    page = Page(slab.gather([7, 0])._repr_html_())
    assert page.rows[0] == ["field", "type", "row 7", "row 0"]
    fields = {row[0]: row[1:] for row in page.rows[1:]}
    assert fields["list"] == ["Ragged", "7: 0, 1, 2, 3, 4, 5, …", "0: no values"]
    assert fields["bytes"] == ["Binary", "21 bytes", "0 bytes"]


def test_images_are_thumbnails(tmp_path: Path) -> None:
    """An encoded image becomes a small PNG; one that is damaged, a text."""
    data = io.BytesIO()
    Image.new("RGB", (300, 200), (255, 0, 0)).save(data, "JPEG")
    encoded = [data.getvalue(), b"no image"]
    column = images(encoded, np.array([[200, 300], [0, 0]]))
    slab = open_slab(write_slab(tmp_path / "a.slab", {"image": column}))
    for shown in (slab, slab.gather([0, 1])):
        page = Page(shown._repr_html_())
        (picture,) = page.pictures
        assert max(picture.size) == 64
        red, green, blue = picture.getpixel((10, 10))  # type: ignore[misc]
        assert red > 240 > 15 > max(green, blue)
        assert page.rows[1][3] == "image, 8 bytes"


def test_damage_is_said_in_its_cell(tmp_path: Path) -> None:
    """A field that cannot be read says why, and the others are shown."""
    path = write_slab(tmp_path / "a.slab", {"x": np.arange(3), "y": np.arange(3) + 5})
    flip(array_path(path, "x"))
    rows = Page(open_slab(path)._repr_html_()).rows
    assert "digest" in rows[1][2]
    assert rows[2][2:] == ["5", "6", "7"]


def test_wide_and_empty_slabs(tmp_path: Path) -> None:
    """Twenty fields are shown and the others counted; a slab without rows has none."""
    wide = {f"f{index:02d}": np.arange(1) for index in range(25)}
    html = open_slab(write_slab(tmp_path / "wide.slab", wide))._repr_html_()
    assert len(Page(html).rows) == 21
    assert "and 5 more fields" in html
    empty = open_slab(write_slab(tmp_path / "empty.slab", {"x": np.zeros(0)}))
    assert Page(empty._repr_html_()).rows == [["field", "type"], ["x", "float64"]]
    assert Page(empty.gather([])._repr_html_()).rows == [["field", "type"], ["x", "float64"]]
