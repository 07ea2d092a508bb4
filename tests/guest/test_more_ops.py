# SPDX-License-Identifier: GPL-2.0-or-later
"""Operations from outside of the tree: a C file given to the Makefile, and nothing else."""

from __future__ import annotations

import errno
import shutil
import subprocess
from pathlib import Path

import pytest
from gpu_program import USER
from host_agent import HostAgent

from hmmbench.guest.program import PAGE, PROT_RW, Op, Program, Result
from hmmbench.model.ops.mapping import Mmap
from hmmbench.vm.agent import AgentError

FAMILY = """
#include <errno.h>
#include <sys/mman.h>

#include "op.h"

static int op_mlock(const struct op_call *call)
{
    void *addr = op_range(call->op);

    if (!addr)
        return -EINVAL;
    return mlock(addr, call->op->len) ? -errno : 0;
}

static const struct op_kind locking[] = {
    /* region off len */
    { 400, "lock", op_mlock, 0, NULL },
};
OP_FAMILY(locking);
"""

PROGRAM = Program([
    Op(Mmap.number, len=2 * PAGE, a=PROT_RW), Op(400, len=PAGE, phase=1),
    Op(400, off=4 * PAGE, len=PAGE, phase=2), Op(400, off=1 << 40, len=PAGE, phase=3),
])  # fmt: skip


def test_it_is_run(built: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    shutil.copytree(built, out)
    # Of the name of a file that is there already: it takes no other's place.
    (tmp_path / "memory.c").write_text(FAMILY)
    subprocess.run(
        ["make", "-s", "-C", USER, f"OUT={out}", f"MORE_OPS={tmp_path / 'memory.c'}",
         out / "agent"], check=True,
    )  # fmt: skip
    folder = tmp_path / "socket"
    folder.mkdir()
    agent = HostAgent(out / "agent", folder)
    try:
        answer = Result.decode(agent.connect().program(PROGRAM.encode(), 30), PROGRAM)
    finally:
        agent.stop()
    assert [o.status for o in answer.ops] == [0, 0, -errno.ENOMEM, -errno.EINVAL]


def test_without_it_there_is_none(host_agent: HostAgent) -> None:
    with pytest.raises(AgentError, match="operation 1: code 400 is unknown"):
        host_agent.connect().program(PROGRAM.encode(), 30)
