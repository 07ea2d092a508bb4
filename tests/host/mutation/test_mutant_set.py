# SPDX-License-Identifier: GPL-2.0-or-later
"""The set of mutants: each applies, touches one place, and says what it stands for."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from hmmbench.base import paths
from hmmbench.base.errors import UsageError
from hmmbench.mutation import mutants

MUTANTS = mutants.load()
BY_NAME = {m.name: m for m in MUTANTS}

#: The table of one-line mutants of the kernel's own test driver: number, name here.
PROBE = {
    1: "no-read-retry",
    2: "invalidate-keeps-entries",
    3: "no-set-seq",
    4: "fault-always-writable",
    5: "migrated-always-writable",
    6: "stale-vram-pte-after-cpu-fault",
    7: "ignores-exclusive",
    8: "stale-pte-after-cpu-fault",
    9: "invalidate-misses-last-page",
    10: "ignores-clear",
    11: "prefetch-always-writable",
}

#: Lines that a mutant may change, and lines between its first and its last hunk.
MOST_LINES = 18
MOST_SPREAD = 40


def test_there_are_enough_and_the_kernels_eleven_are_among_them() -> None:
    assert len([m for m in MUTANTS if not m.proof]) >= 60
    for number, name in PROBE.items():
        assert f"test_hmm, m{number}" in BY_NAME[name].source.split(";")[0]


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("tree")
    shutil.copytree(paths.driver_sources(), root / "guest-driver")
    return root


def _patch(tree: Path, patch: Path, *more: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["patch", "-p1", "--batch", "--forward", "--dry-run", *more, "-i", str(patch)],
        cwd=tree, capture_output=True, text=True, check=False,
    )  # fmt: skip


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda m: m.name)
def test_applies_and_touches_one_place(mutant: mutants.Mutant, tree: Path) -> None:
    done = _patch(tree, mutant.path)
    assert done.returncode == 0, done.stdout + done.stderr
    lines = mutant.path.read_text().split("\n")
    diff = lines[next(i for i, line in enumerate(lines) if line.startswith("--- a/")) + 2 :]
    changed = [line for line in diff if line[:1] in ("+", "-")]
    assert 1 <= len(changed) <= MOST_LINES
    starts = [int(line.split()[1].split(",")[0][1:]) for line in diff if line.startswith("@@")]
    assert max(starts) - min(starts) <= MOST_SPREAD


def test_a_patch_that_does_not_apply_is_noticed(tree: Path, tmp_path: Path) -> None:
    wrong = tmp_path / "wrong.patch"
    wrong.write_text(
        BY_NAME["no-read-retry"].path.read_text().replace("mmu_interval_read_retry", "gone")
    )
    assert _patch(tree, wrong).returncode != 0


def test_no_two_mutants_are_the_same_change() -> None:
    diffs = {}
    for m in MUTANTS:
        text = m.path.read_text()
        body = "\n".join(
            line for line in text[text.index("--- a/") :].split("\n") if not line.startswith("@@")
        )
        assert diffs.setdefault(body, m.name) == m.name


def test_a_proof_is_a_text_and_not_a_word() -> None:
    for m in MUTANTS:
        assert not m.proof or len(m.proof.split()) >= 25, m.name


HEAD = "What it breaks.\n\nClass: a class\nSource: a source\n"
DIFF = "\n--- a/guest-driver/x.c\n+++ b/guest-driver/x.c\n@@ -1 +1 @@\n-a\n+b\n"


def _parse(tmp_path: Path, text: str, name: str = "a-name") -> mutants.Mutant:
    path = tmp_path / f"{name}.patch"
    path.write_text(text)
    return mutants.parse(path)


def test_head(tmp_path: Path) -> None:
    m = _parse(tmp_path, HEAD + "Equivalent: one\n  two\n" + DIFF)
    assert (m.prose, m.bug_class, m.source) == ("What it breaks.", "a class", "a source")
    assert m.proof == "one\ntwo"
    assert m.file == "guest-driver/x.c"
    assert not m.debug
    assert not m.device
    m = _parse(tmp_path, HEAD + "Kernel: latest debug\nDevice: coherent\n" + DIFF)
    assert m.debug
    assert m.device == "coherent"
    assert _parse(tmp_path, HEAD + "Device: caches\n" + DIFF).device == "caches"
    assert m.request().kernel_variants == ("debug",)
    assert (m.machine, m.request().full) == ("", False)
    m = _parse(tmp_path, HEAD + "Kernel: lts kcsan\nMachine: cpus-1+iommu\n" + DIFF)
    assert m.request().kernel_variants == ("kcsan",)
    # An IOMMU is driven by the full configuration alone.
    assert (m.machine, m.request().full) == ("cpus-1+iommu", True)
    assert "*Kernel with kcsan.* *Machine cpus-1+iommu.*" in mutants.table([m])
    m = _parse(tmp_path, HEAD + "Kernel: latest full kasan\nDevice: caches\n" + DIFF)
    assert (m.kernel, m.variant, m.request().full) == ("latest", "kasan", True)
    words = "*Newest kernel.* *Full configuration.* *Kernel with kasan.* *Data cache.*"
    assert words in mutants.table([m])


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        (HEAD, "no diff"),
        (HEAD + DIFF.replace("b/guest-driver/x.c", "b/guest-driver/y.c"), "no diff of one file"),
        (HEAD + DIFF.replace("guest-driver", "harness"), "no diff"),
        (HEAD.replace("Class: a class\n", "") + DIFF, "no Class"),
        (HEAD.replace("Source: a source\n", "") + DIFF, "no Source"),
        (HEAD + "Class: again\n" + DIFF, "Class is given twice"),
        (HEAD + "Kind: unknown\n" + DIFF, "not understood.*Kind"),
        (HEAD + "Kernel: fast\n" + DIFF, "Kernel is lts or latest"),
        (HEAD + "Kernel: lts debug full\n" + DIFF, "Kernel is lts or latest, and perhaps full"),
        (HEAD + "Device: large\n" + DIFF, "Device is one of coherent, caches"),
        (HEAD + "Machine: large\n" + DIFF, "there is no machine 'large'"),
        (HEAD.replace("What it breaks.", "") + DIFF, "sentence of prose"),
    ],
)
def test_bad_heads(tmp_path: Path, text: str, complaint: str) -> None:
    with pytest.raises(UsageError, match=complaint):
        _parse(tmp_path, text)


def test_bad_names(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="name-with-dashes"):
        _parse(tmp_path, HEAD + DIFF, "A_Name")
    with pytest.raises(UsageError, match="no mutant is called nothing, neither"):
        mutants.choose(["nothing", "no-read-retry", "neither"])
    with pytest.raises(UsageError, match="there is no mutant"):
        mutants.choose([], tmp_path / "nowhere")


def test_chosen_in_order_and_once() -> None:
    names = ["no-tlb-invalidate", "no-set-seq", "no-tlb-invalidate"]
    assert [m.name for m in mutants.choose(names)] == names[:2]
    assert [m.name for m in mutants.choose([])] == sorted(BY_NAME)


def test_the_documents_table_is_this_set() -> None:
    text = (paths.project_root() / "docs" / "mutants.md").read_text()
    assert mutants.table(MUTANTS) in text, "put `./hmmbench mutants --list --markdown` there"
