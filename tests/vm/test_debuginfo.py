# SPDX-License-Identifier: GPL-2.0-or-later
"""Debug information of the kernel and driver that ran: same code, right lines, usable in gdb.

Needs `./hmmbench build --debug-info`, which takes as long as building a kernel.
"""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
import work

from hmmbench import gpu
from hmmbench.base.errors import EnvironmentFailure
from hmmbench.build import Artifacts, debuginfo
from hmmbench.debug import session
from hmmbench.example.recipe import Environment
from hmmbench.example.vm_target import VmTarget
from hmmbench.guest.program import PAGE
from hmmbench.suites import driver_life
from hmmbench.symbols import SymbolTable, of_guest, sections
from hmmbench.symbols.elf import Elf
from hmmbench.symbols.source import SourceLines, explainer
from hmmbench.vm.machine import Machine
from hmmbench.vm.opener import Opener
from hmmbench.vm.spec import MachineSpec

#: For reports that are written into the kernel's log here.
HEAD = "WARNING: CPU: 0 PID: 1 at mm/hmm.c:1 "


@pytest.fixture(scope="module")
def built(artifacts: Artifacts) -> Artifacts:
    if artifacts.debug_vmlinux is None:
        pytest.skip("no debug information: ./hmmbench build --debug-info")
    return artifacts


@pytest.fixture
def lines(built: Artifacts) -> SourceLines:
    found = SourceLines.of(built)
    assert found is not None
    return found


def test_the_kernel_has_the_same_code(built: Artifacts) -> None:
    assert built.debug_vmlinux is not None
    made = built.debug_vmlinux.parent
    debuginfo.check(built.kernel_build_dir, made)
    plain, debug = Elf(built.kernel_build_dir / "vmlinux"), Elf(built.debug_vmlinux)
    for name in (".text", ".data", ".init.text"):
        one, other = plain.section(name), debug.section(name)
        assert one
        assert other
        assert one.size > 1000
        assert plain.content(one) == debug.content(other)
    assert debug.section(".debug_info")


