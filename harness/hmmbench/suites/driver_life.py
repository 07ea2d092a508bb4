# SPDX-License-Identifier: GPL-2.0-or-later
"""What a driver goes through besides memory operations: for `run --coverage`.

The examples of a campaign open files, run jobs and move pages.  A driver's life has more: it is
unbound, reset, unplugged and unloaded, its debugfs files are read and written, it is called
wrongly, and its device fails.  Each part runs in a fresh machine; the same parts, with more to
check, are tests/vm/test_driver_life.py, test_driver_odd.py and test_buffers.py.
"""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hmmbench.base import paths, processes
from hmmbench.base.errors import EnvironmentFailure
from hmmbench.guest import splat
from hmmbench.oracle import device, mirror
from hmmbench.suites import selftests
from hmmbench.vm.agent import AgentError
from hmmbench.vm.errors import GuestHangs, VmDied, VmError
from hmmbench.vm.machine import Machine
from hmmbench.vm.opener import Opener
from hmmbench.vm.spec import MachineSpec

#: In tests/vm, each a C source, and where they go in the guest.
PROGRAMS = ("driver_life", "driver_odd", "buffer_test")
KERNELS = "/tmp/kernels.elf"

#: Seconds for one part.
LIMIT_S = 240

#: Parts that are a mode of tests/vm/driver_life.c, and the rule for the device.
_MODES = {
    "unbind": "", "reset": "", "lazyfree": "", "cow": "", "tight": "", "starve": "",
    "copyerr": "ce.copy prob=0.05 error", "silent": "mmu.invalidate count=1 delay=60s",
}  # fmt: skip

_BUFFERS = "for t in calls full late reset unbind leave; do /tmp/buffer_test $t || exit 1; done"

_DEBUGFS = """
cd /sys/kernel/debug/dri/0 || exit 1
for f in *; do [ -f $f ] && cat $f >/dev/null 2>&1; done
for f in *; do [ -f $f ] && echo hmmbench-nonsense >$f; done 2>/dev/null
p=/sys/module/hmm_gpu/parameters
for f in $p/*; do v=$(cat $f) && [ -w $f ] && echo $v >$f; done 2>/dev/null
true
"""


#: The oracle of what a part's own checks find.
OWN = "life"


@dataclass(frozen=True)
class Part:
    """`what`: empty, or what went wrong, and the oracle that says so; none: it was not judged, as
    its machine was lost, or it could not be built."""

    name: str
    what: str = ""
    oracle: str = ""
    details: str = ""

    def violation(self) -> dict[str, Any] | None:
        """For a report: without a recipe, since no program of operations shows it."""
        if not self.oracle:
            return None
        return {
            "oracle": self.oracle, "message": f"{self.name}: {self.what}",
            "details": self.details, "recipe": "", "operations": 0, "rate": 1.0,
        }  # fmt: skip


def parts(opener: Opener, leaving: Callable[[Machine], None]) -> Iterator[Part]:
    """Go through all, one after another, so that what one found is there whatever comes of the
    next; `leaving` is called with each machine before it ends."""
    with tempfile.TemporaryDirectory(prefix="hmmbench-life-") as folder:
        files = build(Path(folder))
    runs: dict[str, Callable[[Machine], None]] = {
        **{name: _mode(name, rule) for name, rule in _MODES.items()},
        "unplug": _unplug,
        "odd": _command(f"/tmp/driver_odd {KERNELS}"),
        "buffers": _command(_BUFFERS),
        # For its traces alone.
        "debugfs": _command(f"({_DEBUGFS}) || true"),
    }
    for name, act in runs.items():
        yield _run(name, act, opener, leaving, files)


def kernels_own(
    spec: MachineSpec, program: Path, leaving: Callable[[Machine], None]
) -> Part:
    """The kernel's hmm-tests: device-exclusive and device-coherent memory, several GPUs."""
    try:
        found = selftests.run(spec, selftests.OURS, program, leaving=leaving)
    except VmError as error:
        return Part("hmm-tests", error.message)
    failed = [outcome.name for outcome in found.outcomes if outcome.status == "fail"]
    if found.trouble:
        return Part("hmm-tests", found.trouble, found.oracle or OWN)
    return Part("hmm-tests", ", ".join(failed), OWN if failed else "")


def build(
    out: Path, names: Sequence[str] = PROGRAMS, flags: Sequence[str] = ()
) -> dict[str, bytes]:
    """The test programs and the GPU kernels they use, by their place in the guest.

    out   -- a folder for what is built
    names -- of PROGRAMS
    flags -- more of the compiler's

    Raises EnvironmentFailure with the compiler's words.
    """
    sources = paths.project_root() / "tests/vm"
    build_library(out)
    return {
        **{
            f"/tmp/{name}": compile_c(sources / f"{name}.c", out, out / name, flags)
            for name in names
        },
        KERNELS: (out / "kernels.elf").read_bytes(),
    }


