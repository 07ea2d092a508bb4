# SPDX-License-Identifier: GPL-2.0-or-later
"""Work that takes a while and stalls on faults: what reset, snapshot and unplug interrupt."""

from __future__ import annotations

from qtest_machine import PAGE, AddressSpace, Gpu, Machine, eventually, hw
from qtest_programs import INCREMENT_PAGES, SPIN

CODE = 0x1_0000
DATA = 0x4000_0000
#: Threads of one block, one page each.
THREADS = 24
REPLAYABLE = "replayable faults outstanding"


class Launch:
    """THREADS threads that each add 1 to their own page. Code is mapped, data is not.

    begin() returns with all faults in the ring (or pending); finish() serves them and waits.
    The same object goes on with another machine that has the same state (after a restore).
    """

    def __init__(self, machine: Machine) -> None:
        self.space = AddressSpace(machine.gpu)
        self.frames = [machine.alloc() for _ in range(THREADS)]
        self.report = machine.alloc()
        code = machine.alloc()
        machine.write(code, INCREMENT_PAGES)
        for frame, value in zip(self.frames, range(THREADS), strict=True):
            machine.store(frame, 1000 * value, 8)
        self.space.map(CODE, code)
        self.context = machine.gpu.context(0)
        self.fence = 0

    def begin(self, gpu: Gpu) -> None:
        """Submit, and wait until every page has faulted."""
        self.context.submit(hw.HG_OP_LAUNCH, CODE, DATA, THREADS << 32 | 1, 0, 0, 0, self.report)
        self.fence = self.context.fence(hw.HG_FENCE_IRQ)
        eventually(REPLAYABLE, lambda: gpu.counter(hw.HG_CNT_PENDING_FAULTS) == THREADS)

    def finish(self, machine: Machine) -> None:
        """Map what was faulted for, replay until the fence; then check every result."""
        self.move_to(machine)
        served: set[int] = set()

        def serve() -> bool:
            for fault in machine.gpu.faults():
                assert fault.asid == 1
                page = (fault.address - DATA) // PAGE
                assert fault.address == DATA + page * PAGE
                assert 0 <= page < THREADS
                self.space.map(fault.address, self.frames[page])
                served.add(page)
            # Time slices end in virtual time, which is ours under qtest.
            machine.clock_step(2_000_000)
            machine.gpu.replay()
            return self.context.reached(self.fence)

        eventually("fence of the launch", serve)
        assert served == set(range(THREADS))
        assert machine.load(self.report + hw.HG_RPT_STATUS, 4) == hw.HG_ERR_NONE
        assert [machine.load(frame, 8) for frame in self.frames] == [
            1000 * value + 1 for value in range(THREADS)
        ]

    def move_to(self, machine: Machine) -> None:
        """Go on with another machine in the same state."""
        self.space.machine = machine
        self.context.gpu = machine.gpu


def spin(machine: Machine, wait: bool = True, program: bytes = SPIN) -> int:
    """Start a launch that never ends in context 1; physical address of the word it counts in."""
    space = AddressSpace(machine.gpu, asid=2)
    code, word = machine.alloc(), machine.alloc()
    machine.write(code, program)
    space.map(CODE, code)
    space.map(DATA, word)
    context = machine.gpu.context(1, asid=2)
    context.submit(hw.HG_OP_LAUNCH, CODE, DATA, 64 << 32 | 2, 0, 0, 0, 0)
    if wait:
        eventually("the launch runs", lambda: machine.load(word, 8) > 0)
    return word


def stops_and_goes_on(machine: Machine, word: int, times: int = 1) -> None:
    """Stop the machine while spin() counts in `word`: it stands still, and counts on after that."""
    for _ in range(times):
        machine.qmp("stop")
        counted = machine.load(word, 8)
        assert machine.load(word, 8) == counted
        machine.qmp("cont")
        counts_on(machine, word, counted)


def counts_on(machine: Machine, word: int, counted: int) -> None:
    """Wait until spin()'s word is beyond `counted`: the device runs."""
    eventually("the device counts on", lambda: machine.load(word, 8) > counted)
