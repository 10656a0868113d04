"""The manifest: what it says comes back, and whatever is not strictly right is refused."""

import hashlib
import json
import re
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.naming import case

from fieldslab.schemas.errors import DamagedManifest, FieldslabError, UnsupportedVersion
from fieldslab.schemas.fields import MAX_COUNT, CategoryTable, Field, Logical
from fieldslab.schemas.manifest import (
    MAX_BYTES,
    Content,
    Manifest,
    Provenance,
    Shard,
    create_manifest,
    decode_manifest,
    encode_manifest,
)

ROOT = "0" * 64
MADE = Provenance(tool="tests", time="2000-01-01T00:00:00+00:00", plan=ROOT)
FIELDS = (
    Field(name="x", stem="00-x", kind="fixed", dtype="float32", shape=(3, 2), nullable=True),
    Field(name="größe ", stem="01-gr_e", kind="ragged", dtype="int16"),
    Field(name="s", stem="02-s", kind="text", logical=Logical("json"), attributes={"a": [1, 2.5]}),
    Field(name="c", stem="03-c", kind="categorical", dtype="int32", categories=("ä", "\n", "")),
    Field(name="d", stem="04-d", kind="categorical", dtype="int32", table=CategoryTable(2, 5)),
    Field(name="i", stem="05-i", kind="image", codec="mixed", nullable=True, index=8, coded=True),
)
SHARDS = (Shard(5, (9, 4, 7), (0, 5), ROOT, (3,)), Shard(2, (0, 0, 0), (1, 0), ROOT, (0,)))


def manifest() -> Manifest:
    """A manifest with a bit of everything."""
    attributes = {"name": "tests", "nested": {"b": [None, True, 1e-3], "a": "\u2028"}}
    return create_manifest(
        MADE, rows=7, fields=FIELDS, shards=SHARDS, tables=ROOT, attributes=attributes
    )


def members() -> dict[str, Any]:
    """The same as plain JSON values, without the seal."""
    document: dict[str, Any] = json.loads(encode_manifest(manifest()))
    del document["sha256"]
    return document


def sealed(body: bytes) -> bytes:
    """Bytes of a manifest: `body` is everything in front of the seal."""
    seal = hashlib.sha256(body).hexdigest()
    return body + b',\n"sha256": "' + seal.encode() + b'"\n}\n'


def forged(content: dict[str, Any], by_lines: bool = False) -> bytes:
    """A manifest of these members with a right seal, and a right id where one can be computed.

    With `by_lines`, shards stand as `encode_manifest` writes them.
    """
    kept = {key: content[key] for key in Content.__struct_fields__ if key in content}
    text = json.dumps(kept, sort_keys=True, ensure_ascii=False, separators=(",", ":"))
    digest = hashlib.sha256(text.encode(errors="surrogatepass")).hexdigest()
    body = json.dumps(content | {"id": digest})[:-1]
    if by_lines:
        shards = json.dumps(content["shards"])
        body = body.replace(f' "shards": {shards}', f'\n"shards": [\n{shards[1:-1]}\n]')
        assert "\n]" in body
    return sealed(body.encode())


def refuse(data: bytes) -> str:
    """The message with which `data` is refused."""
    with pytest.raises(DamagedManifest) as caught:
        decode_manifest(data, "s/manifest.json")
    message = str(caught.value)
    assert message.startswith("s/manifest.json: ")
    assert "pack the slab again" in message
    return message


def test_round_trip() -> None:
    """What was encoded is decoded, and encodes to the same bytes."""
    data = encode_manifest(manifest())
    assert decode_manifest(data) == manifest()
    assert encode_manifest(decode_manifest(data)) == data


def test_empty_slab() -> None:
    """A manifest without fields, rows and shards is a manifest."""
    empty = create_manifest(MADE, rows=0, fields=(), shards=())
    assert decode_manifest(encode_manifest(empty)) == empty


