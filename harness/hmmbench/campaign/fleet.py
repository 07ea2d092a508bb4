# SPDX-License-Identifier: GPL-2.0-or-later
"""Several machines for one campaign."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from hmmbench import symbols
from hmmbench.base import host
from hmmbench.campaign import aim
from hmmbench.example.exact_target import ExactTarget
from hmmbench.example.schedules import Points
from hmmbench.example.seen import Counted, Looker
from hmmbench.example.totals import Totals
from hmmbench.example.vm_target import VmTarget
from hmmbench.symbols.named import Names
from hmmbench.vm import kinds
from hmmbench.vm.machine import Machine
from hmmbench.vm.opener import Opener
from hmmbench.vm.snapshot import Snapshots
from hmmbench.vm.spec import MachineSpec
from hmmbench.vm.standard import exact_spec

if TYPE_CHECKING:
    from hmmbench.build import Artifacts

#: Of an exact machine: a CPU more costs it nothing, and one that is held holds up less.
EXACT_CPUS = 4

#: What HMM's races are about, for any driver, and how likely a schedule holds a CPU there: behind
#: the calls, where what they said may no longer hold.
RACING = {
    "hmm_range_fault": 10, "migrate_vma_setup": 3, "migrate_vma_pages": 3,
    "migrate_vma_finalize": 2, "make_device_exclusive": 4, "mmu_interval_read_begin": 3,
    "__mmu_notifier_invalidate_range_start": 2, "__mmu_notifier_invalidate_range_end": 1,
    "migrate_device": 2,
}  # fmt: skip

#: A machine is only worth its start (a third of a second) for some examples.
EXAMPLES_EACH = 20

#: GB of the host's memory for each machine: the guest's, VRAM and QEMU.
MEMORY_GB = 2.0


def size(examples: int) -> int:
    """How many machines at the same time suit this host, and a campaign of so many examples."""
    fitting = int(host.memory_gb() / MEMORY_GB)
    return max(1, min(host.cpus(), fitting, examples // EXAMPLES_EACH))


def _keeper(out: Path, say: Callable[[str], None]) -> Callable[[Machine, str], None]:
    """What a target does with a machine whose QEMU ended: keeps its evidence, and says so."""
    losses = itertools.count(1)

    def lost(vm: Machine, summary: str) -> None:
        folder = out / f"machine-lost-{next(losses)}"
        say(f"{summary}; going on in a fresh machine (evidence: {folder})")
        vm.keep(folder)

    return lost


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
    lost = _keeper(out, say)
    with ExitStack() as stack:
        yield [
            stack.enter_context(
                VmTarget(stack.enter_context(Opener(spec, snapshots, say)), lost, leaving, explain)
            )
            for _ in range(number)
        ]


@contextmanager
def exact_fleet(
    artifacts: Artifacts, spec: MachineSpec, number: int, out: Path, say: Callable[[str], None],
    leaving: Callable[[Machine], None] = lambda vm: None, snapshots: Snapshots | None = None,
    explain: Callable[[str], str] = lambda text: text, aimed: bool = False, machine: str = "",
    look: bool = False,
) -> Iterator[tuple[list[ExactTarget], Points]]:  # fmt: skip
    """As fleet(), with exact machines; and the points where their schedules may hold CPUs.

    aimed   -- with what aimed schedules aim at (aim.py)
    machine -- another than the usual one (vm/kinds.py)
    look    -- executions tell what they have Seen, for feedback (explore.py)
    """
    spec = exact_machine(spec, machine)
    points = exact_points(artifacts, spec, snapshots)
    names = names_of(artifacts, spec, snapshots)
    if aimed and points.table is not None:
        profile = aim.profile(
            artifacts, spec, snapshots, lambda: say("looking where CPUs and GPU meet in memory")
        )
        points = replace(points, aims=aim.aims(profile, points.table))
    lost = _keeper(out, say)
    counted = Counted(points.table) if look and points.table is not None else None
    with ExitStack() as stack:
        targets = [
            stack.enter_context(
                ExactTarget(
                    stack.enter_context(Opener(spec, snapshots, say)), lost, leaving, explain,
                    points=points.all, names=names, looker=Looker(counted) if look else None,
                )
            )
            for _ in range(number)
        ]  # fmt: skip
        yield targets, points


def exact_machine(spec: MachineSpec, machine: str = "") -> MachineSpec:
    """The exact machine of a campaign, the usual one or another (vm/kinds.py)."""
    return kinds.made(exact_spec(spec, EXACT_CPUS), machine)


def names_of(
    artifacts: Artifacts, spec: MachineSpec, snapshots: Snapshots | None = None
) -> Names:
    """Of places in the guest of these machines."""
    return Names(artifacts, lambda: (snapshots or Snapshots()).sections(spec))


def exact_points(
    artifacts: Artifacts, spec: MachineSpec, snapshots: Snapshots | None = None
) -> Points:
    """The functions that HMM drivers call, then those of the modules under test and their calls.

    None where the kernel's symbols are not known.
    """
    if artifacts.system_map is None:
        return Points()
    found = symbols.points(artifacts, (snapshots or Snapshots()).sections(spec))
    kernel = {symbol.name: symbol.address for symbol in found.kernel}
    own = [symbol.address for symbol in found.functions]
    # A call is a point where it returns to; where it begins is the function's own point.
    returns = [(call.callee, call.returns) for call in found.calls if call.returns is not None]
    favourites, racing = [], []
    for name, weight in RACING.items():
        at = [address for callee, address in returns if callee.startswith(name)]
        racing += at
        at = at or [address for symbol, address in kernel.items() if symbol.startswith(name)]
        # However many calls of it there are.
        favourites += [at[n % len(at)] for n in range(max(weight, len(at)))] if at else []
    return Points(
        tuple(favourites), (*kernel.values(), *own, *(at for _, at in returns)), found.table,
        kinds={
            **{kind: tuple(addresses) for kind, addresses in found.kinds.items()},
            "returns": tuple(racing),
        },
    )  # fmt: skip


def totals(targets: Sequence[VmTarget]) -> Totals:
    """What all of them counted."""
    total = Totals()
    for target in targets:
        total += target.totals
    return total
