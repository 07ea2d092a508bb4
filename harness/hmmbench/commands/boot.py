# SPDX-License-Identifier: GPL-2.0-or-later
"""`hmmbench boot`: the guest with the driver loaded, for a person or for one command."""

from __future__ import annotations

import socket
import sys
import threading
import time
from contextlib import ExitStack
from dataclasses import replace
from typing import Annotated

import typer

from hmmbench.base.errors import UsageError
from hmmbench.base.ui import Ui
from hmmbench.build import Artifacts, BuildRequest, ensure
from hmmbench.commands import options
from hmmbench.report.result import check_writable, write_json
from hmmbench.vm import kinds
from hmmbench.vm.machine import Machine
from hmmbench.vm.ssh import Ssh, keys
from hmmbench.vm.standard import best_spec


def main(
    command: Annotated[
        str | None,
        typer.Option(
            "--exec", metavar="CMD", help="Run this in the guest and end with its status."
        ),
    ] = None,
    kernel: options.Kernel = "lts",
    kernel_build: options.KernelBuild = None,
    kind: options.Machine = "",
    kernel_debug: options.KernelDebug = False,
    kernel_variant: options.KernelVariant = None,
    full: options.Full = False,
    vram: Annotated[
        str | None, typer.Option(metavar="SIZE", help="Memory of the GPU (such as 16M).")
    ] = None,
    append: Annotated[
        str, typer.Option(metavar="WORDS", help="More words for the kernel's command line.")
    ] = "",
    inject: Annotated[
        str | None, typer.Option(metavar="RULES", help="Faults to inject (docs/device.md).")
    ] = None,
    console: Annotated[
        bool, typer.Option(help="The serial console instead of SSH; Ctrl-] leaves.")
    ] = False,
    timeout: Annotated[float, typer.Option(min=1, help="Seconds that --exec may take.")] = 600.0,
    out: options.KeepIn = None,
    json_file: options.JsonFile = None,
) -> None:
    """Boot the guest with the GPU and its driver: a shell in it, or one command.

    Example:  ./hmmbench boot --exec 'cat /sys/kernel/debug/dri/*/name'
    """
    if command is not None and console:
        raise UsageError("--exec and --console exclude each other")
    check_writable(json_file, "--json")
    artifacts = ensure(
        BuildRequest(
            kernel=kernel, kernel_build=kernel_build,
            full=full or kinds.needs_full(kind),
            kernel_variants=options.variants(kernel_debug, kernel_variant),
        ),
        Ui(),
    )
    spec, accel = best_spec(artifacts)
    spec = kinds.made(spec, kind)
    if vram is not None:
        spec = spec.with_gpu(vram_size=vram)
    words = tuple(append.split()) + (("hmmbench.shell",) if console else ())
    spec = replace(spec, cmdline=spec.cmdline + words)
    with ExitStack() as stack:
        terminal = stack.enter_context(SerialTerminal()) if console else None
        machine = stack.enter_context(Machine(spec, console=terminal.far if terminal else None))
        if out is not None:
            stack.callback(machine.keep, out)
        if inject is not None:
            machine.gpu.inject(inject)
        if command is None:
            status = _interactive(machine, artifacts, terminal)
            answer = ""
        else:
            result = machine.agent.execute(command, timeout)
            status, answer = result.status, result.output
            sys.stdout.write(answer)
            sys.stdout.flush()
        if json_file is not None:
            report = {
                "status": status,
                "output": answer,
                "boot_s": round(machine.ready_s, 3),
                "accel": accel.name,
                "accel_reason": accel.reason,
                "kernel": artifacts.kernel_release,
                "qemu": artifacts.versions["qemu"],
                "console": machine.console.text(),
            }
            write_json(json_file, report)
    # As a shell does it: a command that a signal ended has no exit status of its own.
    raise typer.Exit(128 - status if status < 0 else status)


def _interactive(machine: Machine, artifacts: Artifacts, terminal: SerialTerminal | None) -> int:
    told = f"The guest is up ({machine.ready_s:.1f} s, {machine.spec.accel})."
    if terminal is not None:
        terminal.talk(machine, f"{told} Console: Ctrl-] leaves and ends it.")
        return 0
    if artifacts.ssh_key is None:
        raise UsageError(
            "this guest has no SSH server: dropbear was missing when it was built",
            "Use --console or --exec, or install dropbear-bin and run ./hmmbench build.",
        )
    print(
        f"{told} `exit` or Ctrl-D leaves and ends it. From elsewhere:\n"
        f"  ssh -p {machine.ssh_port()} -i {artifacts.ssh_key} -o StrictHostKeyChecking=no"
        " -o UserKnownHostsFile=/dev/null root@127.0.0.1",
        file=sys.stderr,
    )
    with Ssh(machine, artifacts.ssh_key) as ssh:
        return ssh.shell()


class SerialTerminal:
    """The guest's serial port on this terminal.

    A thread reads from the start on: QEMU stops the guest's output when nobody takes it.
    """

    LEAVE = 0x1D  # Ctrl-]

    def __init__(self) -> None:
        self.near, self.far = socket.socketpair()
        self._reader = threading.Thread(target=self._read, daemon=True)

    def __enter__(self) -> SerialTerminal:
        self._reader.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.near.close()
        self.far.close()

    def _read(self) -> None:
        try:
            while data := self.near.recv(65536):
                sys.stdout.buffer.write(data)
                sys.stdout.buffer.flush()
        except OSError:
            return  # closed by __exit__

    def talk(self, machine: Machine, told: str) -> None:
        """Keys to the guest until the user leaves or the machine ends.

        `told` is printed once keys are taken, so that who waits for it may type.
        """
        with keys() as read:
            print(told, end="\r\n", file=sys.stderr, flush=True)
            while machine.alive:
                typed = read(0.5)
                if typed is None:
                    time.sleep(0.5)
                elif self.LEAVE in typed:
                    return
                elif typed:
                    self.near.sendall(typed)
