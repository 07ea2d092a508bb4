# SPDX-License-Identifier: GPL-2.0-or-later
"""The cache: artefacts named by the hash of what they were made from.

Two kinds of folder. An *artefact* is made in a temporary folder and renamed into place when it
is whole, so that what has the name is always whole. A *work tree* (QEMU's or the kernel's build
folder) stays where it is, because build systems write absolute paths and are incremental; a
stamp says which inputs it was finished for, and it is only used under a lock.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hmmbench.base import paths
from hmmbench.base.errors import EnvironmentFailure
from hmmbench.build.programs import guard_disk

#: Artefacts of one kind that are kept; older ones go when a new one is published.
KEEP = 24

#: But none that was used within this time (seconds): a campaign boots its machine again and again.
IN_USE = 48 * 3600

#: Trees of work/ and src/, and Python environments, go when they were not used for so long
#: (seconds).  They are made again, in minutes.
UNUSED = 45 * 24 * 3600

#: No build step takes this long (seconds).
LEFTOVER_AGE = 6 * 3600

_SOURCE_SUFFIXES = {".c", ".h", ".S", ".build", ".py"}


def digest(*parts: str | bytes) -> str:
    """A short name for these inputs. Lengths are hashed too, so that no two lists collide."""
    sha = hashlib.sha256()
    for part in parts:
        data = part.encode() if isinstance(part, str) else part
        sha.update(len(data).to_bytes(8, "little"))
        sha.update(data)
    return sha.hexdigest()[:20]


def file_digest(path: Path) -> str:
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()[:20]


def tree_files(root: Path, skip: Iterable[str] = ()) -> list[Path]:
    """Source files below `root`, sorted; build products and editors' files left out."""
    skipped = {".git", "__pycache__", *skip}
    bad = (".o", ".ko", ".mod", ".mod.c", ".cmd", ".swp", ".orig", ".rej", "~")
    found = []
    for folder, folders, files in os.walk(root):
        folders[:] = sorted(name for name in folders if name not in skipped)
        found += [Path(folder, name) for name in files if not name.endswith(bad)]
    return sorted(found)


@contextmanager
def lock(
    name: str,
    waiting: Callable[[], None] = lambda: None,
    check: Callable[[], None] = lambda: None,
) -> Iterator[None]:
    """Only one process of this user works on `name`; the lock dies with its holder.

    `waiting` is called once if another holds it, `check` all the while: it may raise to give up.
    """
    path = paths.cache_dir("locks") / name
    with guard_disk(path), path.open("a+") as handle:
        told = False
        while True:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if not told:
                    waiting()
                    told = True
                check()
                time.sleep(0.2)
        yield


def artefact(kind: str, key: str) -> Path:
    return paths.cache_root() / "artefacts" / f"{kind}-{key}"


def find(kind: str, key: str) -> Path | None:
    """The artefact, if it was published."""
    path = artefact(kind, key)
    if not path.is_dir():
        return None
    if not _whole(path):
        _remove(path)
        return None
    with contextlib.suppress(OSError):
        os.utime(path)  # so that pruning knows it is in use
    return path


#: In each artefact: what its files were when it was whole.
CHECK = ".check.json"


def _note(path: Path) -> None:
    files = {}
    for file in path.rglob("*"):
        if file.is_file() and not file.is_symlink() and file.name != CHECK:
            at = file.stat()
            files[str(file.relative_to(path))] = [at.st_size, at.st_mtime_ns, file_digest(file)]
    stamp_write(path / CHECK, files)


def _whole(path: Path) -> bool:
    """Whether it still holds what it held; contents are read only where a time has changed, so
    that a start costs nothing."""
    known = stamp_read(path / CHECK)
    if not known:
        # What it held is not known: the check was lost, or it is from before there were any.
        return False
    try:
        for name, (size, time_ns, sha) in known.items():
            at = (path / name).stat()
            if at.st_size != size:
                return False
            if at.st_mtime_ns != time_ns and file_digest(path / name) != sha:
                return False
    except (OSError, TypeError, ValueError):
        return False
    return True


def _remove(path: Path) -> None:
    """Out of sight at once: another process may look for it."""
    gone = path.with_name(f".{path.name}-{os.getpid()}")
    with contextlib.suppress(OSError):
        path.rename(gone)
    shutil.rmtree(gone, ignore_errors=True)


def publish(kind: str, key: str, fill: Callable[[Path], None]) -> Path:
    """Make an artefact: `fill` gets an empty folder; it gets its name when `fill` is done."""
    final = artefact(kind, key)
    parent = paths.cache_dir("artefacts")
    with guard_disk(final):
        staging = Path(tempfile.mkdtemp(prefix=f".{kind}-", dir=parent))
        try:
            fill(staging)
            _note(staging)
            staging.chmod(0o755)
            try:
                staging.rename(final)
            except OSError:
                # Another process was first: its artefact is the same by its name.
                if not final.is_dir():
                    raise
        finally:
            shutil.rmtree(staging, ignore_errors=True)
    prune(kind)
    return final


def prune(kind: str, keep: int = KEEP) -> None:
    """Remove the artefacts of this kind that were used longest ago, if that is long."""
    young = time.time() - IN_USE
    with contextlib.suppress(OSError):
        entries = sorted(
            paths.cache_dir("artefacts").glob(f"{kind}-*"),
            key=lambda path: path.stat().st_mtime,
            reverse=True,
        )
        for old in entries[keep:]:
            if old.stat().st_mtime < young:
                _remove(old)


