# SPDX-License-Identifier: GPL-2.0-or-later
"""gdb at a machine: both page tables, the GPU's state, the mirror, lines of kernel and driver."""

from __future__ import annotations

import json
import re
import struct
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hmmbench import gpu
from hmmbench.base.errors import EnvironmentFailure
from hmmbench.build import Artifacts
from hmmbench.debug import session
from hmmbench.guest.program import PAGE
from hmmbench.symbols import sections
from hmmbench.vm.gdb.server import DebugServer
from hmmbench.vm.gdb.tables import hardware
from hmmbench.vm.machine import Machine


@pytest.fixture
def server(vm: Machine, tmp_path: Path) -> Iterator[DebugServer]:
    with DebugServer(vm, tmp_path / "socket") as server:
        yield server


def ask(server: DebugServer, method: str, **params: object) -> Any:
    answer = server.answer(json.dumps({"id": 7, "method": method, "params": params}).encode())
    assert answer["id"] == 7
    assert "error" not in answer, answer
    return answer["result"]


def walks(server: DebugServer, address: int) -> tuple[str, str]:
    """(GPU's, CPU's) meaning of an address in the one address space that there is."""
    (found,) = ask(server, "page_tables", address=address)
    assert found["cpu_from"] == "the driver"
    return found["gpu"]["meaning"], found["cpu"]["meaning"]


