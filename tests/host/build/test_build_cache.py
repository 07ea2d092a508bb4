# SPDX-License-Identifier: GPL-2.0-or-later
"""The cache: what has a name is whole, and the name changes with what it was made from."""

from __future__ import annotations

import contextlib
import errno
import multiprocessing
import os
import time
from pathlib import Path
from typing import Any

import pytest

from hmmbench.base.errors import EnvironmentFailure
from hmmbench.build import cache
from hmmbench.build.programs import guard_disk


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HMMBENCH_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def test_digest_tells_lists_apart() -> None:
    assert cache.digest("ab", "c") != cache.digest("a", "bc")
    assert cache.digest("a") == cache.digest(b"a")


def test_sources_digest_follows_content_name_and_mode(tmp_path: Path) -> None:
    tree = tmp_path / "tree"
    tree.mkdir()

    def now() -> str:
        return cache.sources_digest(cache.read_sources(tree))

    (tree / "a.c").write_text("one")
    seen = {now()}
    os.utime(tree / "a.c", (1, 1))
    assert now() in seen, "times do not matter"
    (tree / "a.o").write_text("a build product")
    assert now() in seen, "products do not matter"
    (tree / "a.c").write_text("two")
    seen.add(now())
    (tree / "a.c").rename(tree / "b.c")
    seen.add(now())
    (tree / "b.c").chmod(0o755)
    seen.add(now())
    assert len(seen) == 4


def test_what_was_hashed_is_what_is_written(tmp_path: Path) -> None:
    source, target = tmp_path / "source", tmp_path / "target"
    source.mkdir()
    (source / "a.c").write_text("hashed")
    read = cache.read_sources(source)
    (source / "a.c").write_text("edited while the build began")
    cache.sync_sources(read, target)
    assert (target / "a.c").read_text() == "hashed"


def test_publish_is_all_or_nothing(own_cache: Path) -> None:
    def broken(folder: Path) -> None:
        (folder / "half").write_text("x")
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        cache.publish("thing", "key", broken)
    assert cache.find("thing", "key") is None
    assert list((own_cache / "artefacts").iterdir()) == [], "no staging folder is left"

    made = cache.publish("thing", "key", lambda folder: (folder / "file").touch())
    assert cache.find("thing", "key") == made
    assert (made / "file").exists()


def test_publish_twice_keeps_the_first() -> None:
    first = cache.publish("thing", "key", lambda folder: (folder / "1").touch())
    again = cache.publish("thing", "key", lambda folder: (folder / "2").touch())
    assert first == again
    assert (again / "1").exists()


def _filled(folder: Path) -> None:
    (folder / "below").mkdir()
    (folder / "below" / "file").write_text("sound")


@pytest.mark.parametrize("damage", ["shorter", "other", "gone"])
def test_what_is_damaged_is_made_again(damage: str) -> None:
    """By a full disk, say, or somebody's hand; what was only touched is whole."""
    made = cache.publish("thing", "key", _filled)
    file = made / "below" / "file"
    os.utime(file, (1, 1))
    assert cache.find("thing", "key") == made
    if damage == "gone":
        file.unlink()
    else:
        file.write_text("soun" if damage == "shorter" else "sounD")
    assert cache.find("thing", "key") is None
    assert cache.publish("thing", "key", _filled) == made
    assert cache.find("thing", "key") == made
    assert file.read_text() == "sound"


@pytest.mark.parametrize("check", [None, "", "{", "[]", "{}", '{"below/file": 5}'])
def test_an_artefact_without_a_check_is_made_again(check: str | None) -> None:
    """Nobody knows what it held: what damaged the check may have damaged the rest."""
    made = cache.publish("thing", "key", _filled)
    (made / "below" / "file").write_text("soun")
    (made / cache.CHECK).unlink()
    if check is not None:
        (made / cache.CHECK).write_text(check)
    assert cache.find("thing", "key") is None
    assert cache.publish("thing", "key", _filled) == made
    assert cache.find("thing", "key") == made
    assert (made / "below" / "file").read_text() == "sound"


