# SPDX-License-Identifier: GPL-2.0-or-later
"""The kernel's own HMM tests, on this driver and on the kernel's test driver.

The program (tools/testing/selftests/mm/hmm-tests.c) is the one of the guest kernel's source,
unchanged. It finds a driver by its nodes, /dev/hmm_dmirror0 and 1 for device-private memory, 2 and
3 for device-coherent memory: hmm_gpu makes them with its parameter dmirror=1, one a GPU, so the
machine has four. test_hmm makes the first two without any device; for the others it wants memory
set aside, and the kernel crashes in them (Linux 7.3), so it is compared on the first two.

Its lines go through the guest's log to the console: so they are there also when the kernel dies
under it, and each has the guest's time. A test that was not reported has failed, and a run during
which the kernel printed a splat, or a device saw the mirror's contract broken, is bad whatever its
tests say.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from hmmbench.guest import splat
from hmmbench.oracle import device, mirror
from hmmbench.suites import ktap
from hmmbench.vm.errors import AgentTimeout, VmDied, VmError
from hmmbench.vm.machine import Machine
from hmmbench.vm.spec import MachineSpec

#: Seconds for one run of the program. Each of its tests has a limit of its own, 30 s mostly.
TIMEOUT = 1500.0

#: The largest test (7.3) moves 256 MiB to the device. The kernel's test driver keeps "device"
#: memory in the guest's RAM, beside the pages, a copy of them and a bounce buffer.
MEMORY_MIB = 2048
VRAM = "512M"
#: One a node: /dev/hmm_dmirror0 to 3.
GPUS = 4

OURS, THEIRS = "hmm_gpu", "test_hmm"

_MARK = "hmm-tests: "
#: Seconds since the guest's start, then the line.
_LINE = re.compile(r"^(?:<\d+>)?\[ *(\d+\.\d+)\] ?(?:\[ *[TC]\d+\] ?)?" + _MARK + "(.*)$")
_BEGUN = re.compile(r"^# +RUN +(\S+) \.\.\.$")
_ENDED = re.compile(r"^exit (\d+)$")

_COMMAND = (
    "chmod 755 /tmp/hmm-tests; cd /tmp;"
    " exec 3>/dev/kmsg;"
    ' { ./hmm-tests {args}; echo "exit $?"; } 2>&1 </dev/null |'
    ' while IFS= read -r line; do echo "<4>' + _MARK + '$line" >&3; done'
)


@dataclass(frozen=True)
class SelftestOutcome:
    """One test on one driver. status: "pass", "fail" or "skip"; seconds of the guest's time."""

    name: str
    status: str
    seconds: float | None
    reason: str = ""


@dataclass
class Run:
    """The program's run on one driver."""

    driver: str
    outcomes: list[SelftestOutcome] = field(default_factory=list)
    #: guest's time from the first test's start to the program's end, seconds
    seconds: float = 0.0
    #: what the program printed
    text: str = ""
    #: why it did not come to its end, or what kernel and device saw besides; empty if all is well
    trouble: str = ""
    #: the oracle that says so; empty if it is the program's own end
    oracle: str = ""
    #: translations that the devices compared with the CPU's
    audit_checks: int = 0

    def blame(self, what: str, oracle: str = "") -> None:
        """The first trouble is what the others came of."""
        if not self.trouble:
            self.trouble, self.oracle = what, oracle

    def count(self, status: str) -> int:
        return sum(outcome.status == status for outcome in self.outcomes)

    def find(self, name: str) -> SelftestOutcome | None:
        return next((outcome for outcome in self.outcomes if outcome.name == name), None)

    @property
    def bad(self) -> bool:
        """Something failed, or nothing was tested at all."""
        return bool(self.trouble) or self.count("fail") > 0 or self.count("pass") == 0


def machine(spec: MachineSpec, driver: str, audit: str = "off") -> MachineSpec:
    """The machine for one of the two drivers; `audit` is the devices' (docs/audit.md)."""
    spec = replace(spec, memory_mib=max(spec.memory_mib, MEMORY_MIB), network=False)
    if driver == THEIRS:
        return replace(
            spec, gpu=None, cmdline=(*spec.cmdline, "hmmbench.nodriver", "hmmbench.testhmm")
        )
    spec = spec.with_gpu(vram_size=VRAM, audit=audit)
    extra = list(spec.extra)
    for number in range(1, GPUS):
        # The first two have private memory, the others coherent memory.
        properties = {**dict(spec.gpu or ()), "id": f"gpu{number}", "bus": f"gpuport{number}"}
        if number >= GPUS // 2:
            properties["coherent"] = "on"
        port = f"id=gpuport{number},bus=pcie.0,chassis={number + 1},slot={number + 1}"
        words = ",".join(f"{name}={value}" for name, value in properties.items())
        extra += ["-device", f"pcie-root-port,{port}", "-device", f"hmm-gpu,{words}"]
    return replace(spec, extra=tuple(extra), cmdline=(*spec.cmdline, "hmmbench.driver=dmirror=1"))