def test_any_json_reader_can_read_it() -> None:
    """The bytes are one JSON object in UTF-8, a member, a field or a shard a line."""
    data = encode_manifest(manifest())
    assert list(json.loads(data)) == [
        "format",
        "version",
        "rows",
        "fields",
        "shards",
        "tables",
        "attributes",
        "made",
        "id",
        "sha256",
    ]
    assert data.decode().count("\n  {") == len(FIELDS) + len(SHARDS)


def test_id_is_that_of_the_canonical_form() -> None:
    """The id is the SHA-256 of the content as sorted, compact JSON, as FORMAT.md tells it."""
    content = members()
    stated_id, _ = content.pop("id"), content.pop("made")
    text = json.dumps(content, sort_keys=True, ensure_ascii=False, separators=(",", ":"))
    assert hashlib.sha256(text.encode()).hexdigest() == stated_id


def test_id_does_not_depend_on_order_or_making() -> None:
    """Members in another order, or made at another time, have the same id."""
    backwards = dict(reversed(members().items()))
    backwards["fields"] = [dict(reversed(field.items())) for field in backwards["fields"]]
    backwards["attributes"] = {
        "nested": {"a": "\u2028", "b": [None, True, 1e-3]},
        "name": "tests",
    }
    backwards["made"] = {"tool": "other", "time": "now", "plan": "1" * 64}
    body = json.dumps(backwards)[:-1].encode()
    assert decode_manifest(sealed(body)).id == manifest().id


def test_id_does_not_depend_on_spelt_out_defaults() -> None:
    """A member that says what is the default anyway changes nothing."""
    spelt = members()
    spelt["fields"][1] |= {"shape": [], "nullable": False, "codec": None, "attributes": {}}
    assert decode_manifest(sealed(json.dumps(spelt)[:-1].encode())).id == manifest().id


def change(path: str, value: Any) -> dict[str, Any]:
    """The members with the value at a path, such as `fields.3.shape`, replaced."""
    content = members()
    *way, last = path.split(".")
    place: Any = content
    for step in way:
        place = place[int(step) if isinstance(place, list) else step]
    place[int(last) if isinstance(place, list) else last] = value
    return content