def used(path: Path) -> Path:
    """A tree of work/ or src/, or an environment, that is in use: pruning leaves it."""
    mark = paths.cache_dir("used") / f"{path.parent.name}-{path.name}"
    # (a full disk included)
    with contextlib.suppress(OSError, EnvironmentFailure), lock(_MARKS):
        mark.touch()
    return path


#: The lock of the marks in used/.
_MARKS = "used-trees"


def _busy() -> None:
    raise BlockingIOError


def prune_trees() -> None:
    """Remove work trees, sources and Python environments that nobody has used for long.  One that
    is seen for the first time counts as used now.

    Who builds in a tree holds the lock of its name: such a tree stays, whatever the clock says.
    Who uses it without that lock has marked it before, and marks are made under a lock of their
    own, under which a tree is seen to be old and put out of sight.  So it is there for as long as
    its user needs it, or it is gone when its user looks.
    """
    root = paths.cache_root()
    # (by which way ever the cache is reached)
    if Path(sys.prefix).resolve().parent == root.resolve():
        used(Path(sys.prefix).resolve())
    old = time.time() - UNUSED
    for tree in [*root.glob("work/[!.]*"), *root.glob("src/[!.]*"), *root.glob("venv-*")]:
        mark = root / "used" / f"{tree.parent.name}-{tree.name}"
        with contextlib.suppress(OSError):
            if not tree.is_dir():
                continue
            if not mark.exists():
                used(tree)
            elif mark.stat().st_mtime < old:
                with lock(tree.name, waiting=_busy):
                    _retire(tree, mark, old)


def _retire(tree: Path, mark: Path, old: float) -> None:
    """Remove a tree, if nobody has marked it meanwhile.  Caller holds the tree's lock."""
    gone = tree.with_name(f".{tree.name}-{os.getpid()}")
    with lock(_MARKS):
        if mark.stat().st_mtime >= old:
            return
        mark.unlink()
        # Whole or not there: what is half removed would be taken for a tree.
        tree.rename(gone)
    shutil.rmtree(gone, ignore_errors=True)


def remove_leftovers() -> None:
    """Temporary folders of processes that were killed. Young ones may still be in use."""
    for folder in ("artefacts", "src", "work"):
        for path in paths.cache_dir(folder).glob(".*"):
            with contextlib.suppress(OSError):
                if time.time() - path.stat().st_mtime > LEFTOVER_AGE:
                    shutil.rmtree(path, ignore_errors=True)


def stamp_read(path: Path) -> dict[str, Any]:
    """What a work tree was finished for; empty if it was not, or the stamp is damaged."""
    try:
        data = json.loads(path.read_text())
    except (OSError, ValueError):
        return {}
    return data if isinstance(data, dict) else {}


def write_atomically(path: Path, text: str) -> None:
    with guard_disk(path):
        fd, name = tempfile.mkstemp(prefix=f".{path.name}-", dir=path.parent)
        try:
            with os.fdopen(fd, "w") as stream:
                stream.write(text)
            Path(name).replace(path)
        except BaseException:
            Path(name).unlink(missing_ok=True)
            raise


def stamp_write(path: Path, data: dict[str, Any]) -> None:
    write_atomically(path, json.dumps(data, indent=1))


@dataclass(frozen=True)
class SourceFile:
    """A source as it was read once: what is hashed is what is compiled, even if the file in the
    checkout changes in between."""

    data: bytes
    mode: int


#: sources by their place in a build folder
Sources = dict[Path, SourceFile]


def read_sources(root: Path, below: str = ".", skip: Iterable[str] = ()) -> Sources:
    """The files of a source folder, placed in the folder `below`."""
    return {
        Path(below) / path.relative_to(root): SourceFile(
            path.read_bytes(), path.stat().st_mode & 0o777
        )
        for path in tree_files(root, skip)
    }


def sources_digest(sources: Sources) -> str:
    return digest(
        *(
            part
            for at, file in sorted(sources.items())
            for part in (str(at), file.data, str(bool(file.mode & 0o100)))
        )
    )


def write_changed(data: bytes, target: Path, mode: int = 0o644) -> bool:
    """Write a file if its content differs, so that times change only where content did."""
    if target.is_file() and target.read_bytes() == data:
        return False
    target.parent.mkdir(parents=True, exist_ok=True)
    with guard_disk(target):
        target.write_bytes(data)
        target.chmod(mode | 0o200)
    return True


def sync_sources(wanted: Sources, target: Path) -> tuple[bool, bool]:
    """Make the sources below `target` those wanted. Build products in it stay.

    Returns whether anything changed, and whether the set of names did.
    """
    changed = renamed = False
    for path in tree_files(target) if target.is_dir() else []:
        # A source that is gone must not be compiled; products are told by their suffix.
        if path.relative_to(target) not in wanted and path.suffix in _SOURCE_SUFFIXES:
            path.unlink()
            renamed = True
    for name, file in wanted.items():
        new = not (target / name).exists()
        if write_changed(file.data, target / name, file.mode):
            changed = True
            renamed |= new
    return changed or renamed, renamed
