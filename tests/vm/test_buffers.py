# SPDX-License-Identifier: GPL-2.0-or-later
"""Memory that lives in VRAM: buffer_test.c in machines, whole drivers and broken ones."""

from __future__ import annotations

import difflib
import os
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import work

from hmmbench import gpu
from hmmbench.base import paths
from hmmbench.base.errors import UsageError
from hmmbench.build import Artifacts, BuildRequest, ensure
from hmmbench.gpu.errors import SessionError
from hmmbench.guest import splat
from hmmbench.oracle import mirror, misuse
from hmmbench.suites import driver_life
from hmmbench.vm.agent import ExecResult
from hmmbench.vm.errors import VmDied
from hmmbench.vm.machine import Machine
from hmmbench.vm.snapshot import Snapshots
from hmmbench.vm.spec import MachineSpec
from hmmbench.vm.standard import best_spec

PROGRAM = "/tmp/buffer_test"
HERE = Path(__file__).parent
TESTS = ("calls", "full", "threads", "late", "leave", "reset", "unbind")


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    out = tmp_path_factory.mktemp("buffers")
    driver_life.build_library(out)
    return driver_life.compile_c(HERE / "buffer_test.c", out, out / "buffer_test", work.WARNINGS)


@pytest.fixture(params=["private", "coherent"])
def machine(
    request: pytest.FixtureRequest, spec: MachineSpec, snapshots: Snapshots, program: bytes
) -> Iterator[Machine]:
    """A machine of its own; a splat in it fails the test."""
    with snapshots.open(spec.with_gpu(coherent=request.param == "coherent")) as vm:
        vm.agent.write_file(PROGRAM, program, 0o755)
        yield vm
        vm.check()
        assert splat.scan(vm.console.text()) == []


@pytest.fixture
def vm(machine: Machine) -> Iterator[Machine]:
    """The same, every access audited; a violation that the device saw fails the test."""
    machine.gpu.set_audit("access")
    yield machine
    work.no_violation(machine)


def leftovers(vm: Machine) -> dict[str, int]:
    # A device that was bound while its old files were open has another number.
    text = vm.agent.check("cat $(ls /sys/kernel/debug/dri/*/counters | head -n 1)")
    live = {n: v for n, v in work.counts(text).items() if n.startswith("live_")}
    assert len(live) > 5, text
    return {name: value for name, value in live.items() if value}


@pytest.mark.parametrize("name", TESTS)
def test_buffers(vm: Machine, name: str) -> None:
    result = vm.agent.execute(f"{PROGRAM} {name} 2>&1", timeout=240)
    assert (result.status, f"{name} passed" in result.output) == (0, True), result.output
    wait_until_nothing_is_left(vm)
    vm.gpu.audit_full()
    vm.agent.check("rmmod hmm_gpu")


if os.environ.get("HMMBENCH_FULL"):

    @pytest.mark.full("a machine more")
    def test_a_reset_that_loses_vram(
        spec: MachineSpec, snapshots: Snapshots, program: bytes
    ) -> None:
        """The driver finds out, and moves pages home before."""
        with snapshots.open(spec.with_gpu(flr_vram="lost")) as vm:
            vm.agent.write_file(PROGRAM, program, 0o755)
            result = vm.agent.execute(f"{PROGRAM} lost 2>&1", timeout=240)
            assert (result.status, "lost passed" in result.output) == (0, True), result.output
            wait_until_nothing_is_left(vm)
            vm.check()
            assert splat.scan(vm.console.text()) == []


def wait_until_nothing_is_left(vm: Machine) -> None:
    """The last of a killed program goes a moment later; 20 s."""
    for _ in range(200):
        left = leftovers(vm)
        if not left:
            return
        vm.agent.check("sleep 0.1")
    assert left == {}


def hold(vm: Machine) -> int:
    """Start the program that has buffers and a job in them, and waits; its pid."""
    log = "/tmp/hold.log"
    # before the start: the last one's log says the same
    vm.agent.check(f"rm -f {log}")
    pid = vm.agent.start(f"exec {PROGRAM} hold >{log} 2>&1")
    vm.agent.check(
        f"for i in $(seq 200); do grep -q holding {log} && exit; sleep 0.1; done; false"
    )
    return pid


def test_a_killed_program_leaves_nothing(vm: Machine) -> None:
    """kill -9 while its kernel adds to a word of a buffer."""
    for _ in range(3):
        pid = hold(vm)
        live = work.live(vm)
        assert live["live_buffers"] == 8
        assert live["live_buffer_pages"] == live["live_vram_pages"] == 28 * 256 + 8
        fdinfo = vm.agent.check(f"cat /proc/{pid}/fdinfo/*")
        assert f"hmm_gpu-buffers:\t{(28 * 256 + 8) * 4} KiB" in fdinfo
        # at rest or not: what is no mirror is not taken for one
        vm.gpu.audit_full()
        vm.agent.kill(pid)
        wait_until_nothing_is_left(vm)


def test_unplug(machine: Machine) -> None:
    """The device is pulled out from under buffers and a job."""
    pid = hold(machine)
    machine.unplug_gpu()
    machine.agent.check(
        "for i in $(seq 200); do ls /sys/bus/pci/drivers/hmm_gpu | grep -q 0000: || exit 0;"
        " sleep 0.1; done; false"
    )
    machine.agent.kill(pid)
    machine.agent.check("for i in $(seq 200); do rmmod hmm_gpu && exit; sleep 0.1; done; false")


