# SPDX-License-Identifier: GPL-2.0-or-later
"""The overlay in QEMU's tree, and the user's own tree, which is never written to."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from hmmbench.base.errors import UsageError
from hmmbench.base.ui import Ui
from hmmbench.build import qemu_build
from hmmbench.build.context import Context


@pytest.fixture
def user_tree(tmp_path: Path) -> Path:
    """As much of a QEMU checkout as the hooks look at."""
    root = tmp_path / "qemu"
    for name, text in {
        "configure": "#!/bin/sh\n",
        "VERSION": "10.0.99\n",
        "meson.build": "trace_events_subdirs += [\n    'hw/misc',\n    'hw/net',\n",
        "hw/misc/meson.build": "system_ss.add(files('x.c'))\n",
        "hw/misc/Kconfig": "config X\n    bool\n",
        ".git/HEAD": "ref: x\n",
        "roms/big": "x",
    }.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        os.utime(path, (1000, 1000))
    return root


def test_hooks_are_added_once(user_tree: Path) -> None:
    qemu_build.add_hooks(user_tree)
    qemu_build.add_hooks(user_tree)
    assert (user_tree / "hw/misc/meson.build").read_text().count("subdir('hmm-gpu')") == 1
    assert (user_tree / "hw/misc/Kconfig").read_text().endswith("source hmm-gpu/Kconfig\n")
    assert "    'hw/misc',\n    'hw/misc/hmm-gpu',\n" in (user_tree / "meson.build").read_text()


def test_another_trees_build_files_are_refused(user_tree: Path) -> None:
    (user_tree / "meson.build").write_text("nothing known\n")
    with pytest.raises(UsageError, match="cannot add the device"):
        qemu_build.add_hooks(user_tree)


def test_user_tree_is_copied_and_left_alone(user_tree: Path, tmp_path: Path) -> None:
    before = {path: path.read_bytes() for path in user_tree.rglob("*") if path.is_file()}
    copy = tmp_path / "copy"
    qemu_build._copy_user_tree(user_tree, copy)
    qemu_build.add_hooks(copy)
    assert {path: path.read_bytes() for path in user_tree.rglob("*") if path.is_file()} == before
    assert not (copy / ".git").exists()
    assert not (copy / "roms").exists()

    # Nothing changed: the hooks stay, and ninja sees no newer file.
    qemu_build._copy_user_tree(user_tree, copy)
    assert "hmm-gpu" in (copy / "meson.build").read_text()
    assert (copy / "meson.build").stat().st_mtime == 1000

    # The user edits: the edit arrives, and the hooks come back.
    (user_tree / "hw/misc/Kconfig").write_text("config Y\n    bool\n")
    qemu_build._copy_user_tree(user_tree, copy)
    qemu_build.add_hooks(copy)
    assert (copy / "hw/misc/Kconfig").read_text().startswith("config Y")
    assert "source hmm-gpu/Kconfig" in (copy / "hw/misc/Kconfig").read_text()


def _before(patch: Path, tree: Path) -> list[Path]:
    """As much of the files of a patch as it has: its lines before, at their places."""
    files: dict[Path, list[str]] = {}
    lines: list[str] = []
    for line in patch.read_text().partition("\n--- ")[2].split("\n"):
        if line.startswith("+++ b/"):
            lines = files.setdefault(tree / line[6:], [])
        elif line.startswith("@@"):
            start = int(line.split("-")[1].split(",")[0])
            lines += ["" for _ in range(start - 1 - len(lines))]
        elif line[:1] in (" ", "-") and not line.startswith("--- "):
            lines.append(line[1:])
    for path, text in files.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        if text:
            path.write_text("\n".join(text) + "\n")
            os.utime(path, (1000, 1000))
    return list(files)


@pytest.mark.parametrize("patch", qemu_build.PATCHED, ids=lambda patch: patch.stem)
def test_our_patches_go_where_they_fit_and_once(user_tree: Path, patch: Path) -> None:
    assert not qemu_build.mend(user_tree, patch), "a tree without these files"
    files = _before(patch, user_tree)
    old = [path for path in files if path.exists()]
    for _ in range(2):
        assert qemu_build.mend(user_tree, patch)
        assert all(path.is_file() for path in files)
        assert [path.stat().st_mtime for path in old] == [1000.0] * len(old)
    assert not list(user_tree.rglob("*.rej")) + list(user_tree.rglob("*.orig"))


@pytest.mark.parametrize("patch", qemu_build.PATCHED, ids=lambda patch: patch.stem)
def test_a_qemu_that_a_patch_does_not_fit_stays_as_it_is(user_tree: Path, patch: Path) -> None:
    files = _before(patch, user_tree)
    other = next(path for path in files if path.exists())
    other.write_text("another QEMU\n")
    before = {path: path.read_bytes() for path in files if path.exists()}
    assert not qemu_build.mend(user_tree, patch)
    assert {path: path.read_bytes() for path in files if path.exists()} == before


def test_not_a_qemu_tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HMMBENCH_CACHE", str(tmp_path / "cache"))
    with pytest.raises(UsageError, match="not a QEMU source tree"):
        qemu_build.build(Context(Ui(quiet=True)), tmp_path)


def test_overlay_places_core_and_headers(tmp_path: Path) -> None:
    for name in ("qemu/meson.build", "core/life/dev.c", "include/hmm_gpu_hw.h", "tests/fuzz.c"):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(name)
    places = {str(at) for at in qemu_build.read_overlay(tmp_path)}
    assert places == {"meson.build", "core/life/dev.c", "include/hmm_gpu_hw.h"}
