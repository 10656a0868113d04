"""Signatures of slabs: Ed25519 over `manifest.json`, in the files of minisign.

`manifest.json.minisig` lies beside the manifest, so `minisign -Vm train.slab/manifest.json -p KEY`
checks what is made here, and the other way round. The manifest holds the roots of all digests.
"""

import base64
import binascii
import hashlib
import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from fieldslab.schemas.errors import (
    BadSignature,
    DamagedArray,
    DamagedManifest,
    MissingLibrary,
    ObjectNotFound,
    OutputDenied,
    OutputError,
    OutputExists,
    SlabReplaced,
    UsageError,
)
from fieldslab.schemas.files import read_bytes, sync_directory
from fieldslab.schemas.folder import SlabFiles
from fieldslab.schemas.manifest import MANIFEST, MAX_BYTES, SIGNATURE, decode_manifest
from fieldslab.schemas.optiontext import mark_option
from fieldslab.schemas.stores.directory import DirectoryStore
from fieldslab.schemas.stores.slab_objects import SlabObjects, is_remote
from fieldslab.schemas.stores.store import Store, open_store
from fieldslab.schemas.urls import restore_url

_KEY, _HASHED = b"Ed", b"ED"
"""Algorithms as minisign names them: keys, and signatures of BLAKE2b digests."""
_CHECKSUM, _NO_KDF = b"B2", bytes(2)
_NUMBER, _SEED, _PUBLIC, _SIGNED = 8, 32, 32, 64
_MOST_BYTES = 4096
_UNTRUSTED, _TRUSTED = "untrusted comment: ", "trusted comment: "


class Signature(NamedTuple):
    """A signature of minisign.

    The number of the key, the signature of the manifest, a trusted comment, and the global
    signature, which is of the signature and the comment.
    """

    number: bytes
    signature: bytes
    comment: str
    global_signature: bytes


class PublicKey(NamedTuple):
    """A public key: its number, which tells keys apart, and the key itself."""

    number: bytes
    key: bytes

    @property
    def name(self) -> str:
        """The number, as minisign writes it."""
        return self.number[::-1].hex().upper()


def create_key(path: Path) -> Path:
    """Create a key without a password at `path`, and its public key beside it, in NAME.pub.

    Returns the path of the public key. Raises UsageError where `path` is NAME.pub, OutputExists,
    OutputDenied, OutputError and MissingLibrary.
    """
    ed25519 = _import_ed25519()
    target = path.with_suffix(".pub")
    if target == path:
        hint = f"Give {path.with_suffix('.key').name}: the public key is then {path.name}."
        raise UsageError("this name is for the public key", file=path, hint=hint)
    if os.path.exists(target):  # or a secret key without its public one would stay
        hint = "Give another name, or remove the public key."
        raise OutputExists("a public key is here already", file=target, hint=hint)
    seed, number = os.urandom(_SEED), os.urandom(_NUMBER)
    public = ed25519.Ed25519PrivateKey.from_private_bytes(seed).public_key().public_bytes_raw()
    secret = seed + public
    checksum = hashlib.blake2b(_KEY + number + secret, digest_size=32).digest()
    content = b"".join([_KEY, _NO_KDF, _CHECKSUM, bytes(48), number, secret, checksum])
    name = PublicKey(number, public).name
    _write_new(path, f"fieldslab secret key {name}", content, 0o600)
    _write_new(target, f"fieldslab public key {name}", _KEY + number + public, 0o644)
    return target


def find_signature_place(files: SlabFiles, output: Path | None = None) -> tuple[Store, str]:
    """Find where the signature of a slab goes, as a store and a key: to `output`, or into the slab.

    Raises OutputDenied for a slab where nothing can be written, as on a web server.
    """
    if output is not None:
        return DirectoryStore(output.parent), output.name
    if not isinstance(files, SlabObjects):
        return DirectoryStore(files.path), SIGNATURE
    if not files.store.can_write:
        raise OutputDenied(
            "this slab can only be read, and its signature lies in it",
            file=files.path,
            hint=f"Write the signature to a file, with {mark_option('output')}, and upload that as "
            f"{SIGNATURE}, beside {MANIFEST}.",
        )
    return files.store, SIGNATURE