WRONG = [
    ("rows", 7.0, "$.rows"),
    ("rows", "7", "$.rows"),
    ("rows", True, "$.rows"),
    ("rows", -1, "$.rows"),
    ("rows", 8, "$.rows"),
    ("rows", MAX_COUNT + 1, "$.rows"),
    ("rows", 2**200, "$.rows"),
    ("rows", None, "$.rows"),
    ("format", "Fieldslab", "format"),
    ("version", True, "$.version"),
    ("version", 1.0, "$.version"),
    ("version", "1", "$.version"),
    ("fields", {}, "$.fields"),
    ("fields.0", [], "$.fields[0]"),
    ("fields.0.name", 5, "$.fields[0].name"),
    ("fields.0.kind", "object", "$.fields[0].kind"),
    ("fields.0.dtype", "object", "$.fields[0].dtype"),
    ("fields.0.dtype", "<f4", "$.fields[0].dtype"),
    ("fields.0.shape", [3, -1], "$.fields[0].shape[1]"),
    ("fields.3.shape", 4, "$.fields[3].shape"),
    ("fields.0.shape", [1] * 31, "$.fields[0].shape"),
    ("fields.0.shape", [0, 2**48, 2**48], "$.shards[0]"),
    ("fields.0.nullable", 1, "$.fields[0].nullable"),
    ("fields.0.colour", "red", "$.fields[0]"),
    ("fields.0.stem", "../x", "$.fields[0].stem"),
    ("fields.0.stem", "00-x\n", "$.fields[0].stem"),
    ("fields.0.stem", "00-x/y", "$.fields[0].stem"),
    ("fields.0.stem", "01-x", "$.fields[0].stem"),
    ("fields.0.stem", "00-" + "x" * 41, "$.fields[0].stem"),
    ("fields.0.name", "s", "$.fields"),
    ("fields.0.codec", "jpeg", "$.fields[0]"),
    ("fields.2.logical", {"type": "pickle"}, "$.fields[2].logical.type"),
    ("fields.2.logical", {"type": "json", "extra": 1}, "$.fields[2].logical"),
    ("fields.3.categories", ["a", "a"], "$.fields[3]"),
    ("fields.3.categories", ["a", 1], "$.fields[3].categories[1]"),
    ("fields.4.table", {"count": 2}, "$.fields[4].table"),
    ("fields.4.table.bytes", -5, "$.fields[4].table.bytes"),
    ("shards", [], "$.rows"),
    ("shards.0.rows", 0, "$.shards[0].rows"),
    ("shards.0.rows", 6, "$.rows"),
    ("shards.1.elements", [0], "$.shards[1]"),
    ("shards.1.elements", [0, 0, 0, 0], "$.shards[1]"),
    ("shards.1.elements.2", 2**48 + 1, "$.shards[1].elements[2]"),
    ("shards.1.nulls", [], "$.shards[1]"),
    ("shards.1.nulls", [3, 0], "$.shards[1].nulls"),
    ("shards.1.points", [], "$.shards[1]"),
    ("shards.1.points", [0, 0], "$.shards[1]"),
    ("shards.1.points", [-1], "$.shards[1].points[0]"),
    ("fields.5.index", -1, "$.fields[5].index"),
    ("fields.5.index", 8193, "$.fields[5].index"),
    ("fields.5.index", None, "$.shards[0]"),
    ("fields.5.coded", 1, "$.fields[5].coded"),
    ("fields.0.index", 8, "$.fields[0]"),
    ("shards.0.root", "0" * 63, "$.shards[0].root"),
    ("shards.0.root", "A" * 64, "$.shards[0].root"),
    ("shards.0.root", "0" * 64 + "\n", "$.shards[0].root"),
    ("shards.0.path", "/etc", "$.shards[0]"),
    ("tables", None, "$.tables"),
    ("tables", "", "$.tables"),
    ("attributes", [], "$.attributes"),
    ("made", {}, "$.made"),
    ("made.secret", 1, "$.made"),
    ("surprise", 1, "surprise"),
]


def test_wrong_members_are_refused_by_path() -> None:
    """A well-sealed manifest that says what cannot be is refused, with the place."""
    for path, value, where in WRONG:
        with case(path, value):
            assert where in refuse(forged(change(path, value)))
            if path.startswith("shards."):
                assert where in refuse(forged(change(path, value), by_lines=True))


SHARD = '{"rows": 5, "elements": [9, 4, 7], "nulls": [0, 5], "root": "' + ROOT + '", "points": [3]}'
NOT_SHARDS = {
    "duplicate key": SHARD.replace('"rows": 5', '"rows": 5, "rows": 5'),
    "duplicate key, escaped": SHARD.replace('"rows": 5', '"rows": 5, "r\\u006fws": 5'),
    "duplicate points": SHARD.replace('"points"', '"points": [], "points"'),
    "a whole float": SHARD.replace("9", "9.0"),
    "a whole power": SHARD.replace("9", "9e0"),
    "a leading zero": SHARD.replace("9", "09"),
    "a plus": SHARD.replace("9", "+9"),
    "a number of 5000 digits": SHARD.replace("9", "9" * 5000),
    "NaN": SHARD.replace("9", "NaN"),
    "a comma too many": SHARD + ",",
    "no comma": SHARD + SHARD,
    "nothing": "",
    "a form feed": SHARD.replace("9", "\f9"),
    "200,000 nested brackets": SHARD.replace("9", "[" * 200_000 + "]" * 200_000),
    "half a surrogate pair": SHARD.replace(ROOT, "\\ud800" * 64),
    "another list behind it": SHARD + "\n], [\n" + SHARD,
    "another member of this name": SHARD + '\n],\n"shards": [\n' + SHARD,
}


