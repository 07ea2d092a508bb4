# SPDX-License-Identifier: GPL-2.0-or-later
"""Which accelerator works here: found out by booting, remembered, and said why.

/dev/kvm may be there, open, create a machine and still not run Linux (nested setups, hosts
whose kvm is another thing by the same name). So the guest's own kernel is booted once.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import platform
import subprocess
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from hmmbench.base import paths
from hmmbench.vm.errors import AgentTimeout, VmDied, VmError
from hmmbench.vm.machine import Machine
from hmmbench.vm.spec import MachineSpec, file_hash

KVM = Path("/dev/kvm")
#: Seconds. With working KVM the boot takes one or two.
PROBE_TIMEOUT = 12.0


@dataclass(frozen=True)
class Accel:
    """The accelerator to use ("kvm" or "tcg") and the reason, as a sentence for people."""

    name: str
    reason: str


def host_id() -> str:
    """What makes one host differ from another for KVM: its kernel and its processor."""
    with contextlib.suppress(OSError):
        wanted = ("model name", "flags", "microcode", "Features", "CPU part")
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        cpu = sorted({line for line in lines if line.startswith(wanted)})
        modules = sorted(
            name
            for name in ("kvm_intel", "kvm_amd", "kvm_pvm")
            if Path("/sys/module", name).is_dir()
        )
        text = "\n".join([platform.release(), platform.machine(), *cpu, *modules])
        return hashlib.sha256(text.encode()).hexdigest()[:16]
    return platform.release()


def probe(spec: MachineSpec, timeout: float = PROBE_TIMEOUT, again: bool = False) -> Accel:
    """The accelerator for machines like `spec`; boots one with KVM if that is not known yet.

    timeout in seconds for that boot. The answer is kept in the cache for this host, kernel and
    QEMU; `again` asks anew.
    """
    if not KVM.exists():
        return Accel("tcg", "this host has no /dev/kvm, so the guest is emulated")
    if not os.access(KVM, os.R_OK | os.W_OK):
        return Accel(
            "tcg",
            "/dev/kvm may not be opened by this user (groups: kvm), so the guest is emulated",
        )
    name = "-".join((host_id(), file_hash(spec.kernel)[:12], _version(spec.qemu)))
    memory = paths.cache_dir("accel") / f"{name}.json"
    if not again:
        with contextlib.suppress(OSError, ValueError, TypeError):
            return Accel(**json.loads(memory.read_text()))
    answer = _try_kvm(spec, timeout)
    with contextlib.suppress(OSError):  # asked again next time, that is all
        fresh = memory.with_suffix(f".{os.getpid()}")
        fresh.write_text(json.dumps(asdict(answer)))
        fresh.replace(memory)
    return answer


def exact_refused(qemu: Path) -> str:
    """Why this QEMU runs no exact machines, in a sentence; empty if it does.

    It is asked itself: hmm-exact says before anything else whether the hooks that it needs are
    there, and else what of this command line it misses.
    """
    try:
        done = subprocess.run(
            [qemu, "-machine", "none", "-nodefaults", "-display", "none", "-accel", "tcg",
             "-device", "hmm-exact"],
            capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=20, check=False,
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"{qemu} cannot be asked: {error}"
    said = done.stderr.strip()
    if "hmm-exact: needs " in said:
        return ""
    return said.splitlines()[-1].rpartition("hmm-exact: ")[2] if said else "QEMU says nothing"


def _version(qemu: Path) -> str:
    """Short name of a QEMU's version: its device may be rebuilt any time, its KVM code is not."""
    try:
        done = subprocess.run([qemu, "--version"], capture_output=True, timeout=20, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return file_hash(qemu)[:12]
    return hashlib.sha256(done.stdout).hexdigest()[:12]


def _try_kvm(spec: MachineSpec, timeout: float) -> Accel:
    # Without device and driver: whether Linux runs is the question, not whether they do.
    plain = replace(
        spec, accel="kvm", gpu=None, network=False, icount="", extra=(), trace=(),
        cmdline=("hmmbench.nodriver",),
    )  # fmt: skip
    try:
        with Machine(plain, boot_timeout=timeout) as machine:
            return Accel("kvm", f"KVM booted the guest kernel in {machine.ready_s:.1f} s")
    except AgentTimeout:
        why = f"no answer from it within {timeout:g} s"
    except VmDied as error:
        why = error.stderr.splitlines()[0] if error.stderr else error.summary
    except VmError as error:
        why = error.message
    return Accel(
        "tcg", f"KVM is there but does not run the guest kernel ({why}), so the guest is emulated"
    )
