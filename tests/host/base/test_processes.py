# SPDX-License-Identifier: GPL-2.0-or-later
"""Children end with what they started, and with us."""

from __future__ import annotations

import ast
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from ends import gone, until

from hmmbench.base import paths, processes
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


def test_what_a_program_says_and_how_it_ends(tmp_path: Path) -> None:
    words = ["sh", "-c", "read a; pwd; echo $a $B; printf 'no\\377' >&2; exit 3"]
    done = processes.run(
        words, cwd=tmp_path, env={"PATH": "/usr/bin:/bin", "B": "b"}, text="a\nmore\n"
    )
    assert done.args == words
    assert (done.returncode, done.stdout) == (3, f"{tmp_path}\na b\n")
    # Compilers quote what they were given.
    assert done.stderr == "no\N{REPLACEMENT CHARACTER}"
    with pytest.raises(EnvironmentFailure, match="no-such-program is missing"):
        processes.run(["no-such-program"])


@pytest.mark.parametrize("leader", ["stays", "goes"])
def test_who_takes_too_long_ends_with_what_it_started(tmp_path: Path, leader: str) -> None:
    """Also if only that is left."""
    said = tmp_path / "pid"
    words = ["sh", "-c", f"sleep 60 & echo $! >{said}; {'wait' if leader == 'stays' else ''}"]
    before = time.monotonic()
    with pytest.raises(subprocess.TimeoutExpired) as caught:
        processes.run(words, timeout=1)
    assert caught.value.cmd == words
    assert time.monotonic() - before < 30
    until(lambda: gone(int(said.read_text())), 20)


#: Runs make in a folder.
BUILDER = """
import sys
from hmmbench.base import processes
processes.run(["make", "-s", "-C", sys.argv[1]])
"""


def test_who_is_killed_leaves_no_build(tmp_path: Path) -> None:
    """Neither make, which the kernel tells to end, nor what make tells then."""
    (tmp_path / "Makefile").write_text("all:\n\techo $$PPID $$$$ >pids; exec sleep 60\n")
    pids = tmp_path / "pids"
    with subprocess.Popen([sys.executable, "-c", BUILDER, str(tmp_path)]) as parent:
        until(lambda: pids.is_file() and len(pids.read_text().split()) == 2)
        make, recipe = map(int, pids.read_text().split())
        assert not gone(make)
        assert not gone(recipe)
        parent.kill()
    until(lambda: gone(make) and gone(recipe), 30)


#: Who starts programs otherwise: they end at once and by themselves.
ONE_SHOTS = {
    "build/depends.py _git",
    "build/initramfs.py _add_busybox",
    "build/qemu_build.py fits",
    "build/qemu_build.py mend",
    "build/riscv.py version",
    "campaign/line_coverage.py _gcov",
    "suites/conformance.py revision",
    "suites/doctor.py _packages",
    "vm/accel.py _version",
    "vm/accel.py exact_refused",
    # But gdb, which has the terminal and its user.
    "debug/session.py interactive",
}

_MEANS = {
    "subprocess": ("run", "call", "check_call", "check_output", "getoutput", "Popen"),
    "os": ("system", "popen", "posix_spawn", "posix_spawnp"),
}


def _starters(root: Path) -> set[str]:
    """All "FILE FUNCTION" that start programs by means of Python's own."""
    found = set()
    for file in sorted(root.rglob("*.py")):
        tree = ast.parse(file.read_text())
        functions = [n for n in ast.walk(tree) if isinstance(n, ast.FunctionDef)]
        for node in ast.walk(tree):
            match node:
                case ast.Call(func=ast.Attribute(value=ast.Name(id=of), attr=name)):
                    if name not in _MEANS.get(of, ()):
                        continue
                case ast.ImportFrom(module="subprocess"):
                    pass
                case _:
                    continue
            around = [f for f in functions if f.lineno <= node.lineno <= (f.end_lineno or 0)]
            inner = max(around, key=lambda f: f.lineno).name if around else ""
            found.add(f"{file.relative_to(root)} {inner}")
    return found


def test_nobody_else_starts_programs() -> None:
    """They would outlive a bench that is killed."""
    found = _starters(paths.project_root() / "harness/hmmbench")
    assert {place for place in found if "base/processes.py " not in place} == ONE_SHOTS
