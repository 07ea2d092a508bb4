# SPDX-License-Identifier: GPL-2.0-or-later
"""hmm_printf() of kernels, against the C library's printf; and libraries broken on purpose."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import work
from rich.console import Console

from hmmbench import gpu
from hmmbench.commands.workload import show
from hmmbench.gpu import build
from hmmbench.gpu.errors import CompileError, JobFailed
from hmmbench.guest import splat
from hmmbench.suites import driver_life, workload
from hmmbench.vm.agent import ExecResult
from hmmbench.vm.machine import Machine
from hmmbench.vm.snapshot import Snapshots
from hmmbench.vm.spec import MachineSpec

HERE = Path(__file__).parent

#: Ways to break the library that print_test.c must notice: file, text that is there once, new text.
BROKEN = {
    "signs of short numbers are lost": ("print.c", "return (int8_t)v", "return (uint8_t)v"),
    "a string without end is read on": ("print.c", "(v < MAX_FIELD ? v : MAX_FIELD)", "-1"),
    "dead granules stay": ("print.c", "!all_idle() || take_records(n, 1)", "1"),
    "granules of a thread are given away": (
        "print.c", "open = !all_over;", "b->tag[i] = HMM_PRINT_HOLE;"),
    "old tags stay": ("print.c", "memset(b->tag + print.done, 0, n - print.done);", ""),
    "records come twice": ("print.c", "b->tag[i] = HMM_PRINT_TAKEN | (uint8_t)granules;", ""),
    "nobody learns what was lost": ("print.c", "lost != print.seen_lost", "0"),
    "what a destroyed context left is kept for it": (
        "print.c", "*at = ctx->next;",
        "pthread_mutex_unlock(&print.lock); hmmgpu_print_flush();"
        " pthread_mutex_lock(&print.lock); *at = ctx->next;"
        " pthread_mutex_unlock(&print.lock); return;"),
    "a child prints for its parent": ("print.c", "if (print.buffer &&", "if (0 &&"),
    "formats are believed": (
        "print.c", "if (off < p->len && memchr", "if (1) return (void *)addr; if (memchr"),
    "a syncobj is waited for in silence": (
        "hmmgpu.c", "if (ret == 0)\n\t\thmmgpu_print_flush();", ""),
}  # fmt: skip


@pytest.fixture(scope="module")
def machine(spec: MachineSpec, snapshots: Snapshots) -> Iterator[Machine]:
    with snapshots.open(spec) as vm:
        yield vm


@pytest.fixture
def vm(machine: Machine) -> Iterator[Machine]:
    """The machine; a splat during the test fails the test."""
    machine.console.take()
    yield machine
    machine.check()
    assert splat.scan(machine.console.take()) == []


@pytest.fixture(scope="module")
def kernels() -> bytes:
    return build.kernels(HERE / "print_kernels.c")


def print_test(vm: Machine, library: Path, kernels: bytes, out: Path) -> ExecResult:
    """Run print_test.c with this build of the library."""
    vm.agent.write_file("/tmp/p.elf", kernels)
    test = driver_life.compile_c(HERE / "print_test.c", library, out, work.WARNINGS)
    vm.agent.write_file("/tmp/p", test, 0o755)
    return vm.agent.execute("/tmp/p /tmp/p.elf 2>&1", timeout=120)


def test_print(vm: Machine, kernels: bytes, tmp_path: Path) -> None:
    """Formats, threads, order, a full buffer, endless and failing kernels, fork, contexts."""
    driver_life.build_library(tmp_path)
    result = print_test(vm, tmp_path, kernels, tmp_path / "t")
    assert (result.status, result.output) == (
        0, "first\nb0 t0 0\nb0 t0 1\nlast\nall passed\n"
    )  # fmt: skip
    assert not any(work.live(vm).values())


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_library_is_noticed(
    vm: Machine, kernels: bytes, tmp_path: Path, name: str
) -> None:
    work.broken_library(tmp_path, *BROKEN[name])
    result = print_test(vm, tmp_path, kernels, tmp_path / "t")
    assert result.status != 0, result.output


@pytest.mark.parametrize("call", ['"%d", 1.0', '"%s", 1', '"%lu", 1u', '"%d %d", 1', "text"])
def test_the_compiler_knows_the_format(tmp_path: Path, call: str) -> None:
    (tmp_path / "k.c").write_text(
        '#include "hmm_gpu_kernel.h"\n'
        "HMM_KERNEL(k, const char)\n"
        f"{{ const char *text = args; (void)text; hmm_printf({call}); }}\n"
    )
    with pytest.raises(CompileError, match="-Wformat"):
        build.kernels(tmp_path / "k.c")


HELLO = """
#include "hmm_gpu_kernel.h"

struct args { uint64_t n; double x; };

HMM_KERNEL(hello, struct args)
{
	if (hmm_thread() < args->n)
		hmm_printf("thread %u: %.2f %s\\n", hmm_thread(), args->x * hmm_thread(), "times");
	if (hmm_thread() == 33)
		*(volatile int *)8 = 1;
}
"""


def test_python_has_the_text(
    vm: Machine, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """On standard output, or where it is told to; of a job that fails, too."""
    (tmp_path / "hello.c").write_text(HELLO)
    with gpu.open(vm, folder=tmp_path) as g:
        hello = g.kernels("hello.c")
        hello.launch("hello", 1, 4, 3, 1.5)
        want = ["thread 0: 0.00 times", "thread 1: 1.50 times", "thread 2: 3.00 times"]
        assert capsys.readouterr().out.splitlines() == want
        said: list[str] = []
        g.on_print = said.append
        with pytest.raises(JobFailed, match=r"hello\.c:11"):
            hello.launch("hello", 1, 64, 2, 1.0)
        assert "".join(said).splitlines() == ["thread 0: 0.00 times", "thread 1: 1.00 times"]
        assert capsys.readouterr().out == ""


WORKLOAD = '''"""Says hello."""

SIZES = {"tiny": {"n": 2}, "small": {"n": 2}, "large": {"n": 2}}


def run(gpu, n):
    gpu.kernels("hello.c").launch("hello", 1, 4, n, 1.0)
'''


def test_a_workload_shows_it(
    vm: Machine, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "hello.c").write_text(HELLO)
    (tmp_path / "hello.py").write_text(WORKLOAD)
    (one,) = workload.choose([str(tmp_path / "hello.py")])
    outcome = workload.run_one(vm, one, "tiny")
    assert (outcome.verdict, outcome.detail) == ("pass", "")
    assert outcome.printed == "thread 0: 0.00 times\nthread 1: 1.00 times\n"
    assert capsys.readouterr().out == ""
    show([outcome], Console(highlight=False, width=110))
    assert "hello: thread 1: 1.00 times\n" in capsys.readouterr().out
