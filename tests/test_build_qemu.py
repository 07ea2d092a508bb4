# SPDX-License-Identifier: GPL-2.0-or-later
"""The overlay in QEMU's tree, and the user's own tree, which is never written to."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from hmmbench.build import qemu_build
from hmmbench.build.context import Context
from hmmbench.errors import UsageError
from hmmbench.ui import Ui


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


def test_our_patch_goes_where_it_fits_and_once(user_tree: Path) -> None:
    assert not qemu_build.mend(user_tree), "a tree without that file"
    path = user_tree / "system/physmem.c"
    path.parent.mkdir()
    path.write_text("another QEMU\n")
    assert not qemu_build.mend(user_tree)
    assert path.read_text() == "another QEMU\n"
    # As much of the file as the patch has: its lines before, at their places.
    lines = []
    for line in qemu_build.MENDED.read_text().partition("\n@@")[2].split("\n")[:-1]:
        if " @@" in line:
            start = int(line.split("-")[1].split(",")[0])
            lines += ["" for _ in range(start - 1 - len(lines))]
        elif line[:1] in (" ", "-"):
            lines.append(line[1:])
    path.write_text("\n".join(lines) + "\n")
    os.utime(path, (1000, 1000))
    for _ in range(2):
        assert qemu_build.mend(user_tree)
        assert path.read_text().count("tcg_view") == 7
        assert path.stat().st_mtime == 1000
    assert [p.name for p in path.parent.iterdir()] == ["physmem.c"]


def test_not_a_qemu_tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HMMBENCH_CACHE", str(tmp_path / "cache"))
    with pytest.raises(UsageError, match="not a QEMU source tree"):
        qemu_build.build(Context(Ui(quiet=True)), tmp_path)


def test_overlay_places_core_and_headers(tmp_path: Path) -> None:
    for name in ("qemu/meson.build", "core/dev.c", "include/hmm_gpu_hw.h", "tests/fuzz.c"):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(name)
    places = {str(at) for at in qemu_build.read_overlay(tmp_path)}
    assert places == {"meson.build", "core/dev.c", "include/hmm_gpu_hw.h"}
