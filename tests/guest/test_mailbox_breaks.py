# SPDX-License-Identifier: GPL-2.0-or-later
"""One-line mistakes in the agent that its tests of the mailbox have to see."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
import test_agent_mailbox as tests
from host_agent import ROOT
from host_mailbox import HostMailbox
from test_agent_mailbox import folder

from hmmbench.vm.errors import VmError

__all__ = ["folder"]  # a fixture

USER = ROOT / "guest-driver" / "user"

BREAKS: dict[str, tuple[str, str, str, Callable[[HostMailbox], None]]] = {
    "answers-the-request-of-the-dead": (
        "chan_mailbox.c",
        "box.taken = box.head->request;\n\t*failed",
        "box.taken = box.head->answer;\n\t*failed",
        tests.test_the_answer_of_an_agent_that_died,
    ),
    "stands-not-counted": (
        "chan_mailbox.c",
        "box.head->stands++;",
        "",
        tests.test_one_stand_a_request_and_none_is_counted_twice,
    ),
    "always-an-answer": (
        "chan_mailbox.c",
        "box.answered = false;",
        "",
        tests.test_let_go_without_a_request_it_stands_again,
    ),
    "length-unchecked": (
        "chan_mailbox.c",
        "head->request_len != sizeof(m->header) + (uint64_t)m->header.len",
        "0",
        tests.test_a_length_beyond_the_memory,
    ),
    "forked-ones-go-early": (
        "engine/proc.c",
        "\twait_first(sh->prog.nops);\n\trest();\n\t_exit(0);",
        "\twait_first(sh->prog.nops);\n\tif (number != 1)\n\t\trest();\n\t_exit(0);",
        tests.test_at_the_first_stand_all_has_ended_and_all_live,
    ),
    "threads-go-early": (
        "engine/proc.c",
        "\trun_actor((uintptr_t)arg);\n\trest();",
        "\trun_actor((uintptr_t)arg);\n\tatomic_fetch_add(&sh->slot[process_number()].held, 1);",
        tests.test_at_the_first_stand_all_has_ended_and_all_live,
    ),
    "only-the-first-is-waited-for": (
        "engine/program.c",
        "p < HB_MAX_PROCS; p++)\n\t\tif (atomic_load(&sh->slot[p].state) == SLOT_ALIVE &&",
        "p < 1; p++)\n\t\tif (atomic_load(&sh->slot[p].state) == SLOT_ALIVE &&",
        tests.test_who_outlives_the_first_is_waited_for,
    ),
    "killed-before-the-stand": (
        "engine/program.c",
        "\t\t\tstand();\n\t\t\tpatience_begin(&run.patience, kill_grace_ms());\n"
        "\t\t\tkill(-run.group, SIGKILL);",
        "\t\t\tpatience_begin(&run.patience, kill_grace_ms());\n"
        "\t\t\tkill(-run.group, SIGKILL);\n\t\t\tstand();",
        tests.test_at_the_time_limit_it_stands_before_anybody_is_killed,
    ),
    "phase-of-the-program-before": (
        "engine/program.c",
        "\tatomic_store(&told->phase, HM_NO_PHASE);\n",
        "",
        tests.test_what_surrounds_a_program_is_no_phase_of_it,
    ),
    "nobody-left-no-stand": (
        "engine/program.c",
        "\t\tif (!look_at_slots()) {\n\t\t\tstand();",
        "\t\tif (!look_at_slots()) {",
        tests.test_when_nobody_is_left_it_stands_too,
    ),
    "nobody-is-let-go": (
        "engine/program.c",
        "\tatomic_store(&sh->hold, 0);\n",
        "",
        tests.test_a_request_that_passes_over_the_stand,
    ),
    "the-dead-are-waited-for": (
        "engine/program.c",
        "if (atomic_load(&sh->slot[p].state) == SLOT_ALIVE &&\n\t\t    atomic_load(",
        "if (atomic_load(&sh->slot[p].state) != SLOT_NONE &&\n\t\t    atomic_load(",
        tests.test_who_was_to_end_has_ended,
    ),
}


@pytest.mark.parametrize("name", BREAKS)
def test_it_is_seen(name: str, built: Path, folder: Path, tmp_path: Path) -> None:
    file, old, new, check = BREAKS[name]
    text = (USER / "agent" / file).read_text()
    assert text.count(old) == 1
    source = tmp_path / "guest-driver"
    shutil.copytree(ROOT / "guest-driver", source, symlinks=True)
    (tmp_path / "qemu-device").symlink_to(ROOT / "qemu-device")
    (source / "user" / "agent" / file).write_text(text.replace(old, new))
    # Times are copied too, so that only that file is compiled.
    out = tmp_path / "out"
    shutil.copytree(built, out)
    subprocess.run(["make", "-s", "-C", source / "user", f"OUT={out}", out / "agent"], check=True)
    box = HostMailbox(out / "agent", folder)
    try:
        box.wait()
        box.patience = 3.0
        with pytest.raises((AssertionError, VmError, OSError)):
            check(box)
    finally:
        box.stop()
