# SPDX-License-Identifier: GPL-2.0-or-later
"""Several machines for one campaign."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from hmmbench import host
from hmmbench.target import Totals, VmTarget
from hmmbench.vm.machine import Machine
from hmmbench.vm.opener import Opener
from hmmbench.vm.snapshot import Snapshots
from hmmbench.vm.spec import MachineSpec

#: A machine is only worth its start (a third of a second) for some examples.
EXAMPLES_EACH = 20

#: GB of the host's memory for each machine: the guest's, VRAM and QEMU.
MEMORY_GB = 2.0


def size(examples: int) -> int:
    """How many machines at the same time suit this host, and a campaign of so many examples."""
    fitting = int(host.memory_gb() / MEMORY_GB)
    return max(1, min(host.cpus(), fitting, examples // EXAMPLES_EACH))


@contextmanager
def fleet(
    spec: MachineSpec, number: int, out: Path, say: Callable[[str], None],
    leaving: Callable[[Machine], None] = lambda vm: None, snapshots: Snapshots | None = None,
    explain: Callable[[str], str] = lambda text: text,
) -> Iterator[list[VmTarget]]:  # fmt: skip
    """So many targets of one kind, each with a machine of its own that starts when it is needed.

    out      -- where the evidence of a machine goes whose QEMU ended
    say      -- told of that, and of a machine that had to be booted again
    leaving, explain -- see VmTarget

    `say`, `leaving` and `explain` may be called by each target's thread.
    """
    losses = itertools.count(1)

    def lost(vm: Machine, summary: str) -> None:
        folder = out / f"machine-lost-{next(losses)}"
        say(f"{summary}; going on in a fresh machine (evidence: {folder})")
        vm.keep(folder)

    with ExitStack() as stack:
        yield [
            stack.enter_context(
                VmTarget(stack.enter_context(Opener(spec, snapshots, say)), lost, leaving, explain)
            )
            for _ in range(number)
        ]


def totals(targets: Sequence[VmTarget]) -> Totals:
    """What all of them counted."""
    total = Totals()
    for target in targets:
        total += target.totals
    return total
