"""Signatures of slabs, and slabs that are opened by their id."""

import base64
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from tests.naming import case
from tests.servers.s3 import Bucket
from tests.servers.web import WebServer
from tests.slabs import flip, write_slab

from fieldslab.packer import FieldslabWarning, copy_slab, pack, verify
from fieldslab.reader import open_slab
from fieldslab.schemas.errors import (
    BadSignature,
    OutputError,
    SlabChanged,
    UsageError,
)
from fieldslab.schemas.folder import load_manifest, open_slab_files
from fieldslab.schemas.manifest import MANIFEST, SIGNATURE
from fieldslab.schemas.signatures import (
    check_signature,
    create_key,
    find_signature_place,
    load_public_key,
    sign_slab,
)

GOLDEN = Path(__file__).parents[1] / "golden" / "v1" / "enum.slab"
# Made by minisign 0.11: a key without a password, and its signature of the manifest of GOLDEN.
SECRET = """\
untrusted comment: minisign encrypted secret key
RWQAAEIyAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAnUzpu7Bj\
c/1UItAqntn8CuKmuNxrgnVjrOFEfLtQnCswDHd/5GsHZSaRBUOYvfW31INUoK8ssqW+4WzIT/eH90r8\
8ZQBv5CqAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=
"""
PUBLIC = """\
untrusted comment: minisign public key FD7363B0BBE94C9D
RWSdTOm7sGNz/SaRBUOYvfW31INUoK8ssqW+4WzIT/eH90r88ZQBv5Cq
"""
SIGNED = """\
untrusted comment: signature from minisign secret key
RUSdTOm7sGNz/SxmO4eC1yvjzD3smUVmEBxVhyH6noWViw7Ojdv6RbBhzcD9v3WGHk6LNa9VaYDgzVQO99Y/hRALRMSP1Onw3ww=
trusted comment: timestamp:1795379350	file:manifest.json	hashed
Ov7d29oJcOyslChzjcBDBx2PXf+rvJmCphRgPJrFq+WFePXRmnvoA9zP6ZkpDvCOTu9TlYiANg9iGg867l05Bw==
"""


@pytest.fixture
def slab(tmp_path: Path) -> Path:
    """A slab of one field."""
    return write_slab(tmp_path / "x.slab", {"x": np.arange(10)})


def test_signatures_of_minisign(tmp_path: Path, cli: Any) -> None:
    """What minisign signed is accepted, and its keys sign."""
    path = Path(shutil.copytree(GOLDEN, tmp_path / "x.slab"))
    (path / SIGNATURE).write_text(SIGNED)
    public, secret = tmp_path / "key.pub", tmp_path / "key"
    public.write_text(PUBLIC)
    secret.write_text(SECRET)
    with open_slab_files(path) as files:
        assert "file:manifest.json" in check_signature(files, load_public_key(public))
    (path / SIGNATURE).unlink()
    assert cli("sign", path, "--key", secret).code == 0
    assert cli("verify", path, "--public-key", public).code == 0


def test_a_new_key_takes_no_name_of_a_public_one(slab: Path, tmp_path: Path, cli: Any) -> None:
    """No secret key is written to NAME.pub, or beside a public key of the same name."""
    (tmp_path / "old.pub").write_text(PUBLIC)
    for name, code in (("new.pub", 2), ("old.key", 5)):
        with case(name):
            assert cli("sign", slab, "--new-key", tmp_path / name).code == code
            assert not (tmp_path / name).exists()
    assert (tmp_path / "old.pub").read_text() == PUBLIC
    assert not (slab / SIGNATURE).exists()


def test_a_signature_that_cannot_be_written_leaves_nothing(slab: Path, tmp_path: Path) -> None:
    """What was written of a signature is removed where it cannot take its place."""
    key = tmp_path / "lab.key"
    create_key(key)
    (slab / SIGNATURE).mkdir()
    names = sorted(path.name for path in slab.iterdir())
    with open_slab_files(slab) as files, pytest.raises(OutputError):
        sign_slab(files, key, find_signature_place(files))
    assert sorted(path.name for path in slab.iterdir()) == names


def test_keys_of_our_own(slab: Path, cli: Any) -> None:
    """A new key signs; the signature belongs to the slab, which is read as before."""
    key = slab.with_name("lab.key")
    done = cli("sign", slab, "--new-key", key)
    assert done.code == 0, done
    assert key.stat().st_mode & 0o777 == 0o600
    assert verify(slab).ok
    assert cli("verify", slab, "--public-key", slab.with_name("lab.pub")).code == 0
    assert open_slab(slab).gather([3])["x"].tolist() == [3]
    assert cli("sign", slab, "--new-key", key).code == 5, "the key is not overwritten"
    assert cli("sign", slab).code == 2
    scrub = cli("verify", slab, "--public-key", slab.with_name("lab.pub"), "--rate", "1M")
    assert scrub.code == 2


