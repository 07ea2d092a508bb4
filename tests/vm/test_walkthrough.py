# SPDX-License-Identifier: GPL-2.0-or-later
"""docs/debugging.md goes through a finding: its commands show what stands there."""

from __future__ import annotations

import os
import re
import subprocess
import sys

import pytest

from hmmbench.base import paths
from hmmbench.build import Artifacts

ROOT = paths.project_root()
PROMPT = "(gdb) "


def shown() -> list[list[str]]:
    """The document's commands, each with what it shows; the first is the bench's."""
    text = (ROOT / "docs/debugging.md").read_text()
    (part,) = re.findall(r"^## A finding, .*?(?=^## )", text, re.S | re.M)
    steps: list[list[str]] = []
    for line in re.findall(r"^    (.*)", part, re.M):
        if line.startswith((PROMPT, "./hmmbench ")):
            steps.append([])
        steps[-1].append(line.removeprefix(PROMPT))
    return steps


def gist(line: str) -> str:
    """Without numbers, and without the folder of the kernel's source."""
    line = re.sub(r" at /\S*?/(?=(mm|include|arch|kernel)/)", " at ", line)
    return re.sub(r"0x[0-9a-f]+|\d+", "#", line).strip()


def follow(arguments: list[str], commands: list[str]) -> list[str]:
    """What each of gdb's commands shows; first what the bench says before."""
    done = subprocess.run(
        [sys.executable, "-m", "hmmbench", *arguments], input="\n".join(commands) + "\n",
        capture_output=True, text=True, timeout=500, check=False, cwd=ROOT, env=os.environ,
    )  # fmt: skip
    assert done.returncode == 1, done.stderr
    return done.stdout.split(PROMPT)


def written(said: str) -> dict[str, int]:
    """Of hmm-last-write: table -> instruction."""
    found = re.findall(r"asid \d+, (GPU|CPU), .* at instruction (\d+) by", said)
    return {table: int(instruction) for table, instruction in found}


def check(step: list[str], said: str) -> None:
    """Each line that is not left out, one behind the other."""
    lines = iter(map(gist, said.splitlines()))
    for wanted in step[1:]:
        assert wanted == "..." or gist(wanted) in lines, f"{step[0]}: no {wanted!r} in\n{said}"


@pytest.mark.timeout(1200)
def test_the_commands_show_what_is_written(artifacts: Artifacts) -> None:
    if artifacts.debug_vmlinux is None:
        pytest.skip("no debug information: ./hmmbench build --debug-info")
    bench, *steps = shown()
    arguments = bench[0].split()[1:]
    commands = [step[0] for step in steps]
    goto = next(n for n, command in enumerate(commands) if command.startswith("hmm-goto "))
    # Its number is this build's, as the command before has told it.
    first = follow(arguments, commands[:goto])
    at = written("".join(first))
    assert at["CPU"] < at["GPU"]
    commands[goto] = f"hmm-goto {at['CPU']}"
    said = follow(arguments, commands)
    assert len(said) == len(commands) + 2
    assert written("".join(said)) == at, "another execution"
    for step, text in zip([bench, *steps], said, strict=False):
        check(step, text)


def test_what_is_not_shown_is_noticed() -> None:
    step = ["hmm-pt 0x1000", "asid 1", "...", "CPU: nothing"]
    check(step, "asid 7\n  GPU: frame 0x1000\n  CPU: nothing\n")
    for said in ("asid 7\n  CPU: frame 0x1000\n", "CPU: nothing\nasid 7\n", ""):
        with pytest.raises(AssertionError, match="hmm-pt"):
            check(step, said)
