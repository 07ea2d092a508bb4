# SPDX-License-Identifier: GPL-2.0-or-later
"""`hmmbench test` and its pytest end together, and pytest's fixtures tidy up."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from ends import gone, until

from hmmbench.base import paths

#: Says who it is, and waits; what it holds takes longer to put away than a process's last moment.
TESTS = """
import os, sys, time
from pathlib import Path
import pytest

here = Path(__file__).parent

@pytest.fixture
def machine():
    yield
    time.sleep(1)
    (here / "tidy").touch()

def test_waits(machine):
    (here / "pid").write_text(str(os.getpid()))
    time.sleep(60)

def test_catches_all(machine):
    sys.modules["tests.conftest"].END_S = 1
    (here / "pid").write_text(str(os.getpid()))
    try:
        time.sleep(60)
    except KeyboardInterrupt:
        time.sleep(60)
"""

#: A plugin before tests/conftest.py, which is only just being loaded.
EARLY = """
import os, time
from pathlib import Path
(Path(__file__).parent / "pid").write_text(str(os.getpid()))
time.sleep(60)
"""


@pytest.mark.parametrize(
    ("number", "plugins", "name"),
    [
        (signal.SIGTERM, [], "waits"), (signal.SIGKILL, [], "waits"),
        (signal.SIGKILL, [], "catches_all"), (signal.SIGKILL, ["early"], "waits"),
    ],
    ids=["SIGTERM", "SIGKILL", "caught", "early"],
)  # fmt: skip
def test_pytest_ends_with_the_bench(
    number: signal.Signals, plugins: list[str], name: str, tmp_path: Path
) -> None:
    (tmp_path / "test_x.py").write_text(TESTS)
    (tmp_path / "early.py").write_text(EARLY)
    words = ["-p", "tests.conftest", "-p", "no:cacheprovider", "-k", name]
    for plugin in plugins:
        words[:0] = ["-p", plugin]
    bench = subprocess.Popen(
        [sys.executable, "-m", "hmmbench", "test", "--quick", "--", str(tmp_path / "test_x.py"),
         *words],
        # Its folder stays behind where it is killed.
        env={**os.environ, "TMPDIR": str(tmp_path),
             "PYTHONPATH": f"{paths.project_root() / 'harness'}:{tmp_path}"},
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True,
        # As a shell starts its background jobs.
        preexec_fn=_deaf,
    )  # fmt: skip
    pid = tmp_path / "pid"
    try:
        until(lambda: pid.exists() and pid.read_text() != "")
        bench.send_signal(number)
        bench.wait(50)
        until(lambda: gone(int(pid.read_text())))
        assert (tmp_path / "tidy").exists() == (name == "waits" and not plugins)
    finally:
        bench.kill()
        bench.wait()
        if pid.exists() and not gone(int(pid.read_text())):
            os.kill(int(pid.read_text()), signal.SIGKILL)


def _deaf() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
