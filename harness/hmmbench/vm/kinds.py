# SPDX-License-Identifier: GPL-2.0-or-later
"""Other machines than the usual one, for what a driver assumes of a machine without knowing it.

A machine is named by its kinds, joined by "+" ("iommu", "cpus-1+preempt-none"); "" is the usual
one.  Each is QEMU's arguments and words of the kernel's command line, nothing that the host
decides, so an exact machine stays exact (docs/exact.md says why for each), and a snapshot is its
own, since it is named by both.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from hmmbench.base.errors import UsageError
from hmmbench.vm.spec import MachineSpec

#: How the usual machine is called where it needs a name.
USUAL = "usual"

#: MiB of a machine with little memory; QEMU's and the kernel's own come out of it too.
SMALL_MIB = 256


@dataclass(frozen=True)
class Kind:
    """One way in which a machine is another.

    about   -- of kinds that are about the same a machine has one
    words   -- for people
    make    -- the machine, made that way
    needs   -- options that the kernel has to have
    without -- options with which there is no such machine
    full    -- what it needs is in the full configuration alone
    refused -- a sound driver may refuse the device there
    drawn   -- examples are drawn there; else for who asks
    """

    about: str
    words: str
    make: Callable[[MachineSpec], MachineSpec]
    needs: tuple[str, ...] = ()
    without: tuple[str, ...] = ()
    full: bool = False
    refused: bool = False
    drawn: bool = True


def _says(*words: str, **values: object) -> Callable[[MachineSpec], MachineSpec]:
    """Words of the command line, and values of the specification."""

    def make(spec: MachineSpec) -> MachineSpec:
        more = tuple(word for word in words if word not in spec.cmdline)
        return replace(spec, cmdline=(*spec.cmdline, *more), **values)  # type: ignore[arg-type]

    return make


_DYNAMIC, _LAZY = "CONFIG_PREEMPT_DYNAMIC", "CONFIG_ARCH_HAS_PREEMPT_LAZY"

#: In this order those that are drawn are numbered: a new one is the last.
KINDS = {
    # Strict: what was unmapped is refused at once, not when a list of 256 has filled up.  And no
    # slab merged, so that the census knows that of bus addresses by its name.
    "iommu": Kind(
        "bus", "an IOMMU translates: a bus address is no physical address",
        _says(
            "intel_iommu=on", "iommu.passthrough=0", "iommu.strict=1", "slab_nomerge", iommu=True
        ),
        ("CONFIG_INTEL_IOMMU",), full=True,
    ),
    "swiotlb": Kind(
        "bus", "all DMA goes to copies of pages (swiotlb)", _says("swiotlb=force"),
        ("CONFIG_SWIOTLB",), refused=True,
    ),
    # Where there are several nodes some kernels balance from the start.
    "numa": Kind(
        "nodes", "two NUMA nodes", _says("numa_balancing=disable", nodes=2),
        ("CONFIG_NUMA", "CONFIG_ACPI_NUMA"),
    ),
    "small": Kind(
        "memory", "little memory", _says("hmmbench.zram=64M", memory_mib=SMALL_MIB),
    ),
    "nothp": Kind(
        "thp", "no transparent huge pages", _says("transparent_hugepage=never"),
        ("CONFIG_TRANSPARENT_HUGEPAGE",),
    ),
    "cpus-1": Kind("cpus", "one CPU", _says(cpus=1)),
    "cpus-2": Kind("cpus", "two CPUs", _says(cpus=2)),
    "cpus-4": Kind("cpus", "four CPUs", _says(cpus=4)),
    "preempt-none": Kind(
        "preemption", "a kernel that preempts itself nowhere", _says("preempt=none"),
        (_DYNAMIC,), (_LAZY,), full=True,
    ),
    "preempt-voluntary": Kind(
        "preemption", "a kernel that preempts itself where it says so",
        _says("preempt=voluntary"), (_DYNAMIC,), (_LAZY,), full=True,
    ),
    "preempt-lazy": Kind(
        "preemption", "a kernel that preempts itself lazily", _says("preempt=lazy"),
        (_DYNAMIC, _LAZY), full=True,
    ),
    # Blocks of 128 MiB of it go and come back (ops/nodes.py), which takes an example seconds.
    "movable": Kind(
        "zones", "a quarter of memory can be taken out", _says("movablecore=25%"),
        ("CONFIG_MEMORY_HOTPLUG", "CONFIG_MEMORY_HOTREMOVE"), drawn=False,
    ),
}  # fmt: skip


DRAWN = tuple(name for name, kind in KINDS.items() if kind.drawn)


def kinds(machine: str) -> list[Kind]:
    """Those that a machine is named by.  Raises UsageError if it is no machine's name."""
    names = machine.split("+") if machine else []
    unknown = [name for name in names if name not in KINDS]
    if unknown:
        raise UsageError(
            f"there is no machine {machine!r}: {', '.join(unknown)}",
            f"Kinds of machines, joined by +: {', '.join(KINDS)}.",
        )
    found = [KINDS[name] for name in names]
    if len({kind.about for kind in found}) < len(found):
        raise UsageError(f"machine {machine!r}: two of its kinds are about the same")
    return found


def made(spec: MachineSpec, machine: str) -> MachineSpec:
    """The machine of that name, from the usual one, exact or not."""
    for kind in kinds(machine):
        spec = kind.make(spec)
    return spec


def words(machine: str) -> str:
    """What it is, for people."""
    return ", ".join(kind.words for kind in kinds(machine)) or "the usual machine"


def needs_full(machine: str) -> bool:
    """Whether the bench's own kernel has what it needs in the full configuration alone."""
    return any(kind.full for kind in kinds(machine))


def may_be_refused(machine: str) -> bool:
    return any(kind.refused for kind in kinds(machine))


def lacking(machine: str, config: Mapping[str, str]) -> list[str]:
    """Options that keep a kernel of this configuration from running as that machine."""
    found = kinds(machine)
    return [
        *(f"{o}=y" for kind in found for o in kind.needs if config.get(o) != "y"),
        *(f"no {o}" for kind in found for o in kind.without if config.get(o) == "y"),
    ]


def possible(
    spec: MachineSpec, config: Mapping[str, str], among: Sequence[str] = DRAWN
) -> list[str]:
    """Kinds that make another machine of this one, and that the kernel can run as."""
    return [name for name in among if made(spec, name) != spec and not lacking(name, config)]
