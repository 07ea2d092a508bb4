# SPDX-License-Identifier: GPL-2.0-or-later
"""gdb with a machine: symbols of kernel and modules, connected, the bench's commands in it."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from hmmbench.base import processes
from hmmbench.base.errors import EnvironmentFailure
from hmmbench.build import Artifacts
from hmmbench.debug.back import Back
from hmmbench.debug.travel import Travel
from hmmbench.symbols.guest import Sections, module_name
from hmmbench.symbols.table import is_init
from hmmbench.vm.errors import QmpFailure, VmError
from hmmbench.vm.gdb.server import DebugServer
from hmmbench.vm.machine import Machine

COMMANDS = Path(__file__).with_name("hmmbench_gdb.py")

#: Names the bench's socket for hmmbench_gdb.py.
SOCKET = "HMMBENCH_DEBUG_SOCKET"


def check() -> None:
    """Say before the work that there is no gdb."""
    if shutil.which("gdb") is None:
        raise EnvironmentFailure("gdb is missing", "apt-get install --no-install-recommends gdb")


@contextmanager
def attached(
    machine: Machine, artifacts: Artifacts, places: Sections, back: Back | None = None
) -> Iterator[tuple[list[str], dict[str, str]]]:
    """gdb's command line and environment for a machine, which is stopped for it and after it.

    `places` are the sections of its modules; with `back` it can go back, and `machine` is the one
    that stands there.  Raises EnvironmentFailure without debug information.
    """
    vmlinux, modules = artifacts.debug_vmlinux, artifacts.debug_module_dir
    if vmlinux is None or modules is None:
        raise EnvironmentFailure(
            "gdb needs debug information of kernel and driver", "./hmmbench build --debug-info"
        )
    check()
    with (
        TemporaryDirectory(prefix="hmmbench-gdb-") as folder,
        DebugServer(machine, ours := Path(folder) / "bench") as server,
    ):
        stub = Travel(server, back, open_port).start() if back else str(open_port(machine))
        words = [
            "set confirm off", "set pagination off", "set width 0", "set architecture i386:x86-64",
            f"directory {modules}",
            *_modules(modules, places),
            f"target remote {stub}",
            f"source {COMMANDS}",
            # Says where it stands.
            *(["hmm-goto"] if back else []),
        ]  # fmt: skip
        argv = ["gdb", "-q", "-nx", str(vmlinux)]
        for word in words:
            argv += ["-ex", word]
        try:
            yield argv, {**os.environ, SOCKET: str(ours)}
        finally:
            # A machine that is gone has no gdbstub either.
            with contextlib.suppress(VmError, QmpFailure):
                # gdb lets it go when it leaves.
                server.machine.pause()
                server.machine.monitor("gdbserver none")


def open_port(machine: Machine) -> Path:
    """QEMU's port for gdb, at a machine that is stopped for it."""
    machine.pause()
    stub = machine.folder / "gdb"
    stub.unlink(missing_ok=True)
    said = machine.monitor(f"gdbserver unix:{stub},server=on,wait=off")
    if not stub.exists():
        raise VmError(f"QEMU opens no port for gdb: {said.strip()}")
    return stub


def _modules(folder: Path, places: Sections) -> Iterator[str]:
    for path in sorted(folder.glob("*.ko")):
        sections = places.get(module_name(path), {})
        # Others than these hold nothing that a debugger asks for.
        named = [
            f"-s {name} {at:#x}" for name, at in sorted(sections.items())
            if name.startswith((".text", ".exit.text", ".data", ".bss", ".rodata", ".ref.data"))
            and not is_init(name) and ".str" not in name
        ]  # fmt: skip
        if named:
            yield f"add-symbol-file {path} {' '.join(named)}"


def interactive(
    machine: Machine, artifacts: Artifacts, places: Sections, back: Back | None = None
) -> None:
    """gdb on this terminal, until its user leaves it."""
    with attached(machine, artifacts, places, back) as (argv, environment):
        # Ctrl-C is gdb's.  A handler and not SIG_IGN, which gdb would inherit.
        before = signal.signal(signal.SIGINT, lambda number, frame: None)
        try:
            subprocess.call(argv, env=environment)
        finally:
            signal.signal(signal.SIGINT, before)


def batch(
    machine: Machine, artifacts: Artifacts, places: Sections, commands: Sequence[str],
    back: Back | None = None, timeout: float = 300.0,
) -> str:  # fmt: skip
    """What gdb says to these commands.  The machine stays stopped."""
    with attached(machine, artifacts, places, back) as (argv, environment):
        for command in commands:
            argv += ["-ex", command]
        done = processes.run([*argv, "-batch"], env=environment, timeout=timeout)
    return done.stdout + done.stderr