def test_what_was_not_signed_is_refused(slab: Path, cli: Any) -> None:
    """No signature, one of another key or manifest, damage in it: each is a named error."""
    public = slab.with_name("lab.pub")
    public.write_text(PUBLIC)
    refused = cli("verify", slab, "--public-key", public)
    assert (refused.code, "FAILED" in refused.out, "not signed" in refused.out) == (1, True, True)
    (slab / SIGNATURE).write_text(SIGNED)
    with open_slab_files(slab) as files:
        with pytest.raises(BadSignature, match="not the one that was signed"):
            check_signature(files, load_public_key(public))
        own = slab.with_name("own.key")
        assert cli("sign", slab, "--new-key", own).code == 0
        with pytest.raises(BadSignature, match="signed with another key"):
            check_signature(files, load_public_key(public))
        good = (slab / SIGNATURE).read_text()
        for number, line in enumerate(good.splitlines()[1:], 1):
            lines = good.splitlines()
            lines[number] = line[:-6] + ("B" if line[-6] == "A" else "A") + line[-5:]
            (slab / SIGNATURE).write_text("\n".join(lines))
            with case(number), pytest.raises(BadSignature):
                check_signature(files, load_public_key(own.with_suffix(".pub")))
        for text in ("", "\n" * 9, good[:60], "\xff" * 300):
            (slab / SIGNATURE).write_text(text)
            with case(text), pytest.raises(BadSignature):
                check_signature(files, load_public_key(own.with_suffix(".pub")))
    (slab / SIGNATURE).write_text(good)
    flip(slab / MANIFEST, -4096 + 30)
    assert cli("verify", slab, "--public-key", own.with_suffix(".pub")).code != 0


def test_keys_that_are_none(slab: Path, cli: Any) -> None:
    """Missing and damaged keys, public for secret ones and those with a password are refused."""
    content = bytearray(base64.b64decode(SECRET.splitlines()[1]))
    content[2:4] = b"Sc"
    locked = f"untrusted comment: x\n{base64.b64encode(content).decode()}\n"
    content[2:4], content[-1] = bytes(2), 7
    wrong = f"untrusted comment: x\n{base64.b64encode(content).decode()}\n"
    key = slab.with_name("key")
    for text, words in (
        (None, "no key here"),
        (PUBLIC, "not a secret key"),
        ("", "not a secret key"),
        (locked, "minisign -Sm"),
        (wrong, "damaged"),
    ):
        if text is not None:
            key.write_text(text)
        done = cli("sign", slab, "--key", key)
        with case(words):
            assert done.code == 2
            assert words in done.err
    assert not (slab / SIGNATURE).exists()


def test_a_slab_is_opened_by_its_id(slab: Path, tmp_path: Path) -> None:
    """The whole id or the beginning of it; another slab is refused with both ids."""
    content = load_manifest(slab).id
    for text in (content, content[:16], content.upper()):
        assert len(open_slab(slab, id=text)) == 10
    other = "0" * 64
    with pytest.raises(SlabChanged, match=rf"expected {other}, found {content}"):
        open_slab(slab, id=other)
    wrong: list[Any] = [content[:15], "x" * 64, content + "0", 7]
    for text in wrong:
        with case(text), pytest.raises(UsageError, match="not the id of a slab"):
            open_slab(slab, id=text)
    both = open_slab([slab, slab]).manifest.id
    assert len(open_slab([slab, slab], id=both[:20])) == 20
    mirrored = open_slab(slab, id=content, cache_dir=tmp_path / "cache")
    assert len(mirrored) == 10


def test_commands_pin_content_by_its_id(slab: Path, tmp_path: Path, cli: Any) -> None:
    """`--id` takes the slab that has it, or the union, and refuses any other with both ids."""
    other = write_slab(tmp_path / "other.slab", {"x": np.arange(11)})
    union = tmp_path / "both.slabs"
    assert cli("union", union, "add", slab, other).code == 0
    ids = {slab: load_manifest(slab).id, union: open_slab([slab, other]).manifest.id}
    calls: list[tuple[Any, ...]] = [
        (command, place) for command in ("verify", "info", "head") for place in (slab, union)
    ]
    calls += [
        ("rows", union, "--batch-size", 2, "--show"),
        ("advise", slab, "--batch-size", 2),
        ("copy", slab, tmp_path / "copy.slab"),
        ("export", slab, "-o", tmp_path / "x.parquet"),
        ("repack", union, tmp_path / "repacked.slab"),
    ]
    for command, place, *rest in calls:
        with case(command, place.name):
            for text in ("0" * 64, "ab", "x" * 64):
                refused = cli(command, place, *rest, "--id", text)
                assert refused.code in (2, 3), refused
                assert (ids[place] in refused.err + refused.out) == (text[0] == "0")
                assert not any(isinstance(word, Path) and word.exists() for word in rest)
            done = cli(command, place, *rest, "--id", ids[place][:20])
            assert done.code == 0, done
    assert cli("verify", slab, other, "--id", ids[slab]).code == 2
    assert "--id" in cli("verify", slab, "--id", ids[slab], "--rate", "1M").err


