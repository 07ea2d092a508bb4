# SPDX-License-Identifier: GPL-2.0-or-later
"""Build programs: their output is kept, their failure explained, and none outlives the build."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from hmmbench.base import paths
from hmmbench.base.errors import Cancelled, EnvironmentFailure
from hmmbench.build.programs import Programs


def gone(pid: int, within: float = 5.0) -> bool:
    deadline = time.monotonic() + within
    while time.monotonic() < deadline:
        try:
            state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        except OSError:
            return True
        if state == "Z":
            return True
        time.sleep(0.05)
    return False


def read_pid(path: Path) -> int:
    for _ in range(200):
        if path.exists() and path.read_text().strip():
            return int(path.read_text())
        time.sleep(0.05)
    raise AssertionError("the child never started")


def test_output_goes_to_the_log_and_to_the_watcher(tmp_path: Path) -> None:
    seen: list[str] = []
    Programs().run(
        ["sh", "-c", "echo one; echo two >&2"],
        what="talking",
        log=tmp_path / "log",
        watch=seen.append,
    )
    assert seen == ["one", "two"]
    assert "one\ntwo\n" in (tmp_path / "log").read_text()


def test_failure_shows_the_lines_that_matter(tmp_path: Path) -> None:
    script = (
        "echo 'a.c:1: error: no such thing'; for i in $(seq 100); do echo line $i; done; exit 3"
    )
    with pytest.raises(EnvironmentFailure, match="no such thing") as caught:
        Programs().run(["sh", "-c", script], what="building", log=tmp_path / "log")
    assert "exit code 3" in caught.value.message
    assert "line 5\n" not in caught.value.message
    assert str(tmp_path / "log") in caught.value.hint


def test_full_disk_of_a_child_is_a_sentence(tmp_path: Path) -> None:
    script = "echo 'cc1: fatal error: a.o: No space left on device'; exit 1"
    with pytest.raises(EnvironmentFailure, match="disk is full"):
        Programs().run(["sh", "-c", script], what="building", log=tmp_path / "log")


def test_missing_program_is_named(tmp_path: Path) -> None:
    with pytest.raises(EnvironmentFailure, match="no-such-program"):
        Programs().run(["no-such-program"], what="building", log=tmp_path / "log")


def test_cancel_kills_grandchildren(tmp_path: Path) -> None:
    programs = Programs()
    pid_file = tmp_path / "pid"
    # The grandchild ignores SIGTERM, as a compiler's wrapper might.
    script = f"(trap '' TERM; sh -c 'echo $PPID' > {pid_file}; sleep 60) & wait"
    failure: list[BaseException] = []

    def work() -> None:
        try:
            programs.run(["sh", "-c", script], what="building", log=tmp_path / "log")
        except BaseException as error:
            failure.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    pid = read_pid(pid_file)
    programs.end()
    thread.join(10)
    assert not thread.is_alive()
    assert isinstance(failure[0], Cancelled)
    assert gone(pid)
    with pytest.raises(Cancelled):
        programs.run(["true"], what="more", log=tmp_path / "log")


INTERRUPTED = """
import sys, time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from hmmbench import build
from hmmbench.build import cache, qemu_build
from hmmbench.base.errors import Cancelled

def slow(ctx, source, full):
    def fill(folder):
        (folder / "half").touch()
        ctx.programs.run(["sh", "-c", f"echo $$ > {sys.argv[1]}; sleep 60"], what="x",
                       log=Path(sys.argv[1] + ".log"))
    with ctx.ui.stage("slow"):
        return cache.publish("thing", "key", fill)

qemu_build.build = slow
build._guest = lambda ctx, request: None
submit = ThreadPoolExecutor.submit
def submit_later(pool, function, *rest):
    if function is build._guest:
        time.sleep(float(sys.argv[2]))
    return submit(pool, function, *rest)
ThreadPoolExecutor.submit = submit_later
build.ensure()
"""


@pytest.mark.parametrize("late", ["0", "30"], ids=["both tracks run", "one track runs"])
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_interrupted_build_leaves_nothing(
    tmp_path: Path, number: signal.Signals, late: str
) -> None:
    pid_file = tmp_path / "pid"
    child = subprocess.Popen(
        [sys.executable, "-c", INTERRUPTED, str(pid_file), late],
        env={
            **os.environ,
            "HMMBENCH_CACHE": str(tmp_path / "cache"),
            "PYTHONPATH": str(paths.project_root() / "harness"),
        },
        stderr=subprocess.PIPE,
    )
    compiler = read_pid(pid_file)
    child.send_signal(number)
    child.communicate(timeout=20)
    assert child.returncode != 0
    assert gone(compiler)
    assert list((tmp_path / "cache" / "artefacts").iterdir()) == []
