# SPDX-License-Identifier: GPL-2.0-or-later
"""Single files of the driver in a program of the host, in a kernel that is faked.

For what takes a machine long to show, or never: who comes between two lines, which flags an
allocation has. What the kernel really does is not asked here; tests/vm asks that.
"""

from __future__ import annotations

import re
import subprocess
from functools import cache
from pathlib import Path

import pytest

from hmmbench.base import paths

HERE = Path(__file__).parent
MODULE = paths.driver_sources() / "module"

#: Headers of the host that the interface needs; all others are empty.
REAL = {"linux/types.h", "linux/ioctl.h"}

_INCLUDE = re.compile(r"^#include <((?:linux|drm|asm|trace)/[^>]+)>", re.MULTILINE)
_TRACE = re.compile(r"^(?:TRACE_EVENT|DEFINE_EVENT)\((?:\w+, )?(\w+),$", re.MULTILINE)


def call(*argv: str | Path) -> str:
    done = subprocess.run([*map(str, argv)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@cache
def headers(folder: Path) -> None:
    """Empty files for what the driver includes of the kernel; trace points that do nothing."""
    sources = [*MODULE.rglob("*.[ch]"), *(paths.driver_sources() / "include").rglob("*.h")]
    for source in sources:
        for name in set(_INCLUDE.findall(source.read_text())) - REAL:
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).touch()
    events = _TRACE.findall((MODULE / "base/hmm_gpu_trace.h").read_text())
    assert len(events) > 5
    (folder / "traces.h").write_text(
        "".join(f"#define trace_{name}(...) nop(__VA_ARGS__)\n" for name in events)
    )


def run(folder: Path, unit: str, *args: str) -> None:
    build(folder, unit)
    call("timeout", "60", folder / unit, *args)


@cache
def build(folder: Path, unit: str) -> None:
    """The program of `unit`.c; what it calls and nobody defines returns 0."""
    headers(folder)
    flags = ["-std=gnu11", "-g", "-O1", "-w", "-Wno-error", "-fpermissive", "-D__KERNEL__"]
    dirs = [folder, HERE, MODULE, paths.driver_sources() / "include/uapi",
            paths.device_sources() / "include"]  # fmt: skip
    main, stubs = folder / f"{unit}.o", folder / f"{unit}_stubs.c"
    call("gcc", *flags, *(f"-I{d}" for d in dirs), "-include", HERE / "fake_kernel.h",
         "-include", folder / "traces.h", "-c", HERE / f"{unit}.c", "-o", main)  # fmt: skip
    missing = re.findall(r" U ([a-zA-Z_]\w*)$", call("nm", "-u", main), re.MULTILINE)
    known = set(_LIBC.findall(call("nm", "-D", "--defined-only", _libc())))
    known.add("_GLOBAL_OFFSET_TABLE_")
    stubs.write_text(
        "".join(f"long {n}(void) {{ return 0; }}\n" for n in missing if n not in known)
    )
    call("gcc", "-w", main, stubs, "-o", folder / unit)


_LIBC = re.compile(r" [TWi] (\w+)@", re.MULTILINE)


@cache
def _libc() -> str:
    return call("gcc", "-print-file-name=libc.so.6").strip()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("fakes")


@pytest.mark.parametrize("case", ["plain", "late_context", "late_wedge", "reclaim", "given_up"])
def test_reset(folder: Path, case: str) -> None:
    """A context made meanwhile is ended; reclaim needs no end of it; what was given up returns,
    and nothing is left to be done about it.
    """
    run(folder, "reset_unit", case)


@pytest.mark.parametrize("case", ["plain", "reset"])
def test_mirror_opened_across_a_reset(folder: Path, case: str) -> None:
    run(folder, "svm_unit", case)


def test_bus_mastering_goes_off_before_invalidations_are_skipped(folder: Path) -> None:
    run(folder, "hw_unit", "wedge")


def test_bounce_buffers_are_refused(folder: Path) -> None:
    run(folder, "hw_unit", "dma")


def test_list_lost_because_of_anothers(folder: Path) -> None:
    run(folder, "ce_unit")


def test_exclusive_look_at_everything(folder: Path) -> None:
    run(folder, "exclusive_unit")


@pytest.mark.parametrize("case", ["limits", "buffers", "slices", "accounted", "given_back"])
def test_what_one_user_gets(folder: Path, case: str) -> None:
    run(folder, "user_unit", case)


def test_a_process_pays_for_its_tables(folder: Path) -> None:
    run(folder, "table_unit")


def test_contexts_are_not_a_childs(folder: Path) -> None:
    run(folder, "jobs_unit", "child")


def test_syncobj_has_no_fence_before_its_job_is_over(folder: Path) -> None:
    run(folder, "jobs_unit", "syncobj")


def test_what_was_lost_is_found_by_a_second_look(folder: Path) -> None:
    run(folder, "jobs_unit", "watch")


def test_query_heeds_signals(folder: Path) -> None:
    run(folder, "query_unit", "signals")


def test_what_is_waited_for_and_what_is_refused(folder: Path) -> None:
    run(folder, "fault_unit")


def test_a_fault_of_who_has_ended_stays_that(folder: Path) -> None:
    run(folder, "fault_ring_unit")


def test_eviction_kills_nobody(folder: Path) -> None:
    run(folder, "memory_unit")


def test_no_bus_address_is_no_unreadable_page(folder: Path) -> None:
    run(folder, "copy_unit")


def test_unplugging_waits_for_no_other_device(folder: Path) -> None:
    run(folder, "remove_unit", "other")


def test_unplugging_waits_for_no_arguments(folder: Path) -> None:
    run(folder, "remove_unit", "memory")


def test_calls_are_at_the_device(folder: Path) -> None:
    """So that its removal waits for them: each, or in MIGRATE and QUERY what needs it."""
    run(folder, "remove_unit", "calls")
    run(folder, "migrate_unit")
    run(folder, "query_unit", "gone")


def test_buffers_are_not_a_childs(folder: Path) -> None:
    run(folder, "remove_unit", "child")


def test_module_does_not_let_itself_go() -> None:
    """Code that runs after the last reference of its module was dropped may be gone.

    But of a work for whose end the module's exit waits.
    """
    where = [p.name for p in MODULE.rglob("*.c") if re.search(r"\bmodule_put\(", p.read_text())]
    assert sorted(where) == ["drv.c", "fault.c"]
    text = (MODULE / "mem/fault.c").read_text()
    assert text.count("module_put(") == 1
    assert re.search(r"module_exit\(void\)\n{\n\tdestroy_workqueue\(hg_fault_wq\);", text)
    text = (MODULE / "pci/drv.c").read_text()
    assert text.count("module_put(") == 1
    assert re.search(r"module_put\(THIS_MODULE\);\n}\n", text)
    last = text[text.index("hg_module_exit(void)") :]
    waits = ("wait_event_idle(hg_reaped", "destroy_workqueue(hg_reap_wq)", "hg_fault_module_exit")
    assert -1 < last.find(waits[0]) < last.find(waits[1]) < last.find(waits[2])
