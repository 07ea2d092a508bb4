# SPDX-License-Identifier: GPL-2.0-or-later
"""The user's own kernel trees: what is wrong with one is said before anything starts."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from hmmbench.base import paths
from hmmbench.base.errors import EnvironmentFailure, UsageError
from hmmbench.base.ui import Ui
from hmmbench.build import BuildRequest, cache, kernel, normalise, variant
from hmmbench.build.context import Context


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A folder that looks like a built kernel."""
    root = tmp_path / "linux"
    for name, text in {
        "Makefile": "",
        "Module.symvers": "",
        "Kbuild": "",
        "include/generated/utsrelease.h": '#define UTS_RELEASE "6.12.1-mine"\n',
        "arch/x86/boot/bzImage": "MZ",
        ".config": "".join(
            f"{name}=y\n" for name in (*kernel.REQUIRED, *kernel.REQUIRED_OR_MODULE)
        ),
    }.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


def hmmbench(*words: str, cache: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "hmmbench", *words],
        env={
            **os.environ,
            "HMMBENCH_CACHE": str(cache),
            "PYTHONPATH": str(paths.project_root() / "harness"),
        },
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_a_good_tree_is_described(tree: Path) -> None:
    found = kernel.from_build(tree)
    assert found.release == "6.12.1-mine"
    assert found.image == tree / "arch/x86/boot/bzImage"
    assert found.modules == ()


def test_rebuilt_kernel_gets_another_key(tree: Path) -> None:
    before = kernel.from_build(tree).key
    os.utime(tree / "Module.symvers", (1, 1))
    assert kernel.from_build(tree).key != before


def test_missing_option_is_named_with_its_reason(tree: Path) -> None:
    config = (tree / ".config").read_text().replace("CONFIG_DEVICE_PRIVATE=y\n", "")
    (tree / ".config").write_text(config)
    with pytest.raises(UsageError, match=r"CONFIG_DEVICE_PRIVATE=y \(pages of GPU memory\)"):
        kernel.from_build(tree)


def test_modules_come_with_their_dependencies(tree: Path) -> None:
    config = (tree / ".config").read_text().replace("CONFIG_VIRTIO_PCI=y", "CONFIG_VIRTIO_PCI=m")
    (tree / ".config").write_text(config)
    for name, needs in {
        "virtio_ring": "",
        "virtio_pci": "virtio_ring,virtio",
        "virtio": "",
    }.items():
        path = tree / f"drivers/virtio/{name}.ko"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"\x7fELF\0license=GPL\0depends=" + needs.encode() + b"\0name=x\0")
    (tree / "modules.order").write_text(
        "drivers/virtio/virtio_pci.o\ndrivers/virtio/virtio.o\ndrivers/virtio/virtio_ring.o\n"
    )
    names = [path.stem for path in kernel.from_build(tree).modules]
    assert sorted(names) == ["virtio", "virtio_pci", "virtio_ring"]
    assert names[-1] == "virtio_pci"


def test_bad_build_folder_is_wrong_use(tmp_path: Path) -> None:
    done = hmmbench("build", "--kernel-build", str(tmp_path), cache=tmp_path / "cache")
    assert done.returncode == 2
    assert "not a built kernel tree" in done.stderr
    assert "Traceback" not in done.stderr
    done = hmmbench("build", "--kernel-build", "/no/such/folder", cache=tmp_path / "cache")
    assert done.returncode == 2
    assert "/no/such/folder" in done.stderr


def test_kernel_word_or_folder(tree: Path, tmp_path: Path) -> None:
    assert normalise(BuildRequest(kernel=str(tree))).kernel_build == tree
    source = tmp_path / "source"
    source.mkdir()
    assert normalise(BuildRequest(kernel=str(source))).kernel_source == source
    with pytest.raises(UsageError, match="neither lts nor latest"):
        normalise(BuildRequest(kernel="newest"))
    with pytest.raises(UsageError, match="contradict"):
        normalise(BuildRequest(kernel="latest", kernel_build=tree))


def test_variants_that_no_kernel_can_be(tree: Path) -> None:
    with pytest.raises(UsageError, match="no kernel variant fast"):
        normalise(BuildRequest(kernel_variants=("fast",)))
    for other in ("kasan", "debug"):
        with pytest.raises(UsageError, match="KCSAN and KASAN"):
            normalise(BuildRequest(kernel_variants=("kcsan", other)))
    with pytest.raises(UsageError, match="configured already"):
        normalise(BuildRequest(kernel_build=tree, kernel_variants=("lockdep",)))
    wanted = BuildRequest(full=True, kernel_variants=("kcsan", "lockdep"))
    assert variant(wanted) == ("full", "lockdep", "kcsan")


def test_source_folder_is_checked(tmp_path: Path, tree: Path) -> None:
    with pytest.raises(UsageError, match="not a Linux source tree"):
        kernel._check_source(tmp_path)
    with pytest.raises(UsageError, match="built in place"):
        kernel._check_source(tree)


def test_fragment_asks_for_all_that_is_required() -> None:
    config = kernel.read_config(kernel.FRAGMENTS / "base.config")
    # These have no prompt of their own, or come with what the fragment names.
    implied = {"CONFIG_HMM_MIRROR", "CONFIG_MMU_NOTIFIER"}
    named = dict.fromkeys(implied, "y") | config
    kernel.check_config(named, kernel.FRAGMENTS)
    with pytest.raises(EnvironmentFailure):
        kernel.check_config({}, kernel.FRAGMENTS)


def test_doctor_writes_json(tmp_path: Path) -> None:
    out = tmp_path / "doctor.json"
    done = hmmbench("doctor", "--json", str(out), cache=tmp_path / "cache")
    report = json.loads(out.read_text())
    assert done.returncode == (0 if report["ready"] else 2)
    topics = {finding["topic"] for finding in report["findings"]}
    assert {"host", "packages", "accelerator", "cache", "qemu", "kernel lts"} <= topics
    for finding in report["findings"]:
        assert finding["level"] in ("ok", "note", "missing")
        if finding["level"] == "missing":
            assert finding["mend"], finding
    assert "Traceback" not in done.stderr


def test_a_kernel_that_is_there_is_found_and_none_is_made(
    tree: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By what it was finished for; what is not finished, or for other options, is none."""
    monkeypatch.setenv("HMMBENCH_CACHE", str(tmp_path / "cache"))
    ctx = Context(Ui(quiet=True))
    assert kernel.find(ctx, "lts") is None
    for name in ("resolved", "src/linux-source", "work"):
        (tmp_path / "cache" / name).mkdir(parents=True, exist_ok=True)
    cache.stamp_write(
        tmp_path / "cache/resolved/kernel-lts.json", {"name": "linux-source", "origin": "debian"}
    )
    assert kernel.find(ctx, "lts") is None
    place, fragments = kernel._place(ctx, tmp_path / "cache/src/linux-source", "lts", ())
    shutil.copytree(tree, place)
    assert kernel.find(ctx, "lts") is None
    key = cache.digest(*kernel.options(fragments))
    cache.stamp_write(place / kernel.STAMP, {"key": key})
    found = kernel.find(ctx, "lts")
    assert found is not None
    assert (found.release, found.origin, found.build_dir) == ("6.12.1-mine", "debian", place)
    assert kernel.find(ctx, "lts", ("debug",)) is None
    assert kernel.find(ctx, "latest") is None
    cache.stamp_write(place / kernel.STAMP, {"key": "of other options"})
    assert kernel.find(ctx, "lts") is None
    assert cache.stamp_read(place / kernel.STAMP), "a look changes nothing"