def sign_slab(files: SlabFiles, key: Path, place: tuple[Store, str]) -> PublicKey:
    """Sign a slab with a key of minisign without a password; return the public key.

    The signature goes to a place of `find_signature_place`. Raises UsageError where the key is
    none, MissingLibrary, OutputDenied and OutputError.
    """
    ed25519 = _import_ed25519()
    content = _read_key(key, 158, "a secret key")
    if content[2:4] != _NO_KDF:
        raise UsageError(
            "the key has a password",
            file=key,
            hint=f"Sign {MANIFEST} with minisign itself: minisign -Sm {MANIFEST} -s {key}.",
        )
    number, secret, checksum = content[54:62], content[62:126], content[126:158]
    computed = hashlib.blake2b(_KEY + number + secret, digest_size=32).digest()
    if checksum not in (computed, bytes(32)):  # minisign writes none without a password
        raise UsageError("the key is damaged", file=key, hint="Restore it from a copy.")
    private = ed25519.Ed25519PrivateKey.from_private_bytes(secret[:_SEED])
    signature = private.sign(_digest_manifest(files))
    comment = f"timestamp:{int(time.time())}\tfile:{MANIFEST}\tid:{files.manifest.id}"
    global_signature = private.sign(signature + comment.encode())
    text = (
        f"{_UNTRUSTED}signature of a slab by fieldslab\n"
        f"{_encode(_HASHED + number + signature)}\n{_TRUSTED}{comment}\n"
        f"{_encode(global_signature)}\n"
    )
    store, name = place
    store.write(name, text.encode())
    return PublicKey(number, secret[_SEED:])


def load_public_key(
    place: str | Path, storage_options: Mapping[str, Any] | None = None
) -> PublicKey:
    """Load the public key in a file, or at a URL.

    Raises UsageError for anything else, MissingLibrary, and what stores raise.
    """
    _import_ed25519()
    content = _read_key(place, 42, "a public key", storage_options)
    return PublicKey(content[2:10], content[10:])


def read_signature(files: SlabFiles) -> bytes | None:
    """Read the signature of an open slab, whatever it is; None where there is none."""
    with files.open_folder() as folder:
        if folder.find_size(SIGNATURE) is None:
            return None
        with folder.open_file(SIGNATURE, DamagedArray) as (fd, size):
            return bytes(read_bytes(fd, min(size, _MOST_BYTES), 0, files.path / SIGNATURE))


def parse_signature(text: bytes, path: Path) -> Signature:
    """Parse a signature of minisign. Raises BadSignature for what is none."""
    try:
        _, first, comment, second, *_ = text.decode().splitlines()
        signed, global_signature = (
            base64.b64decode(line, validate=True) for line in (first, second)
        )
    except (ValueError, binascii.Error):
        raise _make_bad_error(path, "the signature cannot be read") from None
    number, signature = signed[2:10], signed[10:]
    if signed[:2] != _HASHED or len(signature) != _SIGNED or not comment.startswith(_TRUSTED):
        raise _make_bad_error(path, "the signature is of an unknown kind", expected="minisign")
    return Signature(number, signature, comment.removeprefix(_TRUSTED), global_signature)


