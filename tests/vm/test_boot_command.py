# SPDX-License-Identifier: GPL-2.0-or-later
"""`hmmbench boot` as a user calls it: one command, a shell over SSH, the serial console."""

from __future__ import annotations

import contextlib
import json
import os
import pty
import select
import signal
import subprocess
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

pytestmark = pytest.mark.usefixtures("artifacts")


def boot(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [ROOT / "hmmbench", "boot", *arguments],
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
        timeout=300,
        check=False,
    )


def test_one_command(tmp_path: Path) -> None:
    report, out = tmp_path / "r.json", tmp_path / "out"
    done = boot("--exec", "lsmod; exit 3", "--json", report, "--out", out, "--vram", "16M")
    assert done.returncode == 3, done.stderr
    assert "hmm_gpu" in done.stdout
    answer = json.loads(report.read_text())
    assert answer["status"] == 3
    assert answer["output"] == done.stdout
    assert answer["boot_s"] > 0
    assert answer["accel"] in ("tcg", "kvm")
    assert "hmmbench-init: ready" in (out / "console.log").read_text()


def test_command_ended_by_a_signal() -> None:
    done = boot("--exec", "kill -9 $$")
    assert done.returncode == 128 + signal.SIGKILL


def test_panic_is_said() -> None:
    done = boot("--exec", "echo c >/proc/sysrq-trigger")
    assert done.returncode == 3
    assert "panic" in done.stderr
    assert "sysrq_handle_crash" in done.stderr
    assert "Traceback" not in done.stderr


def test_wrong_use() -> None:
    done = boot("--exec", "true", "--console")
    assert done.returncode == 2
    assert "exclude each other" in done.stderr
    assert boot("--kernel", "/nonexistent").returncode == 2


class Terminal:
    """A program on a terminal of its own, typed at and read from."""

    def __init__(self, *arguments: str) -> None:
        self.seen = ""
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            os.execv(ROOT / "hmmbench", ["hmmbench", "boot", *arguments])

    def wait_for(self, text: str, seconds: float = 120.0) -> None:
        deadline = time.monotonic() + seconds
        while text not in self.seen:
            assert time.monotonic() < deadline, self.seen
            if select.select([self.fd], [], [], 0.5)[0]:
                self.seen += os.read(self.fd, 65536).decode("utf-8", "replace")

    def type(self, text: str) -> None:
        self.seen = ""
        os.write(self.fd, text.encode())

    def status(self, seconds: float = 60.0) -> int:
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            # Its last words must be taken, or it waits for ever to say them.
            if select.select([self.fd], [], [], 0.1)[0]:
                with contextlib.suppress(OSError):
                    os.read(self.fd, 65536)
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                return os.waitstatus_to_exitcode(status)
        os.kill(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)
        raise AssertionError(f"it does not end: {self.seen}")


def test_shell() -> None:
    terminal = Terminal()
    terminal.wait_for("leaves and ends it")
    terminal.wait_for("# ")
    terminal.type("echo $((6*7)) $(uname -s); tty\r")
    terminal.wait_for("42 Linux")
    terminal.wait_for("/dev/pts/")
    # Ctrl-C is for the program in the guest.
    terminal.type("sleep 1000\r")
    time.sleep(1)
    terminal.type("\x03")
    terminal.wait_for("# ")
    terminal.type("exit 5\r")
    assert terminal.status() == 5


def test_keys_typed_ahead_reach_the_shell() -> None:
    """Typed while the guest boots: taking over the terminal must not drop them."""
    terminal = Terminal()
    terminal.type("echo $((6*7)) $(uname -s)\r")
    terminal.wait_for("42 Linux")
    terminal.type("exit\r")
    assert terminal.status() == 0


def test_serial_console() -> None:
    terminal = Terminal("--console")
    terminal.wait_for("Linux version")
    terminal.wait_for("Ctrl-] leaves")
    terminal.type("\r")
    terminal.wait_for("# ")
    terminal.type("echo $((6*7)) $(uname -s)\r")
    terminal.wait_for("42 Linux")
    terminal.type("\x1d")
    assert terminal.status() == 0
