"""Whose a cache directory is."""

import os
from pathlib import Path

import pytest
from tests.naming import case

from fieldslab.schemas.errors import FieldslabError, UsageError
from fieldslab.schemas.mirror.cache import CacheDirectory, find_default_cache
from fieldslab.schemas.mirror.names import MARKER


def test_a_new_directory_is_for_its_owner(tmp_path: Path) -> None:
    """It is created with all above it, nobody else may read it, and it says what it is."""
    cache = CacheDirectory(tmp_path / "a" / "b")
    assert cache.path.stat().st_mode & 0o777 == 0o700
    assert (cache.path / MARKER).exists()
    CacheDirectory(tmp_path / "a" / "b")


def test_what_is_not_a_cache_is_left_alone(tmp_path: Path) -> None:
    """A directory with other files, a file or a link to nowhere is refused and not changed."""
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "thesis.tex").write_text("precious")
    (tmp_path / "file").write_text("precious")
    for name in ("other", "file"):
        with case(name), pytest.raises(UsageError, match=r"holds something else|not a directory"):
            CacheDirectory(tmp_path / name)
    assert os.listdir(tmp_path / "other") == ["thesis.tex"]
    CacheDirectory(tmp_path / "empty")  # and an empty one is taken


def test_a_directory_of_everybody_needs_consent(tmp_path: Path) -> None:
    """Where anybody may write, anybody could replace data; it is used if its user says so."""
    (tmp_path / "cache").mkdir()
    (tmp_path / "cache").chmod(0o777)
    with pytest.raises(UsageError, match="anybody may write into cache_dir"):
        CacheDirectory(tmp_path / "cache")
    CacheDirectory(tmp_path / "cache", shared=True)


def test_links_in_a_cache_are_not_followed(tmp_path: Path) -> None:
    """Somebody's link does not lead writing elsewhere."""
    (tmp_path / "cache").mkdir()
    for content in (None, "precious"):
        victim = tmp_path / "victim"
        if content is not None:
            victim.write_text(content)
        (tmp_path / "cache" / MARKER).unlink(missing_ok=True)
        (tmp_path / "cache" / MARKER).symlink_to(victim)
        with pytest.raises(FieldslabError, match=r"holds something else|cannot be written"):
            CacheDirectory(tmp_path / "cache")
        assert (victim.read_text() if victim.exists() else None) == content


def test_bytes_in_use_are_shared(tmp_path: Path) -> None:
    """What one reserves, another sees; only the first user is alone."""
    first, second = CacheDirectory(tmp_path / "cache"), CacheDirectory(tmp_path / "cache")
    with first.lock_room():
        assert first.is_alone()
        first.add_used_bytes(100)
        with second.try_lock_room() as locked:
            assert not locked
    with second.lock_room():
        assert second.used_bytes == 100
        assert not second.is_alone()
        second.add_used_bytes(-400)
    assert first.used_bytes == 0


def test_the_default_is_of_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """FIELDSLAB_CACHE_DIR comes first, then the place where systems keep caches."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.delenv("FIELDSLAB_CACHE_DIR", raising=False)
    assert find_default_cache() == tmp_path / "fieldslab" / "slabs"
    monkeypatch.setenv("FIELDSLAB_CACHE_DIR", str(tmp_path / "mine"))
    assert find_default_cache() == tmp_path / "mine"