def test_trees_that_nobody_uses_are_pruned(
    own_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trees = [own_cache / name for name in ("work/a", "work/b", "src/a", "venv-1", "venv-2")]
    for tree in trees:
        (tree / "inside").mkdir(parents=True)
        # Archives give their folders the times they had.
        os.utime(tree, (1, 1))
    monkeypatch.setattr("sys.prefix", str(own_cache / "venv-2"))
    cache.prune_trees()
    assert all(tree.is_dir() for tree in trees), "seen for the first time"
    for mark in (own_cache / "used").iterdir():
        os.utime(mark, (1, 1))
    cache.used(own_cache / "work/b")
    cache.prune_trees()
    assert [tree.is_dir() for tree in trees] == [False, True, False, False, True]
    assert {mark.name for mark in (own_cache / "used").iterdir()} == {
        f"{tree.parent.name}-{tree.name}" for tree in trees if tree.is_dir()
    }


@pytest.mark.parametrize("how", ["built in", "marked"])
def test_a_tree_in_use_is_not_pruned(
    how: str, own_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its mark was old when pruning began: the clock was set, or somebody has just come."""
    tree = own_cache / "work/a"
    tree.mkdir(parents=True)
    mark = own_cache / "used/work-a"
    cache.used(tree)
    os.utime(mark, (1, 1))
    with contextlib.ExitStack() as stack:
        if how == "built in":
            stack.enter_context(cache.lock("a"))
        else:
            now, lock = time.time(), cache.lock

            def marks_first(name: str, **words: Any) -> contextlib.AbstractContextManager[None]:
                os.utime(mark, (now, now))
                return lock(name, **words)

            monkeypatch.setattr(cache, "lock", marks_first)
        cache.prune_trees()
    assert tree.is_dir()


def test_old_artefacts_are_pruned() -> None:
    for number in range(cache.KEEP + 3):
        made = cache.publish("thing", f"{number:02}", _filled)
        os.utime(made, (number, number))
    cache.publish("thing", "last", _filled)
    assert cache.find("thing", "last")
    assert cache.find("thing", "00") is None


def test_artefacts_in_use_stay() -> None:
    for number in range(cache.KEEP + 3):
        cache.publish("thing", f"{number:02}", _filled)
    assert cache.find("thing", "00")


def test_disk_full_is_a_sentence(tmp_path: Path) -> None:
    def fill(folder: Path) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with pytest.raises(EnvironmentFailure, match="disk is full"):
        cache.publish("thing", "key", fill)
    assert cache.find("thing", "key") is None
    with pytest.raises(PermissionError), guard_disk(tmp_path):
        raise PermissionError


def test_write_atomically_leaves_the_old_text_on_failure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "stamp"
    cache.write_atomically(path, "old")

    def fail(self: Path, target: Path) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Path, "replace", fail)
    with pytest.raises(EnvironmentFailure):
        cache.write_atomically(path, "new")
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_damaged_stamp_counts_as_none(tmp_path: Path) -> None:
    path = tmp_path / "stamp"
    for text in ("", "{", "[]", "\x00"):
        path.write_text(text)
        assert cache.stamp_read(path) == {}


def test_sync_touches_only_what_changed(tmp_path: Path) -> None:
    source, target = tmp_path / "source", tmp_path / "target"
    source.mkdir()
    (source / "a.c").write_text("a")
    (source / "b.h").write_text("b")
    assert cache.sync_sources(cache.read_sources(source), target) == (True, True)
    os.utime(target / "a.c", (1, 1))
    (target / "a.o").write_text("product")
    assert cache.sync_sources(cache.read_sources(source), target) == (False, False)
    (source / "b.h").write_text("new")
    assert cache.sync_sources(cache.read_sources(source), target) == (True, False)
    assert (target / "a.c").stat().st_mtime == 1, "make must not compile it again"
    (source / "a.c").unlink()
    assert cache.sync_sources(cache.read_sources(source), target) == (True, True)
    assert not (target / "a.c").exists()
    assert (target / "a.o").exists(), "products stay"


def _hold(name: str, seconds: float) -> None:
    with cache.lock(name):
        time.sleep(seconds)


def test_lock_waits_and_can_be_given_up() -> None:
    holder = multiprocessing.get_context("fork").Process(target=_hold, args=("work", 30))
    holder.start()
    try:
        time.sleep(0.3)
        told: list[str] = []

        def give_up() -> None:
            raise KeyboardInterrupt

        with (
            pytest.raises(KeyboardInterrupt),
            cache.lock("work", lambda: told.append("waiting"), give_up),
        ):
            pytest.fail("the lock was held twice")
        assert told == ["waiting"]
    finally:
        holder.kill()
        holder.join()
    with cache.lock("work"):
        pass  # the lock died with its holder