def test_json_of_shards_is_strict() -> None:
    """Shards are read by a parser of their own, which takes no more than the other one."""
    data = encode_manifest(manifest())
    body = data[: data.rindex(b',\n"sha256"')].decode()
    assert SHARD in body
    for name, shard in NOT_SHARDS.items():
        with case(name):
            refuse(sealed(body.replace(SHARD, shard).encode()))


def test_shards_elsewhere_are_no_shards() -> None:
    """What looks like the shards, but stands deeper in a manifest, is not taken for them."""
    options = f'"options": {{\n"shards": [\n{SHARD}\n]}}, '
    body = BODY.replace('"made": {', '"made": {' + options)
    decoded = decode_manifest(sealed(body.encode()))
    assert decoded.shards == manifest().shards
    assert decoded.made.options == {"shards": [json.loads(SHARD)]}
    shards = json.dumps(members()["shards"])
    assert "$.rows" in refuse(sealed(body.replace(f'"shards": {shards}', '"shards": []').encode()))


def test_members_of_shards_come_in_any_order() -> None:
    """Members in another order, with spaces, or spelt out though empty, say the same."""
    manifest = create_manifest(MADE, rows=3, fields=(), shards=(Shard(3, (), (), ROOT),))
    data = encode_manifest(manifest)
    body = data[: data.rindex(b',\n"sha256"')].decode()
    shard = '{"rows": 3, "elements": [], "nulls": [], "root": "' + ROOT + '"}'
    assert shard in body
    for other in (
        '{"root": "' + ROOT + '",\t"nulls" :[ ],"elements":[\n],"rows":3}',
        shard.replace('"}', '", "points": []}'),
        shard.replace("rows", "r\\u006fws"),
    ):
        with case(other):
            assert decode_manifest(sealed(body.replace(shard, other).encode())) == manifest


@pytest.mark.parametrize("member", ["rows", "fields", "shards", "made", "version"])
def test_members_cannot_be_left_out(member: str) -> None:
    """A manifest without one of its members is refused."""
    content = members()
    del content[member]
    assert member in refuse(forged(content))


def test_wrong_id_is_refused() -> None:
    """The id must be the digest of the content."""
    content = members() | {"id": "0" * 64}
    assert "$.id" in refuse(sealed(json.dumps(content)[:-1].encode()))


BODY = json.dumps(members())[:-1]
NOT_JSON = {
    "duplicate key": BODY.replace('"rows": 7', '"rows": 7, "rows": 7'),
    "duplicate key deep inside": BODY.replace('"a": [1, 2.5]', '"a": 1, "a": 2'),
    "NaN": BODY.replace("2.5", "NaN"),
    "infinity": BODY.replace("2.5", "-Infinity"),
    "a number beyond float64": BODY.replace("2.5", "1e999"),
    "a number of 5000 digits": BODY.replace("2.5", "9" * 5000),
    "half a surrogate pair": BODY.replace('"name": "s"', '"name": "\\ud83d"'),
    "half a surrogate pair where nobody looks": BODY.replace('"tests"', '"\\udc80"'),
    "200,000 nested brackets": BODY.replace("2.5", "[" * 200_000 + "]" * 200_000),
    "200,000 nested objects": BODY.replace("2.5", '{"a":' * 200_000 + "1" + "}" * 200_000),
    "a comment": BODY.replace("2.5", "2.5 /* */"),
    "a comma too many": BODY.replace("2.5", "2.5,"),
    "a control character": BODY.replace('"tests"', '"\x01"'),
    "a byte order mark": "\ufeff" + BODY,
    "a list": "[" + BODY,
}


def test_json_is_strict() -> None:
    """What a lenient parser would take is refused, however well it is sealed."""
    for name, body in NOT_JSON.items():
        assert body != BODY, name
        with case(name):
            refuse(sealed(body.encode()))


def test_nesting_that_only_just_parses_is_refused() -> None:
    """No depth of nesting ends in anything but a manifest or a named error."""
    for depth in range(100, 1000, 25):
        body = BODY.replace("2.5", "[" * depth + "]" * depth)
        try:
            decode_manifest(sealed(body.encode()))
        except DamagedManifest:
            continue