def test_copies_keep_their_signature(
    slab: Path, tmp_path: Path, cli: Any, bucket: Bucket, serve: Callable[..., WebServer]
) -> None:
    """A signature goes along, also to and from URLs, and to a copy that is there without one."""
    early = tmp_path / "early.slab"
    assert "signature" not in cli("copy", slab, early).out
    assert cli("sign", slab, "--new-key", tmp_path / "lab.key").code == 0
    signed = (slab / SIGNATURE).read_bytes()
    key = tmp_path / "lab.pub"
    server = serve(tmp_path)
    assert "with its signature" in cli("copy", slab, early).out
    options = [f"--storage-option={name}={value}" for name, value in bucket.options.items()]
    url = f"{bucket.url}/a.slab"
    for source, place in (
        (slab, tmp_path / "local.slab"),
        (f"{server.url}/x.slab", tmp_path / "web.slab"),
        (slab, url),
        (url, tmp_path / "back.slab"),
    ):
        with case(source, place):
            stored = options if url in (source, place) else []
            done = cli("copy", source, place, *stored)
            assert "with its signature" in done.out, done
            assert (
                cli("verify", place, "--public-key", key, *stored[: 9 * (place == url)]).code == 0
            )
    for name in ("early", "local", "web", "back"):
        assert (tmp_path / f"{name}.slab" / SIGNATURE).read_bytes() == signed
    (slab / SIGNATURE).write_text("no signature")
    with pytest.warns(FieldslabWarning, match="the signature is not copied"):
        assert not copy_slab(slab, tmp_path / "unsigned.slab").signed
    assert not (tmp_path / "unsigned.slab" / SIGNATURE).exists()


def test_slabs_at_urls_are_signed(
    slab: Path, tmp_path: Path, cli: Any, bucket: Bucket, serve: Callable[..., WebServer]
) -> None:
    """A slab in a bucket is signed there; one on a web server, to a file."""
    key, public, signature = tmp_path / "lab.key", tmp_path / "lab.pub", tmp_path / "x.minisig"
    stored = [f"--storage-option={name}={value}" for name, value in bucket.options.items()]
    url = f"{bucket.url}/a.slab"
    assert cli("copy", slab, url, *stored).code == 0
    other = cli("sign", url, "--new-key", key, "--id", "0" * 64, *stored)
    assert (other.code, key.exists()) == (3, False), other
    assert cli("sign", url, "--new-key", key, *stored).code == 0
    assert cli("verify", url, "--public-key", public, *stored).code == 0
    server = serve(tmp_path)
    place = f"{server.url}/x.slab"
    refused = cli("sign", place, "--new-key", tmp_path / "new.key")
    assert (refused.code, "--output" in refused.err) == (5, True), refused
    assert not (tmp_path / "new.key").exists()
    done = cli("sign", place, "--key", key, "--output", signature)
    assert f"{signature}: belongs into the slab" in done.out, done
    assert not (slab / SIGNATURE).exists()
    shutil.copy(signature, slab / SIGNATURE)
    assert cli("verify", place, "--public-key", public).code == 0


def test_keys_at_urls_and_unions(
    slab: Path, tmp_path: Path, cli: Any, serve: Callable[..., WebServer]
) -> None:
    """A public key may lie at a URL; of a union every slab must be signed with it."""
    other = write_slab(tmp_path / "other.slab", {"x": np.arange(11)})
    union = tmp_path / "both.slabs"
    assert cli("union", union, "add", slab, other).code == 0
    key = tmp_path / "lab.key"
    assert cli("sign", slab, "--new-key", key).code == 0
    server = serve(tmp_path)
    place, public = f"{server.url}/x.slab", f"{server.url}/lab.pub"
    assert cli("verify", place, "--public-key", public).code == 0
    for wrong, words in (("no.pub", "no key here"), ("x.slab/manifest.json", "not a public key")):
        refused = cli("verify", place, "--public-key", f"{server.url}/{wrong}")
        assert (refused.code, words in refused.err) == (2, True), refused
    refused = cli("verify", union, "--public-key", public)
    assert (refused.code, refused.out.count("not signed")) == (1, 1)
    assert cli("sign", other, "--key", key).code == 0
    assert cli("verify", union, "--public-key", public).code == 0
    assert cli("verify", f"{server.url}/both.slabs", "--public-key", public).code == 0
    checked = cli("verify", other, "--public-key", public)
    assert "signed with key" in checked.out
    assert "find accidents" in checked.err
    with open_slab_files(other) as files:
        pack(pa.table({"x": [1]}), other, force=True, digest="sha256")  # a signed one, too
        assert check_signature(files, load_public_key(key.with_suffix(".pub")))
    assert "not signed" in cli("verify", other, "--public-key", public).out
    assert not cli("verify", other, "--id", load_manifest(other).id).err
