# SPDX-License-Identifier: GPL-2.0-or-later
"""The agent: one static program, with the GPU programs it launches inside."""

from __future__ import annotations

import shutil
from pathlib import Path

from hmmbench.base import outside, paths
from hmmbench.base.errors import EnvironmentFailure
from hmmbench.build import cache, guest_tree
from hmmbench.build.cache import SourceFile, Sources
from hmmbench.build.context import Context
from hmmbench.build.kernel import Kernel

PROGRAM = "agent"
#: Where the copy has operations from outside.
OUTSIDE = Path("operations")
PARTS = (
    "guest-driver/user/Makefile",
    "guest-driver/user/agent",
    "guest-driver/user/lib",
    "guest-driver/user/kernels",
    "guest-driver/include",
    "qemu-device/include",
)


def sources() -> Sources:
    """What the agent is made of, operations from outside included.

    Raises UsageError if those are not as they have to be (hmmbench.base.outside).
    """
    return {
        **guest_tree.only(guest_tree.read(None), *PARTS),
        **{
            OUTSIDE / file.name: SourceFile(file.read_bytes(), 0o644)
            for file in outside.agent_files()
        },
    }


def build(ctx: Context, kernel: Kernel) -> Path:
    """The folder with the agent.

    The kernel matters for one thing: with its source at hand the agent can drive the kernel's
    own HMM test module, whose interface is in no installed header.
    """
    files = sources()
    uapi = kernel.source_dir / "lib/test_hmm_uapi.h" if kernel.source_dir else None
    variant = cache.digest(uapi.read_bytes()) if uapi and uapi.is_file() else "plain"
    key = cache.digest(cache.sources_digest(files), variant)
    found = cache.find("agent", key)
    if found is not None:
        return found
    # What make knows of the last build names files: where others are, it is another folder.
    names = cache.digest(variant, *sorted(map(str, files)))
    work = cache.used(paths.cache_dir("work") / f"agent-{names}")
    with ctx.lock(work.name, "the agent"):
        log = ctx.log("agent-build")
        with ctx.ui.stage("agent: compiling", log):
            guest_tree.lay_out(ctx, files, work / "src", ())
            out = work / "out"
            out.mkdir(exist_ok=True)
            more = (str(work / "src" / at) for at in files if OUTSIDE in at.parents)
            command: list[str | Path] = [
                "make",
                f"-j{ctx.jobs}",
                "-C",
                work / "src/guest-driver/user",
                "CC=gcc",
                "CLANG=clang",
                f"OUT={out}",
                f"MORE_OPS={' '.join(more)}",
            ]
            if uapi is not None and uapi.is_file():
                command.append(f"KERNEL_SOURCE={kernel.source_dir}")
            ctx.programs.run(command, what="building the agent", log=log)
        if not (out / PROGRAM).is_file():
            raise EnvironmentFailure(f"the agent's build made no {out / PROGRAM}", f"Log: {log}")

        def fill(folder: Path) -> None:
            shutil.copy2(out / PROGRAM, folder / PROGRAM)

        return cache.publish("agent", key, fill)