def test_one_byte_of_code_is_seen(built: Artifacts, tmp_path: Path) -> None:
    plain = built.kernel_build_dir
    section = Elf(plain / "vmlinux").section(".text")
    assert section is not None
    data = bytearray((plain / "vmlinux").read_bytes())
    data[section.offset + section.size // 2] ^= 1
    (tmp_path / "vmlinux").write_bytes(data)
    (tmp_path / "System.map").write_bytes((plain / "System.map").read_bytes())
    with pytest.raises(EnvironmentFailure, match=r"\.text"):
        debuginfo.check(plain, tmp_path)


def test_the_driver_has_the_same_code(built: Artifacts) -> None:
    assert built.debug_module_dir is not None
    made = Elf(built.debug_module_dir / "hmm_gpu.ko")
    assert debuginfo.differences(Elf(built.module_dir / "hmm_gpu.ko"), made) == []
    assert made.section(".debug_info")


def place_in(table: SymbolTable, function: str, offset: int = 0x20) -> str:
    """As the kernel prints it."""
    symbol = table.find(function)
    assert symbol is not None
    module = f" [{symbol.module}]" if symbol.module else ""
    return f"{function}+{offset:#x}/{symbol.size:#x}{module}"


@pytest.mark.parametrize(
    ("function", "file"),
    [
        ("hmm_range_fault", "mm/hmm.c"), ("migrate_vma_setup", "mm/migrate_device.c"),
        ("handle_mm_fault", "mm/memory.c"), ("hg_svm_map_window", "guest-driver/module/mem/map.c"),
    ],
)  # fmt: skip
def test_lines(vm: Machine, built: Artifacts, lines: SourceLines, function: str, file: str) -> None:
    """The line is in the file, and in it the function."""
    table = of_guest(built, sections(vm.agent))
    if table.find(function) is None:
        pytest.fail(f"{function} is gone: name another")
    frame = f" {place_in(table, function)}"
    said = lines.annotate(frame)
    match = re.fullmatch(re.escape(frame) + r"  (.*)", said)
    assert match, said
    outermost = match[1].split(", inlined at ")[-1]
    name, _, number = outermost.rpartition(":")
    assert name == file
    root = built.debug_module_dir if file.startswith("guest-driver") else built.kernel_source_dir
    assert root is not None
    text = (root / name).read_text().splitlines()
    begins = next(n for n, line in enumerate(text, 1) if re.match(rf"\w.*\b{function}\(", line))
    assert begins <= int(number) < begins + 150


def test_stacks_of_the_guest(vm: Machine, lines: SourceLines) -> None:
    """All that sleeps in the kernel now: nearly each frame has a line."""
    said = vm.agent.check("cat /proc/[0-9]*/stack 2>/dev/null; true")
    stacks = [line for line in said.splitlines() if "+0x" in line]
    assert len(stacks) > 20
    annotated = lines.annotate("\n".join(stacks)).splitlines()
    assert sum(bool(re.search(r"  \S+:\d+", line)) for line in annotated) > 0.9 * len(stacks)


def test_a_report_on_its_way_to_people(spec: MachineSpec, built: Artifacts) -> None:
    """From the guest's console to the violation, with file and line."""
    with Opener(spec) as opener, VmTarget(opener, explain=explainer(built)) as target:
        table = of_guest(built, sections(target.vm.agent))
        report = [HEAD + place_in(table, "hmm_range_fault"), "Call Trace:", " <TASK>",
                  f" {place_in(table, 'migrate_vma_setup')}", "---[ end trace 0 ]---"]  # fmt: skip
        for line in report:
            target.vm.agent.check(f"echo '<4>{line}' >/dev/kmsg")
        execution = target.execute(work.mixed(0).program, Environment())
    (found,) = [v for v in execution.violations if v.oracle == "kernel"]
    assert re.search(r"hmm_range_fault\+0x20/0x\w+  .*mm/hmm\.c:\d+", found.details)
    assert re.search(r"migrate_vma_setup\+0x20/0x\w+  .*mm/migrate_device\.c:\d+", found.details)
    assert "mm/" not in found.message.replace("mm/hmm.c:1 ", "")


def test_mirror_in_gdb(vm: Machine, built: Artifacts) -> None:
    places = sections(vm.agent)
    assert "no process is mirrored" in session.batch(vm, built, places, ["hmm-mirror"])
    vm.resume()
    with gpu.open(vm) as g:
        a = g.array(np.arange(2 * PAGE, dtype=np.uint8), "anon")
        a.prefetch()
        said = session.batch(vm, built, places, ["hmm-mirror", "hmm-gpu"])
        vm.resume()
    asid = re.search(
        r"struct hg_svm at 0xffff\w+: asid (\d+), mapped: (\d+) .*, (\d+) of VRAM", said
    )
    assert asid, said
    assert f"asid {asid[1]}: root" in said
    assert int(asid[3]) >= 2
    assert re.search(r"told to svm_notifier_ops", said)
    assert "0 of the last refused ones known" in said
    assert "0 invalidations under way" in said
    assert "pt_lock is free" in said


def test_a_breakpoint_in_the_kernel(vm: Machine, built: Artifacts, tmp_path: Path) -> None:
    """Stopped in hmm_range_fault(): the driver's frames below it have file and line."""
    for path, content in driver_life.build(tmp_path, ["driver_life"], work.WARNINGS).items():
        vm.agent.write_file(path, content, 0o755)
    places = sections(vm.agent)
    vm.agent.start(f"sleep 2; /tmp/driver_life {driver_life.KERNELS} cow")
    said = session.batch(
        vm, built, places, ["hbreak hmm_range_fault", "continue", "backtrace 6", "delete"]
    )
    vm.resume()
    assert re.search(r"#0 .*hmm_range_fault \(range=[^)]*\) at \S*mm/hmm\.c:\d+", said), said
    assert re.search(r"#\d .* at guest-driver/module/mem/(map|snapshot)\.c:\d+", said), said
