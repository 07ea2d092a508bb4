# SPDX-License-Identifier: GPL-2.0-or-later
"""What a virtual machine is made of, and the QEMU command line that makes it.

A MachineSpec is a value: two equal specs make the same machine, which is what lets a snapshot
of one be restored as the other.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path

from hmmbench.vm.mailbox import layout

GPU_ID = "gpu0"
GPU_BUS = "gpuport"
#: QOM path of the device.
GPU_PATH = f"/machine/peripheral/{GPU_ID}"
AGENT_PORT = "org.hmmbench.agent"

#: QOM name of the mailbox's memory.
MAILBOX = "mailbox"

#: What makes an exact machine: virtual time counted in instructions (two ns each) on one thread,
#: nothing of the host's clock or entropy. Network and virtio-serial are left out, the agent is
#: reached through a mailbox (hmmbench.vm.mailbox), and the GPU steps in virtual time.
EXACT_ICOUNT = "shift=1,sleep=off"
_EXACT = ("-rtc", "base=2026-01-01,clock=vm", "-seed", "1")
#: QOM path of the object that decides who runs, and its argument.
EXACT_PATH = "/machine/peripheral/exact0"
SCHEDULER = ("-device", "hmm-exact,id=exact0")

#: Every word is here for a reason: the boot under emulation is on the path of every command.
_CMDLINE = (
    "console=ttyS0",
    # From the first line on, before the console proper is up; it stays silent after that.
    "earlycon=uart8250,io,0x3f8",
    # Warnings and worse go to the console, which costs an exit a character under emulation.
    "loglevel=5",
    # Also those that a program of the guest puts there, whatever their number.
    "printk.devkmsg=on",
    # An oops ends the guest at once, and a panic ends QEMU (-action reboot=shutdown).
    "oops=panic",
    "panic=-1",
    # One timer source that works everywhere, without measuring it against another.
    "tsc=reliable",
    "no_timer_check",
    "mitigations=off",
    "nokaslr",
    "random.trust_cpu=on",
    "pci=lastbus=3",
    # AER and hot-plug belong to the kernel even where its ACPI would not ask for them.
    "pcie_ports=native",
    "rcupdate.rcu_expedited=1",
)

#: Devices that recipes and broken drivers may ask for, and what is set for them: as it is; VRAM
#: that is memory of the CPU too; a data cache over VRAM and posted writes; copies that report
#: what they miss to the other ring, and wait; leaves of 64 KiB, and two SMs at each micro-TLB.
DEVICES: Mapping[str, Mapping[str, object]] = {
    "": {},
    "coherent": {"coherent": True},
    "caches": {"data_pages": 512},
    "copy-faults": {"ce_faults": True},
    "big-pages": {"big_pages": True, "sms_per_utlb": 2},
}


@dataclass(frozen=True)
class MachineSpec:
    """One virtual machine.

    firmware   -- folders for QEMU's -L
    accel      -- "tcg" or "kvm" (see accel.probe)
    gpu        -- properties of the hmm-gpu device as (name, value), None: no such device
    cmdline    -- further words of the kernel command line
    extra      -- further QEMU arguments
    trace      -- patterns of trace events that go to trace.log in the machine's folder
    icount     -- QEMU's -icount argument; one vCPU thread then
    iommu      -- an IOMMU is there; whether it translates is the kernel's matter
    nodes      -- NUMA nodes, that share memory and CPUs
    exact      -- executions repeat to the last instruction: nothing of the host reaches the running
                guest, which stands while it is asked and while it answers
    """

    qemu: Path
    firmware: tuple[Path, ...]
    kernel: Path
    initramfs: Path | None = None
    accel: str = "tcg"
    cpus: int = 2
    memory_mib: int = 1024
    gpu: tuple[tuple[str, str], ...] | None = ()
    cmdline: tuple[str, ...] = ()
    extra: tuple[str, ...] = ()
    trace: tuple[str, ...] = ()
    network: bool = True
    icount: str = ""
    exact: bool = False
    iommu: bool = False
    nodes: int = 1

    def with_gpu(self, **properties: object) -> MachineSpec:
        """A copy with device properties set: with_gpu(vram_size="16M", deterministic=True)."""
        values = dict(self.gpu or ())
        for name, value in properties.items():
            values[name.replace("_", "-")] = _property(value)
        return replace(self, gpu=tuple(sorted(values.items())))

    def with_device(self, name: str) -> MachineSpec:
        """A copy with that one of DEVICES."""
        return self.with_gpu(**DEVICES[name]) if name else self

    def fingerprint(self, host: str = "") -> str:
        """Hash of all that a snapshot depends on: the command line, and contents of files.

        `host` distinguishes what the spec cannot see (the processor, under KVM).
        """
        # QEMU takes firmware images by name; which one that is is decided by their contents.
        firmware = [
            file_hash(file)
            for folder in self.firmware
            for file in sorted(folder.glob("*"))
            if file.name in _FIRMWARE
        ]
        nameless = replace(
            self, qemu=Path("qemu"), kernel=Path("kernel"), initramfs=None, firmware=(), trace=()
        )
        files = [self.qemu, self.kernel, *([self.initramfs] if self.initramfs else [])]
        parts = [
            host,
            arguments(nameless, Wiring(qmp_fd=0, agent_fd=0, folder=Path("/"), mailbox_fd=0)),
            [file_hash(file) for file in files],
            firmware,
        ]
        return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:24]


_FIRMWARE = frozenset({"bios-256k.bin", "linuxboot_dma.bin", "kvmvapic.bin", "pvh.bin"})


def _property(value: object) -> str:
    if isinstance(value, bool):
        return "on" if value else "off"
    return str(value)


def file_hash(path: Path) -> str:
    """SHA-256 of a file; remembered while the file is not touched."""
    stat = path.stat()
    return _hash(str(path.resolve()), stat.st_size, stat.st_mtime_ns, stat.st_ino)


@lru_cache(maxsize=256)
def _hash(path: str, size: int, mtime: int, inode: int) -> str:
    with Path(path).open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


@dataclass(frozen=True)
class Wiring:
    """What differs from start to start of one machine: descriptors and files.

    agent_fd is for machines with a channel, mailbox_fd for exact ones.

    The sockets are inherited descriptors, not paths: no name to clean up, no wait for QEMU to
    listen, and the end of either side is seen by the other at once.
    """

    qmp_fd: int
    agent_fd: int | None
    folder: Path
    console_fd: int | None = None
    incoming: bool = False
    mailbox_fd: int | None = None

    @property
    def console(self) -> Path:
        return self.folder / "console.log"

    @property
    def trace(self) -> Path:
        return self.folder / "trace.log"


_MODERN = "disable-legacy=on"


def _escape(path: Path) -> str:
    """A file name in an option list of QEMU: a comma is doubled."""
    return str(path).replace(",", ",,")


def _options(kind: str, values: Mapping[str, str]) -> str:
    return ",".join([kind, *(f"{n}={v.replace(',', ',,')}" for n, v in values.items())])


def arguments(spec: MachineSpec, wiring: Wiring) -> list[str]:
    """The command line of QEMU."""
    argv = [str(spec.qemu), "-name", "hmmbench", "-nodefaults", "-no-user-config"]
    argv += ["-display", "none"]
    for folder in spec.firmware:
        argv += ["-L", str(folder)]
    argv += _machine(spec)
    argv += ["-kernel", str(spec.kernel), "-append", " ".join(_cmdline(spec))]
    if spec.initramfs is not None:
        argv += ["-initrd", str(spec.initramfs)]
    argv += _chardevs(wiring)
    argv += _agent(spec, wiring)
    argv += _devices(spec)
    # A guest that panics or reboots stops and is kept, so that the device can still be asked.
    argv += ["-action", "reboot=shutdown,shutdown=pause,panic=pause,watchdog=pause"]
    if spec.trace:
        for pattern in spec.trace:
            argv += ["-trace", f"enable={pattern}"]
        # Times in front of the lines: report/trace.py brings them to the guest's clock.
        argv += ["-D", str(wiring.trace), "-msg", "timestamp=on"]
    argv += spec.extra
    if wiring.incoming:
        argv += ["-incoming", "defer"]
    elif spec.exact:
        # Stands until it is told to go, so that no stand is missed.
        argv += ["-S"]
    return argv


def has_network(spec: MachineSpec) -> bool:
    """An exact machine has none: packets come when the host likes."""
    return spec.network and not spec.exact


def gpu_properties(spec: MachineSpec) -> dict[str, str]:
    """Properties of the GPU, without its id and place."""
    return {**dict(spec.gpu or ()), **({"deterministic": "on"} if spec.exact else {})}


def _cmdline(spec: MachineSpec) -> Iterable[str]:
    yield from _CMDLINE
    if not has_network(spec):
        yield "hmmbench.nonet"
    yield from spec.cmdline


def _machine(spec: MachineSpec) -> list[str]:
    accel = spec.accel
    icount = EXACT_ICOUNT if spec.exact else spec.icount
    if accel == "tcg":
        accel = "tcg,thread=single" if icount else "tcg,thread=multi"
    elif spec.exact:
        raise ValueError("an exact machine needs TCG")
    # No SMM: an address space less for each processor, and less work for the firmware.
    argv = ["-machine", "q35,smm=off,sata=off,smbus=off,usb=off,vmport=off,hpet=off"]
    # TCG moves a byte at a time where a CPU with ERMS is told to move a page: without it the guest
    # takes quadwords (a tenth of the time of a run).
    argv += ["-accel", accel, "-cpu", "host" if spec.accel == "kvm" else "max,-erms,-fsrm"]
    argv += ["-smp", str(spec.cpus), "-m", f"{spec.memory_mib}M", *_nodes(spec)]
    # Hot-unplug by the port itself, as on hardware, not by ACPI.
    argv += ["-global", "ICH9-LPC.acpi-pci-hotplug-with-bridge-support=off"]
    if icount:
        argv += ["-icount", icount]
    if spec.exact:
        argv += [*_EXACT, *SCHEDULER]
    if spec.iommu:
        # Before what it translates for.  Interrupts go as they do without it: to remap them is
        # another matter.
        argv += ["-device", "intel-iommu,intremap=off"]
    return argv


def _nodes(spec: MachineSpec) -> list[str]:
    """Of more than one: a part of memory and CPUs each; the last may be without a CPU."""
    argv: list[str] = []
    for n in range(spec.nodes if spec.nodes > 1 else 0):
        size = spec.memory_mib // spec.nodes
        if n == spec.nodes - 1:
            size = spec.memory_mib - n * size
        first, end = (-(-spec.cpus * i // spec.nodes) for i in (n, n + 1))
        mine = {"cpus": f"{first}-{end - 1}"} if first < end else {}
        node = {"nodeid": str(n), "memdev": f"node{n}", **mine}
        argv += ["-object", f"memory-backend-ram,id=node{n},size={size}M"]
        argv += ["-numa", _options("node", node)]
    return argv


def _chardevs(wiring: Wiring) -> list[str]:
    if wiring.console_fd is None:
        console = f"file,id=console,path={_escape(wiring.console)}"
    else:
        console = f"socket,id=console,fd={wiring.console_fd},logfile={_escape(wiring.console)}"
    return [
        *("-chardev", console, "-serial", "chardev:console"),
        *("-chardev", f"socket,id=qmp,fd={wiring.qmp_fd}", "-mon", "chardev=qmp,mode=control"),
    ]


def _agent(spec: MachineSpec, wiring: Wiring) -> list[str]:
    """The way to the agent."""
    if spec.exact:
        memory = {
            "id": MAILBOX,
            "mem-path": f"/proc/self/fd/{wiring.mailbox_fd}",
            "share": "on",
            "size": str(layout().HM_SIZE),
        }
        return [
            *("-object", _options("memory-backend-file", memory)),
            *("-device", f"hmm-mailbox,id={MAILBOX}0,memdev={MAILBOX}"),
        ]
    return [
        *("-chardev", f"socket,id=agent,fd={wiring.agent_fd}"),
        *("-device", f"virtio-serial-pci,id=serial0,{_MODERN},max_ports=2"),
        *("-device", f"virtserialport,bus=serial0.0,nr=1,chardev=agent,name={AGENT_PORT}"),
    ]


def _devices(spec: MachineSpec) -> list[str]:
    argv = ["-device", f"pcie-root-port,id={GPU_BUS},bus=pcie.0,chassis=1,slot=1"]
    if spec.gpu is not None:
        gpu = {"id": GPU_ID, "bus": GPU_BUS, **gpu_properties(spec)}
        argv += ["-device", _options("hmm-gpu", gpu)]
    if has_network(spec):
        # Port 0: the system picks a free one, and nobody can take it in between.
        argv += [
            *("-netdev", "user,id=net0,restrict=on,hostfwd=tcp:127.0.0.1:0-:22"),
            *("-device", f"virtio-net-pci,netdev=net0,romfile=,{_MODERN}"),
        ]
    return argv