def test_page_tables_in_vram(vm: Machine, server: DebugServer) -> None:
    with gpu.open(vm) as g:
        a = g.array(np.arange(3 * PAGE // 4, dtype=np.uint32), "anon")
        a.prefetch()
        assert a.in_vram() == 1.0
        vm.pause()
        for page in a.pages:
            theirs, ours = walks(server, page * PAGE)
            where = re.fullmatch(r"VRAM (0x[0-9a-f]+), writable(, atomics)?", theirs)
            assert where, theirs
            assert ours == f"VRAM {where[1]} (in VRAM, writable)"
        vm.resume()


def test_page_tables_in_system_memory(vm: Machine, server: DebugServer) -> None:
    """The frame that both say holds what the process has there."""
    with gpu.open(vm, policy="map") as g:
        a = g.array(np.arange(2 * PAGE // 4, dtype=np.uint32), "anon")
        b = g.zeros(2 * PAGE // 4, np.uint32, "anon")
        g.copy(b, a)
        vm.pause()
        for n, page in enumerate(b.pages):
            theirs, ours = walks(server, page * PAGE)
            frame = re.match(r"frame (0x[0-9a-f]+), writable", theirs)
            assert frame, theirs
            assert ours == f"frame {frame[1]}, writable"
            at = int(frame[1], 16)
            data = bytes.fromhex(ask(server, "memory", address=at, length=PAGE))
            start = max(b.address, page * PAGE)
            first = (start - b.address) // 4
            count = (min(b.address + b.nbytes, (page + 1) * PAGE) - start) // 4
            assert struct.unpack_from(f"<{count}I", data, start % PAGE) == tuple(
                range(first, first + count)
            ), n
        vm.resume()


def test_page_tables_of_nothing(vm: Machine, server: DebugServer) -> None:
    with gpu.open(vm):
        vm.pause()
        assert walks(server, 0x1000) == ("nothing", "nothing")
        vm.resume()


def test_the_gpus_state(vm: Machine, server: DebugServer) -> None:
    with gpu.open(vm) as g:
        a, b = g.zeros(PAGE, np.uint8, "anon"), g.zeros(PAGE, np.uint8, "anon")
        g.copy(b, a)
        vm.pause()
        state = ask(server, "gpu")
        vm.resume()
    assert state["counters"]["copies"] > 0
    assert state["violations"]["total"] == 0
    (space,) = state["address_spaces"]
    assert int(space["process"], 16)
    (mine,) = [c for c in state["contexts"] if c["asid"] == space["asid"] and not c["privileged"]]
    assert not mine["halted"]
    assert mine["error"] == "NONE"
    assert mine["get"] == mine["put"]


def test_what_cannot_be_answered(vm: Machine, server: DebugServer) -> None:
    assert "no 'fly'" in server.answer(b'{"id": 1, "method": "fly"}')["error"]
    assert server.answer(b"nonsense")["error"]
    assert "length" in server.answer(
        b'{"id": 2, "method": "memory", "params": {"address": 0, "length": 0}}'
    )["error"]  # fmt: skip
    vm.unplug_gpu()
    assert "no GPU" in server.answer(b'{"id": 3, "method": "gpu"}')["error"]


def test_a_wrong_root_is_seen(vm: Machine, server: DebugServer) -> None:
    """The walk begins at what the registers say: without its root it finds something else."""
    with gpu.open(vm) as g:
        a = g.array(np.arange(PAGE, dtype=np.uint8), "anon")
        a.prefetch()
        vm.pause()
        device = server._device()
        (asid, root) = next(iter(device.address_spaces()))
        address = a.pages.start * PAGE
        right = device.walk(root, address)
        assert right.meaning.startswith("VRAM")
        # Another entry of the root: 512 GiB further there is nothing.
        assert device.walk(root, address ^ 1 << 39).meaning == "nothing"
        assert device.walk(root, 1 << 50).meaning.endswith("48 bits")
        # The same tables, said to be in VRAM.
        assert device.walk(root | hardware().HG_ROOT_VRAM, address).meaning != right.meaning
        assert device.cpu_root(asid) is not None
        assert device.cpu_root(asid + 1) is None
        vm.resume()


# -- through gdb


@pytest.fixture(scope="session")
def debug(artifacts: Artifacts) -> Artifacts:
    """With debug information of the driver; the kernel's symbols are enough for most of it."""
    if artifacts.debug_vmlinux is not None and artifacts.debug_module_dir is not None:
        return artifacts
    return replace(
        artifacts, debug_vmlinux=artifacts.kernel_build_dir / "vmlinux",
        debug_module_dir=artifacts.module_dir,
    )  # fmt: skip


def test_commands_in_gdb(vm: Machine, debug: Artifacts) -> None:
    places = sections(vm.agent)
    with gpu.open(vm) as g:
        a = g.array(np.arange(PAGE, dtype=np.uint8), "anon")
        a.prefetch()
        address = a.pages.start * PAGE
        said = session.batch(vm, debug, places, [
            "hmm-gpu", f"hmm-pt {address:#x}", f"hmm-pt {address:#x} 77", "hmm-pt",
            "info threads", "info symbol hmm_range_fault",
            f"info symbol {places['hmm_gpu']['.text']}",
        ])  # fmt: skip
        vm.resume()
        assert a.numpy()[:3].tolist() == [0, 1, 2]  # the machine goes on
    assert re.search(r"^  launches|^  copies", said, re.MULTILINE), said
    assert re.search(r"^context \d+: asid \d+, active", said, re.MULTILINE)
    assert re.search(r"^  GPU: VRAM 0x[0-9a-f]+, writable", said, re.MULTILINE)
    assert re.search(r"^  CPU \(root from the driver\): VRAM 0x[0-9a-f]+ \(in VRAM", said, re.M)
    assert len(re.findall(r"^    level [0-3]  0x", said, re.MULTILINE)) == 8
    assert "no address space of the GPU is enabled" in said
    assert "hmm-pt ADDRESS [ASID]" in said
    assert "Thread 1.2" in said
    assert "hmm_range_fault in section .text" in said
    assert "hmm_gpu.ko" in said


def test_gdb_once_more(vm: Machine, debug: Artifacts) -> None:
    """Left and started again, at a machine that ran in between."""
    places = sections(vm.agent)
    for _ in range(2):
        assert "counters:" in session.batch(vm, debug, places, ["hmm-gpu"])
        vm.resume()
        assert vm.agent.check("echo alive").strip() == "alive"


def test_the_bench_is_gone(vm: Machine, debug: Artifacts, tmp_path: Path) -> None:
    """A command that finds nobody says so and leaves gdb usable."""
    with session.attached(vm, debug, sections(vm.agent)) as (argv, environment):
        environment[session.SOCKET] = str(tmp_path / "nobody")
        done = subprocess.run(
            [*argv, "-batch", "-ex", "hmm-gpu", "-ex", "print 6 * 7"], env=environment,
            capture_output=True, text=True, timeout=120, check=False,
        )  # fmt: skip
    assert "the bench does not answer" in done.stderr
    assert "$1 = 42" in done.stdout
    vm.resume()


def test_no_debug_information(vm: Machine, artifacts: Artifacts) -> None:
    plain = replace(artifacts, debug_vmlinux=None)
    with pytest.raises(EnvironmentFailure, match="debug information"):
        session.batch(vm, plain, {}, [])
