# SPDX-License-Identifier: GPL-2.0-or-later
"""The agent, built and run on the host: no virtual machine, no GPU."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from gpu_program import INCLUDES, USER, run
from host_agent import HostAgent

from hmmbench.vm.agent import Agent


@pytest.fixture(scope="session")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder with agent, libhmmgpu.a and kernels.elf, compiled from the tree."""
    out = tmp_path_factory.mktemp("agent-build")
    result = subprocess.run(
        ["make", "-C", str(USER), f"OUT={out}", "-j2"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert result.returncode == 0, result.stdout + result.stderr
    return out


@pytest.fixture(scope="session")
def harness(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Driver of libhmmgpu's loader on the host, under ASan and UBSan."""
    out = tmp_path_factory.mktemp("loader") / "harness"
    run("gcc", "-std=gnu11", "-O1", "-g", "-Wall", "-Wextra", "-Werror",
        "-fsanitize=address,undefined", "-fno-sanitize-recover=all", *INCLUDES,
        Path(__file__).with_name("loader_harness.c"),
        *(USER / "lib" / f"{n}.c" for n in ("hmmgpu", "kernel", "lines", "print")),
        "-o", out)  # fmt: skip
    return out


@pytest.fixture
def host_agent(built: Path, tmp_path: Path) -> Iterator[HostAgent]:
    # A socket's path is limited to 107 bytes, which pytest's folders can exceed.
    folder = Path(os.path.realpath(tmp_path))
    short = Path("/tmp") / f"hmmbench-test-{os.getpid()}-{time.monotonic_ns() % 10**9}"
    short.mkdir()
    agent = HostAgent(built / "agent", short)
    try:
        yield agent
    finally:
        agent.stop()
        shutil.copy(agent.log, folder)
        shutil.rmtree(short)


@pytest.fixture
def agent(host_agent: HostAgent) -> Agent:
    return host_agent.connect()