def check_signature(files: SlabFiles, key: PublicKey) -> str:
    """Check the signature of an open slab; return its trusted comment.

    What was signed is then the manifest that the slab was opened with.

    Raises
    ------
    BadSignature
        The signature is missing or damaged, or of another key or another manifest.
    SlabReplaced
        Another manifest is there by now.
    MissingLibrary
        The library is missing.
    """
    ed25519 = _import_ed25519()
    path = files.path / SIGNATURE
    text = read_signature(files)
    if text is None:
        raise BadSignature(
            "the slab is not signed", file=path, hint="`fieldslab sign` signs a slab."
        )
    parsed = parse_signature(text, path)
    if parsed.number != key.number:
        raise _make_bad_error(
            path,
            "it was signed with another key",
            expected=key.name,
            found=PublicKey(parsed.number, b"").name,
        )
    from cryptography.exceptions import InvalidSignature

    try:
        public = ed25519.Ed25519PublicKey.from_public_bytes(key.key)
        public.verify(parsed.signature, _digest_manifest(files))
        public.verify(parsed.global_signature, parsed.signature + parsed.comment.encode())
    except InvalidSignature:
        problem = "the signature does not fit: the manifest is not the one that was signed"
        raise _make_bad_error(path, problem) from None
    return parsed.comment


def read_manifest_bytes(files: SlabFiles) -> bytes:
    """Read the manifest of a slab as it stands there. Raises SlabReplaced for that of another."""
    path = files.path / MANIFEST
    with files.open_folder() as folder, folder.open_file(MANIFEST, DamagedManifest) as (fd, size):
        data = bytes(read_bytes(fd, min(size, MAX_BYTES + 1), 0, path))
    if decode_manifest(data, path).id != files.manifest.id:
        raise SlabReplaced("was replaced while it was read", file=files.path, hint="Try again.")
    return data


def _digest_manifest(files: SlabFiles) -> bytes:
    return hashlib.blake2b(read_manifest_bytes(files)).digest()


def _read_key(
    path: str | Path, size: int, what: str, storage_options: Mapping[str, Any] | None = None
) -> bytes:
    """Read a file of minisign: a comment, and a line of base64 with so many bytes."""
    try:
        if is_remote(path):
            folder, _, name = restore_url(path).rpartition("/")
            data = bytes(open_store(folder, storage_options).read_small(name, _MOST_BYTES) or b"")
        else:
            data = Path(path).read_bytes()[:_MOST_BYTES]
        content = base64.b64decode(data.decode().splitlines()[1], validate=True)
    except (FileNotFoundError, ObjectNotFound) as error:
        hint = "`fieldslab sign` makes keys, too, as its help says."
        raise UsageError("there is no key here", file=path, hint=hint) from error
    except OSError as error:
        raise UsageError(f"the key cannot be read: {error.strerror}", file=path) from error
    except (ValueError, IndexError, binascii.Error):
        content = b""
    if len(content) != size or content[:2] != _KEY:
        raise UsageError(
            f"this is not {what} of minisign",
            file=path,
            hint="`fieldslab sign` makes two files: NAME.key, to sign with, and NAME.pub, to check "
            "with.",
        )
    return content


def _write_new(path: Path, comment: str, content: bytes, mode: int) -> None:
    try:
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
        with open(fd, "w", encoding="utf-8") as file:
            file.write(f"{_UNTRUSTED}{comment}\n{_encode(content)}\n")
            file.flush()
            os.fsync(fd)
        sync_directory(path.parent)
    except FileExistsError as error:
        hint = "Sign with it, or give another name."
        raise OutputExists("a key is here already", file=path, hint=hint) from error
    except OSError as error:
        raise _make_output_error(error, path) from error


def _encode(content: bytes) -> str:
    return base64.b64encode(content).decode()


def _make_bad_error(path: Path, problem: str, **context: Any) -> BadSignature:
    hint = "Do not trust the slab: get it, or the public key, from its author again."
    return BadSignature(problem, file=path, hint=hint, **context)


def _make_output_error(error: OSError, path: Path) -> OutputError:
    kind = OutputDenied if isinstance(error, PermissionError) else OutputError
    return kind(f"cannot be written: {error.strerror}", file=path)


def _import_ed25519() -> Any:
    try:
        from cryptography.hazmat.primitives.asymmetric import ed25519
    except ImportError as error:
        raise MissingLibrary(
            "signatures need cryptography, which is not installed",
            hint="Install it: pip install 'cryptography>=42'",
        ) from error
    return ed25519
