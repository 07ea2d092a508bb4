# SPDX-License-Identifier: GPL-2.0-or-later
"""What lets the host into an exact machine, opened again: executions part, and it is seen where.

The numbers are those of docs/exact.md.  Five are an option of the object hmm-exact
(qemu-device/qemu/hmm-exact-leaks.c), two of the machine; 1 is in test_exact_stops.py.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace

import pytest

from hmmbench.build import Artifacts
from hmmbench.campaign import fleet
from hmmbench.campaign.repeat import Part, Repeated, exact_specs, load, repeat
from hmmbench.vm.errors import QmpFailure
from hmmbench.vm.exact import Exact
from hmmbench.vm.snapshot import Snapshots
from hmmbench.vm.spec import MachineSpec

pytestmark = pytest.mark.alone

CPUS = 2
PROGRAMS, TIMES = 2, 2
#: Whether the host comes by in time is the host's matter: of twenty runs of two programs with leak
#: 2, two repeated to the last byte.  So it is looked for in this many, which are other programs.
SEEDS = range(11, 27)

Leaking = Callable[[int, int], Repeated]


@pytest.fixture(scope="module")
def leaking(artifacts: Artifacts, spec: MachineSpec) -> Leaking:
    """A few programs, several times, with a leak opened in each machine."""
    specs = exact_specs(spec, (CPUS,))
    points = {CPUS: fleet.exact_points(artifacts, specs[CPUS])}
    schedule = Exact.schedule

    def run(leak: int, seed: int) -> Repeated:
        def opened(self: Exact, words: str) -> None:
            schedule(self, words)
            self._set("leak", leak)

        with pytest.MonkeyPatch.context() as patch, load():
            patch.setattr(Exact, "schedule", opened)
            return repeat(specs, points, seed=seed, examples=PROGRAMS, times=TIMES)

    return run


@pytest.fixture(scope="module")
def closed(leaking: Leaking) -> Repeated:
    """The same with none: once, for all of them."""
    return leaking(0, SEEDS[0])


def in_time(leak: int, parted: list[Part]) -> bool:
    """The leak was met while the examples ran: each that parted has another answer.

    7 stops the machine where it does, at its end.  The others can be met behind an answer, too:
    seen once, of a program of these.
    """
    return bool(parted) and (leak == 7 or all("answer" in part.differs for part in parted))


@pytest.mark.parametrize("leak", [2, 4, 7])
def test_a_leak_parts_executions(leaking: Leaking, closed: Repeated, leak: int) -> None:
    """The main loop moves the clock; deadlines of the real-time clock; it stops the machine."""
    assert [str(part) for part in closed.parted] == []
    for seed in SEEDS:
        parted = leaking(leak, seed).parted
        for part in parted:
            assert part.where.startswith("parted at decision ") or (
                part.where == "no decision differs"
            )
            assert part.differs
        if in_time(leak, parted):
            break
    else:
        pytest.fail(f"leak {leak} was met in time with none of {len(SEEDS)} seeds")
    if seed != SEEDS[0]:
        assert not leaking(0, seed).parted


#: How much of its memory a process has touched since it asked for that to be forgotten: what a
#: TLB still had does not count.
TOUCHED = """awk 'BEGIN {
    for (i = 0; i < 60000; i++)
        a[i] = i "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx";
    for (r = 0; r < 12; r++) {
        print 1 > "/proc/self/clear_refs"; close("/proc/self/clear_refs");
        for (i = 0; i < 60000; i += 40)
            s += length(a[i]);
        t = 0;
        while ((getline l < "/proc/self/smaps") > 0)
            if (l ~ /^Referenced/) { split(l, w, " "); t += w[2] }
        close("/proc/self/smaps");
        printf "%d ", t
    }
}'"""


def asked(spec: MachineSpec, command: str, leak: int = 0) -> tuple[str, int]:
    """What a fresh machine answers to a command, and the hash of its decisions."""
    with Snapshots().open(exact_specs(spec, (CPUS,))[CPUS]) as machine:
        machine.exact.schedule("seed=1 slice=7:12")
        machine.exact._set("leak", leak)
        done = machine.agent.execute(command)
        assert done.status == 0, done.output
        return done.output, machine.exact.state()["hash"]


def test_a_guest_sees_the_sizes_of_tlbs(spec: MachineSpec) -> None:
    """They go by the host's clock: not the execution of a machine in which they do not.

    How far the clock has come between two flushes did not matter here: neither load nor a QEMU
    that was stopped for 120 of 140 ms made another size of one.
    """
    closed = [asked(spec, TOUCHED) for _ in range(2)]
    assert closed[0] == closed[1]
    answer, decided = asked(spec, TOUCHED, leak=3)
    assert answer != closed[0][0]
    assert decided != closed[0][1]


WRITES = "n=0; while [ $n -lt 60 ]; do echo $n >/dev/vport0p1 || exit 1; n=$((n+1)); done"


def test_an_ioeventfd_is_served_when_the_host_likes(spec: MachineSpec) -> None:
    def serial(ioeventfd: str) -> set[tuple[str, int]]:
        extra = (
            *("-device", f"virtio-serial-pci,id=leak,disable-legacy=on,ioeventfd={ioeventfd}"),
            *("-chardev", "file,id=leak,path=/dev/null"),
            *("-device", "virtserialport,bus=leak.0,chardev=leak,name=leak"),
        )
        machine = replace(spec, extra=(*spec.extra, *extra))
        found: set[tuple[str, int]] = set()
        with load():
            for times in range(1, 31):
                found.add(asked(machine, WRITES))
                if times >= 3 and (ioeventfd == "off" or len(found) > 1):
                    break
        return found

    assert len(serial("off")) == 1
    assert len(serial("on")) > 1


def test_the_hosts_time_in_the_guests_clock(spec: MachineSpec) -> None:
    """What a guest would read of its battery-backed clock; no example does."""

    def clocks(*extra: str) -> list[object]:
        found = []
        exact = exact_specs(replace(spec, extra=(*spec.extra, *extra)), (CPUS,))[CPUS]
        for seconds in (0.0, 2.1):
            with Snapshots().open(exact) as machine:
                machine.idle_for(1000)
                time.sleep(seconds)
                found.append(machine.qmp("qom-get", path="/machine", property="rtc-time"))
        return found

    first, second = clocks()
    assert first == second
    first, second = clocks("-rtc", "base=2026-01-01,clock=host")
    assert first != second


def test_there_is_no_other_leak(spec: MachineSpec) -> None:
    with (
        Snapshots().open(exact_specs(spec, (CPUS,))[CPUS]) as machine,
        pytest.raises(QmpFailure, match="there is no leak 5 here"),
    ):
        machine.exact._set("leak", 5)
