# SPDX-License-Identifier: GPL-2.0-or-later
"""A console that is later than the kernel's log: nothing that was printed is missed for it."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import cast

import pytest

from hmmbench.guest import splat
from hmmbench.vm.agent import Agent
from hmmbench.vm.console import Console
from hmmbench.vm.errors import AgentTimeout
from hmmbench.vm.machine import MARK, Machine
from hmmbench.vm.spec import MachineSpec

#: Seconds that the console is late.
LATE = 0.3
HEAD = "[    1.0] BUG: Bad page state in process agent  pfn:1\n"
STACK = "[    1.1]  hg_svm_destroy+0x1/0x2\n"


class Guest:
    """Stands for the agent: what the kernel printed before each of its answers."""

    def __init__(self, path: Path, *printed: str, late: float = LATE) -> None:
        self.path = path
        self.printed_texts = list(printed)
        self.late = late
        self.marks = 0
        self.asked = 0
        self.timers: list[threading.Timer] = []

    def printed(self) -> int:
        self.asked += 1
        text = self.printed_texts.pop(0) if self.printed_texts else ""
        if not text:
            return 0
        self.marks += 1
        text += f"[    1.2] {MARK}{self.marks}\n"
        timer = threading.Timer(self.late, self._write, [text])
        timer.start()
        self.timers.append(timer)
        return self.marks

    def _write(self, text: str) -> None:
        with self.path.open("a") as file:
            file.write(text)


@contextmanager
def machine(path: Path, guest: Guest) -> Iterator[Machine]:
    vm = Machine(MachineSpec(qemu=path, firmware=(), kernel=path, initramfs=path))
    vm.agent = cast(Agent, guest)
    vm.console = Console(path)
    vm.check = lambda: None  # type: ignore[method-assign]
    yield vm
    for timer in guest.timers:
        timer.join()


def test_a_report_that_comes_late_is_waited_for(tmp_path: Path) -> None:
    guest = Guest(tmp_path / "console", HEAD + STACK)
    with machine(guest.path, guest) as vm:
        text = vm.printed()
        assert text == HEAD + STACK, "without the mark, which is ours"
        assert vm.printed() == ""


def test_a_report_that_goes_on_is_taken_whole(tmp_path: Path) -> None:
    """Another processor is in the midst of its report when the agent answers."""
    guest = Guest(tmp_path / "console", HEAD, STACK, late=0.01)
    with machine(guest.path, guest) as vm:
        (found,) = splat.scan(vm.printed())
        assert found.functions == ("hg_svm_destroy",)
        assert guest.asked == 3, "until nothing was new"


def test_what_is_no_report_is_not_asked_for_twice(tmp_path: Path) -> None:
    guest = Guest(tmp_path / "console", "[    1.0] hmm_gpu: a copy failed\n", STACK, late=0.01)
    with machine(guest.path, guest) as vm:
        assert "a copy failed" in vm.printed()
        assert guest.asked == 1


def test_a_silent_kernel_costs_no_wait(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    guest = Guest(tmp_path / "console")
    waits: list[float] = []
    monkeypatch.setattr(time, "sleep", waits.append)
    with machine(guest.path, guest) as vm:
        assert not vm.catch_up()
    assert waits == []
    assert guest.asked == 1


def test_a_console_that_stands_still_is_a_guest_that_hangs(tmp_path: Path) -> None:
    guest = Guest(tmp_path / "console", HEAD, late=1.0)
    with (
        machine(guest.path, guest) as vm,
        pytest.raises(AgentTimeout, match=r"console is 0\.2 s behind"),
    ):
        vm.catch_up(timeout=0.2)
