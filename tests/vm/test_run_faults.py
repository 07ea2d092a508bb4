# SPDX-License-Identifier: GPL-2.0-or-later
"""Faults from outside that meet `hmmbench run` itself: Ctrl-C, a killed QEMU, a full disk."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import threading
import time
from pathlib import Path

import pytest

from hmmbench.build import Artifacts

ROOT = Path(__file__).resolve().parents[2]


#: CPU seconds of a QEMU that has been restored and has run examples; to restore one takes 0.3.
BUSY_S = 1.5


def cpu_seconds(pid: int) -> float:
    """What a process has used so far.  Raises OSError if there is none."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


class Run:
    """`./hmmbench run` as a user starts it, in a session of its own, its words being read."""

    def __init__(self, folder: Path, *arguments: str) -> None:
        self.temporary = folder / "tmp"
        self.temporary.mkdir(exist_ok=True)
        self.out = folder / "out"
        self.json = folder / "result.json"
        self.process = subprocess.Popen(
            [ROOT / "hmmbench", "run", "--out", self.out, "--json", self.json, *arguments],
            env={**os.environ, "TMPDIR": str(self.temporary)},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        self.said = ""
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            self.said += line

    def wait_for(self, text: str, seconds: float = 300.0) -> None:
        deadline = time.monotonic() + seconds
        while text not in self.said:
            assert self.process.poll() is None, self.said
            assert time.monotonic() < deadline, self.said
            time.sleep(0.05)

    def qemus(self) -> list[int]:
        """Processes that work in our temporary folder: its name is on QEMU's command line."""
        found = []
        for path in Path("/proc").glob("[0-9]*/cmdline"):
            with contextlib.suppress(OSError):
                words = path.read_bytes().split(b"\0")
                if b"qemu" in words[0] and any(
                    str(self.temporary).encode() in word for word in words
                ):
                    found.append(int(path.parent.name))
        return found

    def at_work(self, number: int, seconds: float = 120.0) -> list[int]:
        """So many QEMUs, each in the midst of examples: a start takes far less CPU time."""
        deadline = time.monotonic() + seconds
        while True:
            assert self.process.poll() is None, self.said
            assert time.monotonic() < deadline, self.said
            with contextlib.suppress(OSError):
                pids = self.qemus()
                if len(pids) == number and min(map(cpu_seconds, pids)) > BUSY_S:
                    return pids
            time.sleep(0.02)

    def end(self, seconds: float = 120.0) -> int:
        """Wait for its end; the exit status."""
        status = self.process.wait(seconds)
        self._reader.join(10)
        return status

    def assert_nothing_left(self) -> None:
        assert self.qemus() == []
        assert list(self.temporary.iterdir()) == []

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        self._reader.join(10)


@pytest.fixture
def folder(artifacts: Artifacts, tmp_path: Path) -> Path:
    """A folder for a run; the builds are there, so that what is interrupted is no build."""
    assert artifacts.qemu.is_file()
    return tmp_path


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=["Ctrl-C", "SIGTERM"])
def test_interrupted(folder: Path, number: signal.Signals) -> None:
    run = Run(folder, "--profile", "long", "--jobs", "2")
    try:
        run.wait_for("examples: started")
        time.sleep(3)
        assert run.qemus()
        begun = time.monotonic()
        # As the terminal does it: to the whole foreground group.
        os.killpg(run.process.pid, number)
        assert run.end(30) == 130, run.said
        assert time.monotonic() - begun < 20
        assert "interrupted" in run.said
        assert "Traceback" not in run.said
        run.assert_nothing_left()
        assert json.loads(run.json.read_text())["verdict"] == "error"
    finally:
        run.close()


def test_interrupted_while_booting(folder: Path) -> None:
    run = Run(folder, "--profile", "long")
    try:
        run.wait_for("virtual machine: started")
        os.killpg(run.process.pid, signal.SIGINT)
        assert run.end(30) == 130, run.said
        assert "Traceback" not in run.said
        run.assert_nothing_left()
    finally:
        run.close()


@pytest.mark.parametrize("jobs", [1, 2])
def test_qemu_killed(folder: Path, jobs: int) -> None:
    """One QEMU killed from outside is no verdict on the driver: it is said, kept and replaced."""
    run = Run(folder, "--examples", "80", "--jobs", str(jobs))
    try:
        run.wait_for("examples: started")
        os.kill(run.at_work(jobs)[-1], signal.SIGKILL)
        status = run.end(300)
        result = json.loads(run.json.read_text())
        assert status in (0, 3), run.said
        assert result["violations"] == []
        assert "signal 9" in run.said
        assert "Traceback" not in run.said
        if status == 0:
            assert result["verdict"] == "pass"
            assert result["examples"] == 80
            assert result["machines"] >= jobs + 1
        else:
            assert result["verdict"] == "error"
        run.assert_nothing_left()
    finally:
        run.close()


def test_disk_full(folder: Path) -> None:
    """The disk of the temporary folder fills up in the middle of a run."""
    small = folder / "tmp"
    small.mkdir()
    done = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=8m", "tmpfs", str(small)],
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        pytest.skip(f"a small file system cannot be mounted here: {done.stderr.strip()}")
    try:
        run = Run(folder, "--profile", "long")
        try:
            run.wait_for("examples: started")
            time.sleep(2)
            with (small / "filler").open("wb", buffering=0) as filler, contextlib.suppress(OSError):
                while True:
                    filler.write(bytes(4096))
            assert run.end(120) == 3, run.said
            assert "disk is full" in run.said
            assert "Traceback" not in run.said
            (small / "filler").unlink()
            run.assert_nothing_left()
        finally:
            run.close()
    finally:
        subprocess.run(["umount", "-l", str(small)], check=True)