def run(
    spec: MachineSpec, driver: str, program: Path, keep: Path | None = None, args: str = "",
    timeout: float = TIMEOUT, audit: str = "fill",
    leaving: Callable[[Machine], None] = lambda vm: None, ask: bool = True,
) -> Run:  # fmt: skip
    """Boot a machine and run the program in it.

    spec    -- the usual machine; see machine()
    driver  -- OURS or THEIRS
    program -- of the guest kernel's source
    keep    -- a folder for the console and QEMU's words, if anything is wrong
    args    -- of the program: its filters, "-t snapshot" say
    audit   -- of the devices, while the program runs
    leaving -- called with the machine before it ends, if it answers
    ask     -- whether what the devices saw counts, too

    Raises VmError if there is no machine, or its QEMU was ended from outside before anything was
    found: that says nothing.
    """
    begun = Run(driver)
    end: VmDied | None = None
    with Machine(machine(spec, driver, audit)) as vm:
        vm.agent.write_file("/tmp/hmm-tests", program.read_bytes())
        mark = len(vm.console.text())
        try:
            if vm.agent.execute(_COMMAND.replace("{args}", args), timeout).status < 0:
                begun.blame(f"not at its end after {timeout:g} s", "progress")
            vm.catch_up()
        except AgentTimeout:
            begun.blame(f"not at its end after {timeout:g} s", "progress")
        except VmDied as error:
            end = error
        # Read first: what was printed before an end from outside is no less true.
        read(begun, vm.console.text()[mark:], end)
        if end is not None and not begun.trouble:
            raise end
        if driver == OURS and ask:
            _ask_devices(vm, begun)
        if begun.bad and keep is not None:
            vm.keep(keep)
        with contextlib.suppress(VmError):
            leaving(vm)
    return begun


def _ask_devices(vm: Machine, found: Run) -> None:
    """What the GPUs' own checks saw meanwhile."""
    for number in range(GPUS):
        path = f"/machine/peripheral/gpu{number}"
        try:
            text = vm.qmp("qom-get", path=path, property="violations")
        except VmError as error:
            found.blame(str(error))
            return
        audit = mirror.read(str(text))
        found.audit_checks += audit.checks
        seen = mirror.seen(audit)
        if seen is not None:
            found.blame(f"gpu{number}: {seen.message}", seen.oracle)


def read(found: Run, console: str, end: VmDied | None = None) -> None:
    """Fill a run from what the guest printed.

    end -- what its machine died of meanwhile; if that came from outside it is no trouble, nor is
           what was not reported for it
    """
    violation = None if end is None else device.died(end)
    lost = end is not None and violation is None
    lines: list[tuple[float, str]] = []
    splats = splat.scan(console)
    for raw in console.splitlines():
        if match := _LINE.match(raw):
            lines.append((float(match[1]), match[2]))
    found.text = "".join(f"{line}\n" for _, line in lines)
    starts = [(time, m[1]) for time, line in lines if (m := _BEGUN.match(line))]
    ends = [time for time, line in lines if _ENDED.match(line)]
    if lines:
        found.seconds = round(lines[-1][0] - (starts[0][0] if starts else lines[0][0]), 3)
    if splats:
        found.blame(f"the kernel printed: {splats[0].title}", "kernel")
    if violation is not None:
        found.blame(violation.details, violation.oracle)
    if not ends and not lost:
        found.blame("the program did not end")
    try:
        suite = ktap.parse(found.text)
    except ktap.KtapError as error:
        if not lost:
            found.blame(f"{error}: {_tail(found.text)}")
        return
    stops = [time for time, _ in starts[1:]] + ends
    for index, test in enumerate(suite.tests):
        if lost and not test.name:
            # No line has reported it.
            continue
        name = test.name or (starts[index][1] if index < len(starts) else f"test {test.number}")
        seconds = None
        if index < len(starts) and index < len(stops):
            seconds = round(stops[index] - starts[index][0], 3)
        found.outcomes.append(SelftestOutcome(name, test.status, seconds, test.reason))
    failed = ", ".join(outcome.name for outcome in found.outcomes if outcome.status == "fail")
    if lost and failed:
        found.blame(f"{failed} failed before the machine was lost")


def _tail(text: str) -> str:
    return " / ".join(text.splitlines()[-3:]) or "it printed nothing"


def to_json(ours: Run, theirs: Run | None, about: dict[str, Any]) -> dict[str, Any]:
    """The result for programs. passed, failed and skipped are this driver's."""
    tests = []
    for outcome in ours.outcomes:
        other = theirs.find(outcome.name) if theirs else None
        tests.append(
            {
                "name": outcome.name,
                "status": outcome.status,
                "seconds": outcome.seconds,
                "reason": outcome.reason,
                "test_hmm": other.status if other else None,
                "test_hmm_seconds": other.seconds if other else None,
            }
        )
    return about | {
        **_summary(ours),
        "audit_checks": ours.audit_checks,
        "test_hmm": None if theirs is None else _summary(theirs),
        "ratio": ratio(ours, theirs),
        "tests": tests,
    }


def _summary(found: Run) -> dict[str, Any]:
    return {
        "passed": found.count("pass"),
        "failed": found.count("fail"),
        "skipped": found.count("skip"),
        "expected_failures": found.count("xfail"),
        "seconds": found.seconds,
        "trouble": found.trouble,
    }


def ratio(ours: Run, theirs: Run | None) -> float | None:
    """Seconds over the kernel's test driver's, of the tests that passed on both."""
    pairs = [
        (mine.seconds, other.seconds)
        for mine in ours.outcomes
        if theirs and (other := theirs.find(mine.name)) and mine.status == other.status == "pass"
    ]
    both = [(a, b) for a, b in pairs if a is not None and b is not None]
    total = sum(b for _, b in both)
    return round(sum(a for a, _ in both) / total, 3) if total else None