#: Seconds for which jobs are waited for that a broken driver may let go on for ever: a sound one
#: ends them in milliseconds.
PATIENCE_S = 5

#: Drivers with one mistake: file, text that is there once, new text, the test that has to see it.
BROKEN = {
    "the next owner sees the last one's data": (
        "drm/bo.c", "ret = clear_frames(bo);", "ret = 0;", "calls"),
    "given away before the GPU is done": (
        "drm/bo.c", "\tlist_del_init(&bo->link);\n\tunmap_bo(bo);\n",
        "\tlist_del_init(&bo->link);\n\tdrm_mm_remove_node(&bo->node);\n", "late"),
    "the TLBs are left alone": (
        "drm/bo.c", "\thg_mmu_flush(&svm->vm, true);\n", "\tsvm->vm.gather.dirty = false;\n",
        "late"),
    "nobody knows the pages": (
        "mem/vram.c",
        "\t\t\tframes[got++] = base + bit;\n",
        "\t\t\tframes[got++] = base + bit;\n\t\t\t__clear_bit(bit++, chunk->map);\n", "calls"),
    "two buffers, one table": (
        "drm/bo.c", "ALIGN(((u64)bo->n + 1) << PAGE_SHIFT, HG_HUGE_SIZE)",
        "(u64)bo->n << PAGE_SHIFT", "calls"),
    "migrated pages do not make room": (
        "drm/bo.c", "\t\thg_vram_reserve(hdev, bo->n);\n", "", "full"),
    "frames are not given back": (
        "drm/bo.c", "\tunmap_bo(bo);\n\thg_vram_unpin(hdev, bo->n, bo->frames);\n",
        "\tunmap_bo(bo);\n", "calls"),
    "unbind forgets them": (
        "drm/bo.c",
        "\tlist_for_each_entry_safe(bo, next, &hdev->bos, link)\n\t\tdrop_locked(bo);\n",
        "\t(void)next;\n\t(void)bo;\n", "unbind"),
    "a huge page that is none": (
        "drm/bo.c", "\t\tif (bo->frames[i + k] != bo->frames[i] + k)\n\t\t\treturn false;\n",
        "\t\t;\n", "full"),
}  # fmt: skip


def run_broken(
    name: str, artifacts: Artifacts, program: bytes, snapshots: Snapshots, folder: Path
) -> tuple[ExecResult | None, list[str]]:
    """What the program says on a broken driver, and what device and kernel say."""
    file, old, new, test = BROKEN[name]
    text = (paths.driver_sources() / "module" / file).read_text()
    assert text.count(old) == 1
    patch = folder / "broken.patch"
    patch.write_text("".join(difflib.unified_diff(
        text.splitlines(True), text.replace(old, new).splitlines(True),
        f"a/guest-driver/module/{file}", f"b/guest-driver/module/{file}",
    )))  # fmt: skip
    request = BuildRequest(kernel_build=artifacts.kernel_build_dir, driver_patches=(patch,))
    with snapshots.open(best_spec(ensure(request))[0]) as vm:
        vm.agent.write_file(PROGRAM, program, 0o755)
        vm.gpu.set_audit("access")
        try:
            result = vm.agent.execute(f"{PROGRAM} {test} {PATIENCE_S} 2>&1", timeout=240)
            seen = mirror.read(vm.gpu.violations())
            said = [v.message for v in misuse.check(seen.protocol)]
            wrong = mirror.check(seen)
            said += [wrong.message] if wrong is not None else []
            said += [s.title for s in splat.scan(vm.console.text())]
            said += [f"{n} {v}" for n, v in leftovers(vm).items()]
        except VmDied as error:
            return None, [error.summary]
        return result, said


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_driver_is_noticed(
    name: str, artifacts: Artifacts, program: bytes, snapshots: Snapshots, tmp_path: Path
) -> None:
    result, said = run_broken(name, artifacts, program, snapshots, tmp_path)
    assert said or (result is not None and result.status == 1), result


KERNEL = """
#include "hmm_gpu_kernel.h"

struct args { int64_t *x; uint64_t n; };

HMM_KERNEL(square, struct args)
{
	for (uint64_t i = hmm_thread(); i < args->n; i += hmm_threads())
		args->x[i] *= args->x[i];
}
"""


def test_from_python(vm: Machine, tmp_path: Path) -> None:
    (tmp_path / "k.c").write_text(KERNEL)
    with gpu.open(vm, folder=tmp_path) as g:
        data = np.arange(100_000)
        x = g.array(data, memory="device")
        assert x.in_vram() == 1.0
        assert x.prefetch() == (0, 0)
        with pytest.raises(UsageError, match="cannot leave"):
            x.to_system()
        with g.counting() as grown:
            g.kernels("k.c").launch("square", 4, 64, x, len(data))
        # program and arguments, and nothing of the array
        assert grown["faults"] < 10
        np.testing.assert_array_equal(x.numpy(), data * data)
        y = g.zeros(100_000, np.int64)
        g.copy(y, x)
        np.testing.assert_array_equal(y.numpy(), data * data)
        with pytest.raises(SessionError, match="VRAM"):
            g.empty(1 << 40, np.int64, memory="device")
        x.free()
    wait_until_nothing_is_left(vm)