def build_library(out: Path) -> None:
    """libhmmgpu.a, libhmmgpu_engine.a and kernels.elf, and the agent beside them."""
    _call(["make", "-s", "-C", str(paths.user_sources()), f"OUT={out}"])


#: What a program that talks to the driver itself is linked with, and what an exported one is.
LIBRARY = ("hmmgpu",)
ENGINE = ("hmmgpu_engine", "hmmgpu")


def compile_c(
    source: Path, library: Path, out: Path, flags: Sequence[str] = (),
    libraries: Sequence[str] = LIBRARY,
) -> bytes:  # fmt: skip
    """The guest's program `out` of one C file and libraries of the folder `library`."""
    driver = paths.driver_sources()
    agent = (f"user/agent/{d}" for d in ("repro", "base"))
    folders = ("user/lib", "include/uapi", "user/kernels", *agent)
    includes = [f"-I{driver / d}" for d in folders]
    _call(
        ["gcc", "-static", "-std=gnu11", "-O2", *flags, *includes,
         f"-I{paths.device_sources() / 'include'}", str(source),
         *(str(library / f"lib{name}.a") for name in libraries), "-lpthread", "-o", str(out)]
    )  # fmt: skip
    return out.read_bytes()


def _call(argv: list[str]) -> None:
    done = processes.run(argv)
    if done.returncode:
        raise EnvironmentFailure(f"building {argv[-1]}: {done.stderr.strip()[-400:]}")


def _run(
    name: str, act: Callable[[Machine], None], opener: Opener,
    leaving: Callable[[Machine], None], files: dict[str, bytes],
) -> Part:  # fmt: skip
    try:
        vm = opener()
    except VmError as error:
        return _broken(name, error)
    part = Part(name)
    try:
        for path, content in files.items():
            vm.agent.write_file(path, content, 0o755)
        act(vm)
        # gcov keeps the counts of a module that is gone.
        vm.agent.check("rmmod hmm_gpu", LIMIT_S)
        vm.catch_up()
    except VmError as error:
        part = _broken(name, error)
    # Whatever else there is: a program that failed is often what came of it.
    part = _seen(name, vm) or part
    if splats := splat.scan(vm.console.text()):
        part = Part(name, splats[0].title, "kernel", splats[0].text)
    with contextlib.suppress(VmError):
        leaving(vm)
    return part


def _broken(name: str, error: VmError) -> Part:
    """A part that did not come to its end."""
    oracle = ""
    if isinstance(error, VmDied):
        if found := device.died(error):
            return Part(name, found.message, found.oracle, found.details)
    elif isinstance(error, GuestHangs):
        oracle = "progress"
    elif isinstance(error, AgentError):
        oracle = OWN
    return Part(name, error.message, oracle)


def _seen(name: str, vm: Machine) -> Part | None:
    """What the device itself saw; nothing, if it is gone with its machine, or was unplugged."""
    try:
        audit = mirror.read(vm.gpu.violations())
    except VmError:
        return None
    found = mirror.seen(audit)
    return None if found is None else Part(name, found.message, found.oracle, found.details)


def _command(text: str) -> Callable[[Machine], None]:
    def act(vm: Machine) -> None:
        vm.agent.check(text, LIMIT_S)

    return act


def _mode(name: str, rule: str) -> Callable[[Machine], None]:
    def act(vm: Machine) -> None:
        if rule:
            vm.gpu.inject(rule)
        vm.agent.check(f"/tmp/driver_life {KERNELS} {name}", LIMIT_S)
        vm.gpu.inject()

    return act


def _unplug(vm: Machine) -> None:
    """The port takes the device away from the driver while jobs run and pages are in VRAM."""
    log = "/tmp/unplug.log"
    vm.agent.check(f"(/tmp/driver_life {KERNELS} unplug; echo over) >{log} 2>&1 & echo started")
    vm.agent.check(_until(log, "unplug now"), LIMIT_S)
    vm.unplug_gpu(LIMIT_S)
    vm.agent.check(_until(log, "unplug passed"), LIMIT_S)


def _until(path: str, text: str) -> str:
    """Waits for it, but not for a program that is over without it."""
    there = f"grep -q '{text}' {path}"
    over = f"grep -q '^over$' {path} && {{ {there} && exit; cat {path}; exit 1; }}"
    return f"until {there}; do {over}; sleep 0.1; done"