def test_escaped_pairs_are_good_json() -> None:
    """A character beyond U+FFFF may be written as two escapes, as other JSON writers do."""
    body = BODY.replace('"tool": "tests"', '"tool": "\\ud83d\\ude00"')
    assert decode_manifest(sealed(body.encode())).made.tool == "😀"


@pytest.mark.parametrize(
    "data",
    [b"", b"{}", b"null", b"[]", b'"fieldslab"', b"\xff\xfe", b"\x00" * 100, b"{" * 10, b"7"],
)
def test_other_files_are_refused(data: bytes) -> None:
    """A file that is something else is refused."""
    refuse(data)


def test_too_large_is_refused_unparsed() -> None:
    """A manifest of more than 16 MiB is refused, whatever it holds."""
    assert "too large" in refuse(encode_manifest(manifest()) + b" " * MAX_BYTES)


def test_what_follows_the_seal_is_refused() -> None:
    """The seal is the end: not a space may follow."""
    assert "checksum" in refuse(encode_manifest(manifest()) + b" ")
    assert "checksum" in refuse(encode_manifest(manifest())[:-1])


def test_seal_must_be_the_last_member() -> None:
    """A seal inside another member is none."""
    data = encode_manifest(manifest())
    moved = data.replace(
        b'"made": {', b'"made": {"x": {"y": 1,\n"sha256": "' + b"0" * 64 + b'"\n},'
    )
    assert "checksum" in refuse(moved)


def test_every_flipped_bit_is_found() -> None:
    """Whichever bit of a manifest is flipped, it is refused."""
    data = bytearray(encode_manifest(manifest()))
    for index in range(8 * len(data)):
        data[index // 8] ^= 1 << index % 8
        with pytest.raises(FieldslabError):
            decode_manifest(bytes(data))
        data[index // 8] ^= 1 << index % 8


def test_every_truncation_is_found() -> None:
    """A manifest cut anywhere is refused."""
    data = encode_manifest(manifest())
    for size in range(0, len(data), 3):
        refuse(data[:size])


@pytest.mark.parametrize("version", [0, 2, 99, -1, 10**30])
def test_other_versions_are_refused_by_name(version: int) -> None:
    """A manifest of another version is UnsupportedVersion, however different it looks."""
    data = json.dumps({"format": "fieldslab", "version": version, "rooms": []}).encode()
    with pytest.raises(UnsupportedVersion, match=re.escape("Upgrade fieldslab")) as caught:
        decode_manifest(data)
    assert (caught.value.context["expected"], caught.value.context["found"]) == (1, version)


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@given(st.dictionaries(st.text(), JSON, max_size=4), st.text())
def test_any_attributes_and_names_come_back(attributes: dict[str, Any], name: str) -> None:
    """Attributes of any JSON and names of any text survive, and so does the id."""
    field = Field(name=name, stem="00-x", kind="text", attributes=attributes)
    manifest = create_manifest(MADE, rows=0, fields=(field,), shards=(), attributes=attributes)
    assert decode_manifest(encode_manifest(manifest)) == manifest


@given(JSON)
def test_any_json_is_a_manifest_or_a_named_error(content: Any) -> None:
    """Arbitrary JSON, sealed or not, never raises anything but DamagedManifest."""
    text = json.dumps(content).encode()
    refuse(text)
    refuse(sealed(text[:-1]))


@given(st.sampled_from([path for path, _, _ in WRONG if path != "version"]), JSON)
def test_any_value_in_any_place_is_taken_or_refused(path: str, value: Any) -> None:
    """Arbitrary JSON in any member gives a valid manifest or DamagedManifest."""
    try:
        actual = decode_manifest(forged(change(path, value)))
    except DamagedManifest:
        return
    assert msgspec.convert(msgspec.to_builtins(actual), Manifest) == actual
