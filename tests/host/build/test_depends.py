# SPDX-License-Identifier: GPL-2.0-or-later
"""What a result says it depends on: each part changes when its sources do, and no other."""

from __future__ import annotations

import ast
import shutil
import subprocess
from pathlib import Path
from types import SimpleNamespace

import pytest

from hmmbench.base import outside, paths
from hmmbench.build import BuildRequest, depends

#: What the oracles' modules import that decides no verdict: how a machine is run and looked at.
#: (splat, mirror, misuse and unload, which read what it says, are oracles.)
NO_VERDICT = {
    "base/errors.py", "example/delays.py", "example/event.py", "example/seen.py",
    "example/totals.py", "example/tracer.py", "guest/example.py", "symbols/named.py",
    "vm/agent.py", "vm/channel.py", "vm/decisions.py", "vm/errors.py", "vm/kinds.py",
    "vm/machine.py", "vm/mailbox.py", "vm/spec.py", "vm/standing.py",
}  # fmt: skip


@pytest.fixture
def house(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of the sources that takes the checkout's place."""
    root = paths.project_root()
    for name in ("guest-driver", "qemu-device", "harness"):
        shutil.copytree(
            root / name, tmp_path / name, ignore=shutil.ignore_patterns("__pycache__", "build.log")
        )
    monkeypatch.setattr(paths, "project_root", lambda: tmp_path)
    monkeypatch.setattr(depends, "package", lambda: tmp_path / "harness/hmmbench")
    return tmp_path


@pytest.mark.parametrize(
    ("file", "changed"),
    [
        ("qemu-device/core/observe/audit.c", {"device"}),
        ("qemu-device/qemu/hmm-gpu.c", {"device"}),
        ("harness/hmmbench/build/qemu/tcg-memory-map.patch", {"device"}),
        ("qemu-device/include/hmm_gpu_hw.h", {"device", "driver", "agent"}),
        ("qemu-device/tests/unit.c", set()),
        ("guest-driver/module/mem/svm.c", {"driver"}),
        ("guest-driver/include/uapi/hmm_gpu_drm.h", {"driver", "agent"}),
        ("guest-driver/user/agent/main.c", {"agent"}),
        ("guest-driver/user/lib/hmmgpu.c", {"agent"}),
        ("guest-driver/user/kernels/spin.c", {"agent"}),
        ("harness/hmmbench/oracle/values.py", {"oracles"}),
        ("harness/hmmbench/campaign/generate.py", {"campaign"}),
        ("harness/hmmbench/example/judge.py", {"oracles"}),
        ("harness/hmmbench/example/exact_target.py", {"oracles"}),
        ("harness/hmmbench/model/scenes.py", {"oracles", "campaign"}),
        ("harness/hmmbench/model/ops/jobs.py", {"oracles", "campaign"}),
        ("harness/hmmbench/campaign/runner.py", {"campaign"}),
        ("harness/hmmbench/report/result.py", set()),
    ],
)
def test_each_source_is_part_of_what_it_decides(
    house: Path, file: str, changed: set[str]
) -> None:
    before = depends.of()
    with (house / file).open("a") as stream:
        stream.write("\n")
    after = depends.of()
    assert {part for part in depends.PARTS if before[part] != after[part]} == changed


def test_a_new_file_counts(house: Path) -> None:
    before = depends.of()
    (house / "harness/hmmbench/oracle/new.py").write_text("")
    (house / "qemu-device/core/new.c").write_text("")
    after = depends.of()
    differing = {part for part in depends.PARTS if before[part] != after[part]}
    assert differing == {"oracles", "device"}


def test_operations_from_outside_are_part_of_agent_and_oracles(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "mine.py").write_text("")
    (tmp_path / "mine.c").write_text("")
    before = depends.of()
    monkeypatch.setenv(outside.VARIABLE, str(tmp_path))
    after = depends.of()
    assert {part for part in depends.PARTS if before[part] != after[part]} == {
        "agent", "campaign", "oracles",
    }  # fmt: skip


def test_what_the_oracles_import_is_an_oracle_or_decides_nothing() -> None:
    """A helper that is split off an oracle has to be in the list with it."""
    package = depends.package()
    files = depends.module_files(depends.ORACLES)
    for path in files:
        for node in ast.walk(ast.parse(path.read_text())):
            if not isinstance(node, ast.ImportFrom) or not (node.module or "").startswith("hmm"):
                continue
            for one in node.names:
                inner = f"{node.module}.{one.name}".split(".")[1:]
                found = next(
                    place
                    for n in (len(inner), len(inner) - 1)
                    for place in ("/".join(inner[:n]) + ".py", "/".join(inner[:n]))
                    if (package / place).exists()
                )
                path_of = package / found
                module = path_of / "__init__.py" if path_of.is_dir() else path_of
                known = module in files or found.startswith(tuple(NO_VERDICT))
                assert known, f"{path.relative_to(package)} imports {found}"


def test_named_modules_are_there() -> None:
    for name in (*depends.ORACLES, *depends.CAMPAIGN):
        assert (depends.package() / name).exists(), name


def test_another_driver_and_patches(tmp_path: Path) -> None:
    """What was asked for instead of the checkout's driver is what was tested."""
    copy = tmp_path / "driver"
    shutil.copytree(paths.driver_sources(), copy)
    plain = depends.of()["driver"]
    assert depends.of(BuildRequest(driver_source=copy))["driver"] == plain
    (copy / "module/mem/svm.c").write_text("/* another */\n")
    assert depends.of(BuildRequest(driver_source=copy))["driver"] != plain
    patch = tmp_path / "one.patch"
    patch.write_text("+1\n")
    one = depends.of(BuildRequest(driver_patches=(patch,)))["driver"]
    patch.write_text("+2\n")
    assert len({plain, one, depends.of(BuildRequest(driver_patches=(patch,)))["driver"]}) == 3


def test_the_kernel_by_its_name_release_and_configuration(tmp_path: Path) -> None:
    (tmp_path / ".config").write_text("# by somebody\nCONFIG_A=y\nCONFIG_B=m\n")
    artifacts = SimpleNamespace(kernel_build_dir=tmp_path, kernel_release="6.12.1-x")

    def seen(**request: object) -> dict[str, str]:
        return depends.kernel(BuildRequest(**request), artifacts)  # type: ignore[arg-type]

    (name, what), = seen().items()
    assert name == "lts"
    assert what.startswith("6.12.1-x ")
    (tmp_path / ".config").write_text("# by somebody else\nCONFIG_A=y\nCONFIG_B=m\n")
    assert seen() == {"lts": what}
    (tmp_path / ".config").write_text("CONFIG_A=y\nCONFIG_B=y\n")
    assert seen()["lts"] != what
    patch = tmp_path / "bug.patch"
    patch.write_text("+1\n")
    assert list(seen(kernel="latest", kernel_variants=("debug",))) == ["latest debug"]
    assert list(seen(kernel_patches=(patch,))) == ["lts +bug"]
    assert seen(kernel_patches=(patch,))["lts +bug"].startswith(seen()["lts"] + " ")
    assert list(seen(kernel_build=tmp_path)) == [str(tmp_path)]


def test_the_commit(tmp_path: Path) -> None:
    """Also of a folder that git does not know: then there is none."""
    assert depends.checkout(tmp_path) == {"commit": "", "dirty": False}

    def git(*words: str) -> None:
        subprocess.run(
            ["git", "-C", tmp_path, "-c", "user.name=a", "-c", "user.email=a@b.c", *words],
            check=True, capture_output=True,
        )  # fmt: skip

    git("init", "-q")
    (tmp_path / "a").write_text("a")
    git("add", "a")
    git("commit", "-qm", "a")
    found = depends.checkout(tmp_path)
    assert len(found["commit"]) == 40
    assert not found["dirty"]
    (tmp_path / "a").write_text("b")
    assert depends.checkout(tmp_path) == found | {"dirty": True}
