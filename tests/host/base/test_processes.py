# SPDX-License-Identifier: GPL-2.0-or-later
"""Children end with what they started, and with us."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from ends import gone, until

from hmmbench.base.errors import Cancelled, EnvironmentFailure
from hmmbench.base.processes import Children

STUBBORN = "import signal, time; signal.signal(15, signal.SIG_IGN); print(1, flush=True)"


def test_a_block_that_fails_ends_its_child() -> None:
    children = Children()
    with pytest.raises(ValueError, match="of the block"), children.start(["sleep", "60"]) as child:
        raise ValueError("of the block")
    assert child.returncode == -15


def test_who_does_not_end_is_killed() -> None:
    children = Children(0.2)
    words = [sys.executable, "-c", STUBBORN + "; time.sleep(60)"]
    with children.start(words, stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        assert child.stdout.readline()
        before = time.monotonic()
        children.end()
        assert time.monotonic() - before < 30
    assert child.returncode == -9


def test_what_a_child_has_left_behind_ends_too() -> None:
    """It has ended and is still looked after: its output is open in what it started."""
    children = Children()
    with children.start(["sh", "-c", "sleep 60 & echo $!"], stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        left = int(child.stdout.readline())
        child.wait()
        assert Path(f"/proc/{left}").exists()
        children.end()
        # Nobody holds the other end any more.
        assert child.stdout.read() == b""


def test_none_is_started_after_the_end() -> None:
    children = Children()
    with children.start(["sleep", "60"]) as child:
        thread = threading.Thread(target=children.end)
        thread.start()
        assert child.wait() == -15
        thread.join()
    assert children.over
    with pytest.raises(Cancelled), children.start(["true"]):
        pass


#: Starts a child, says which, and waits.
PARENT = """
import time
from hmmbench.base.processes import Children
with Children().start(["sleep", "60"]) as child:
    print(child.pid, flush=True)
    time.sleep(60)
"""


def test_who_is_killed_leaves_no_child() -> None:
    """Nobody is there then to end it."""
    with subprocess.Popen([sys.executable, "-c", PARENT], stdout=subprocess.PIPE) as parent:
        assert parent.stdout is not None
        pid = int(parent.stdout.readline())
        child = Path(f"/proc/{pid}")
        assert child.exists()
        # Before its exec it is no sleep yet, and not bound.
        until(lambda: "sleep" in (child / "cmdline").read_text())
        parent.kill()
    until(lambda: gone(pid), 30)


def test_no_such_program() -> None:
    with pytest.raises(EnvironmentFailure, match="no-such-program is missing"):
        Children().start(["no-such-program"]).__enter__()
