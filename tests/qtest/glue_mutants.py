# SPDX-License-Identifier: GPL-2.0-or-later
"""One-line bugs in the glue that tests/qtest has to catch.

    python tests/qtest/glue_mutants.py TREE BUILD [NAME...]

TREE is a QEMU source tree with the overlay (qemu-device/qemu/README.md), BUILD its build folder.
Each bug is put into the tree, built and tested; the file is put back. About 20 s a bug, so this
is run by hand after changes of the glue; test_glue_mutants.py keeps the table true.
Exit status 1 if a bug is not caught.

Left out, because no guest can tell: a reset that stops the engines in its hold phase instead of
its enter phase, and a pending interrupt that survives a reset by the width of a bottom half.
"""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Mutant:
    """Replace `old` by `new` in `file`; the tests named by `tests` (pytest -k) must fail."""

    file: str
    old: str
    new: str
    tests: str


MUTANTS = {
    "writes-not-marked": Mutant(
        "hmm-gpu-dirty.c", "if (!len || !mask) {", "if (1) {", "code or migration"
    ),
    "dirty-but-code-kept": Mutant(
        "hmm-gpu-dirty.c",
        "    ptr = memory_region_get_ram_ptr(mr);",
        "    memory_region_set_dirty(mr, off, len); return;",
        "code",
    ),
    "vram-not-marked": Mutant(
        "hmm-gpu-dma.c", "    /* Like RAM: the guest may", "    return; /*", "migration"
    ),
    "wrong-offset-marked": Mutant(
        "hmm-gpu-dma.c", "ram->offset + ((uint8_t *)ptr", "((uint8_t *)ptr", "migration"
    ),
    "no-bottom-half": Mutant("hmm-gpu.c", "qemu_bh_schedule(s->irq_bh);", ";", "dma"),
    "reset-forgets-core": Mutant("hmm-gpu.c", "    hg_reset(s->gpu);\n", "", "reset"),
    "bus-master-ignored": Mutant(
        "hmm-gpu.c", "s->bus_master = on;", "s->bus_master = true;", "dma"
    ),
    "saved-before-parked": Mutant(
        "hmm-gpu-vmstate.c", "    if (!runstate_is_running()) {", "    if (0) {", "migration"
    ),
    "rom-writable": Mutant(
        "hmm-gpu-dma.c", "section->readonly || ram->mr->readonly", "false", "dma"
    ),
    "rom-writable-by-address": Mutant(
        "hmm-gpu-dma.c", " || (is_write && (*mr)->readonly)", "", "iommu"
    ),
    "anything-is-ram": Mutant(
        "hmm-gpu-dma.c",
        "return memory_region_is_ram(mr) && !memory_region_is_ram_device(mr);",
        "return true;",
        "dma",
    ),
    "ram-stays": Mutant(
        "hmm-gpu-dma.c", "hmm_gpu_blocking(s, hmm_gpu_do_ram_remove, ram);", ";", "iommu"
    ),
    "ram-not-released": Mutant(
        "hmm-gpu-dma.c", "        memory_region_unref(ram->mr);\n", "", "reset"
    ),
    "state-not-loaded": Mutant(
        "hmm-gpu-vmstate.c",
        "ret = hg_load(s->gpu, buf, len, err, sizeof(err));",
        "ret = 0;",
        "migration",
    ),
    "length-unchecked": Mutant(
        "hmm-gpu-vmstate.c",
        '    if (!len || len > hg_save_max(s->gpu)) {\n        error_report("hmm-gpu: bad',
        '    if (0) {\n        error_report("hmm-gpu: bad',
        "hostile",
    ),
    "runs-while-stopped": Mutant(
        "hmm-gpu.c", "        hmm_gpu_stop(s);\n        /* CPUs", "        /* CPUs", "migration"
    ),
    "engine-translates": Mutant(
        "hmm-gpu-iommu.c", "if (!qatomic_read(&s->iommu) || bql_locked()) {", "if (1) {", "iommu"
    ),
    "waiter-does-not-serve": Mutant(
        "hmm-gpu-iommu.c", "    if (s->dma_waiting) {\n", "    if (0) {\n", "iommu"
    ),
    "queue-forgotten": Mutant(
        "hmm-gpu-iommu.c",
        "        qatomic_set(&s->iommu, false);\n        hmm_gpu_serve(s);\n",
        "        qatomic_set(&s->iommu, false);\n",
        "iommu",
    ),
    "frames-not-looked-up": Mutant(
        "hmm-gpu-dma.c",
        "    int ret = qatomic_read(&s->iommu) ? hmm_gpu_dma(s, &dma) : 0;\n",
        "    int ret = 0;\n",
        "iommu",
    ),
    "no-step-timer": Mutant(
        "hmm-gpu.c", "timer_mod(s->step_timer,", "if (0) timer_mod(s->step_timer,", "launch"
    ),
    "mailbox-never-stands": Mutant("hmm-mailbox.c", "vm_stop(RUN_STATE_PAUSED);", ";", "mailbox"),
    "mailbox-stands-at-any-width": Mutant(
        "hmm-mailbox.c", "size == 4 && addr == HM_REG_STAND", "addr == HM_REG_STAND", "mailbox"
    ),
    "mailbox-of-the-bar": Mutant(
        "hmm-mailbox.c",
        "return memory_region_size(s->ram);",
        "return memory_region_size(&s->bar2);",
        "mailbox",
    ),
    "mailbox-not-saved": Mutant(
        "hmm-mailbox.c", "    vmstate_register_ram(s->ram, DEVICE(s));\n", "", "mailbox"
    ),
    "mailbox-taken-twice": Mutant(
        "hmm-mailbox.c", "    host_memory_backend_set_mapped(s->memdev, true);\n", "", "mailbox"
    ),
    "no-flr": Mutant("hmm-gpu.c", "    pcie_cap_flr_init(pci);\n", "", "pci"),
}


def caught(tree: Path, build: Path, mutant: Mutant) -> bool:
    """Put the bug in, build, test, put the file back."""
    path = tree / "hw/misc/hmm-gpu" / mutant.file
    sound = path.read_text()
    assert mutant.old in sound, f"{path} has changed: {mutant.old!r}"
    ninja = ["ninja", "-C", str(build), "qemu-system-x86_64"]
    here = Path(__file__).resolve().parent
    tests = " or ".join(f"test_glue_{name}" for name in mutant.tests.split(" or "))
    try:
        path.write_text(sound.replace(mutant.old, mutant.new, 1))
        subprocess.run(ninja, check=True, stdout=subprocess.DEVNULL)
        result = subprocess.run(
            [sys.executable, "-m", "pytest", "-q", "-x", "--timeout=60", "-k", tests, str(here)],
            cwd=here.parents[1],
            env={**os.environ, "HMMBENCH_QEMU": str(build / "qemu-system-x86_64")},
            stdout=subprocess.DEVNULL,
        )
    finally:
        path.write_text(sound)
    if result.returncode not in (0, 1):
        raise SystemExit(f"the tests could not be run (pytest says {result.returncode})")
    return result.returncode == 1


def main(tree: str, build: str, *names: str) -> int:
    """Exit status."""
    missed = 0
    for name in names or MUTANTS:
        hit = caught(Path(tree), Path(build), MUTANTS[name])
        missed += not hit
        print(f"{'caught' if hit else 'MISSED'}  {name}", flush=True)
    return 1 if missed else 0


if __name__ == "__main__":
    if len(sys.argv) < 3:
        print(__doc__, file=sys.stderr)
        sys.exit(2)
    sys.exit(main(*sys.argv[1:]))
