# SPDX-License-Identifier: GPL-2.0-or-later
"""The kernel's own HMM test program, from a kernel's source, compiled as it is."""

from __future__ import annotations

import shutil
from pathlib import Path

from hmmbench.base import paths
from hmmbench.base.errors import EnvironmentFailure, UsageError
from hmmbench.build import cache
from hmmbench.build.context import Context

PROGRAM = "hmm-tests"
_FOLDER = Path("tools/testing/selftests/mm")
_SOURCE = _FOLDER / "hmm-tests.c"

#: What its Makefile links it with: the name of the second changed with 7.x.
_HELPERS = ("vm_util.c", "thp_settings.c", "hugepage_settings.c")
#: As tools/testing/selftests/mm/Makefile and lib.mk have them, and static for the guest.
_FLAGS = ("-O2", "-U_FORTIFY_SOURCE", "-static", "-pthread")
_INCLUDES = (("-I", "."), ("-I", "tools/testing/selftests"), ("-isystem", "tools/include/uapi"))
#: What can be compiled into it, for the key.
_READ = (
    "tools/testing/selftests/*.h",
    f"{_FOLDER}/*.h",
    f"{_FOLDER}/*.c",
    "lib/test_hmm_uapi.h",
    "mm/gup_test.h",
)


def build(ctx: Context, source: Path | None) -> Path:
    """The program, made from the kernel source in `source`, which is only read.

    Raises UsageError for a tree without the program, EnvironmentFailure if it does not compile.
    """
    if source is None or not (source / _SOURCE).is_file():
        raise UsageError(
            "the source of this kernel is not known, and with it the kernel's HMM tests",
            "Give the source with --kernel-source, or a --kernel-build whose Makefile names it.",
        )
    read = sorted(path for pattern in _READ for path in source.glob(pattern))
    key = cache.digest(
        *(part for path in read for part in (str(path.relative_to(source)), path.read_bytes())),
        *_FLAGS,
        ctx.programs.output(["gcc", "--version"], what="gcc --version").splitlines()[0],
    )
    found = cache.find(PROGRAM, key)
    if found is not None:
        return found / PROGRAM
    work = cache.used(paths.cache_dir("work") / f"{PROGRAM}-{key}")
    log = ctx.log(f"{PROGRAM}-build")
    helpers = [_FOLDER / name for name in _HELPERS if (source / _FOLDER / name).is_file()]
    with ctx.lock(work.name, "the kernel's HMM tests"), ctx.ui.stage("hmm-tests: compiling", log):
        # Here, as who had the lock before removes it.
        work.mkdir(exist_ok=True)
        command: list[str | Path] = ["gcc", *_FLAGS]
        for option, folder in _INCLUDES:
            command += [option, folder]
        command += [_SOURCE, *helpers, "-lrt", "-lm", "-o", work / PROGRAM]
        ctx.programs.run(command, what=f"compiling {_SOURCE}", log=log, cwd=source)
        if not (work / PROGRAM).is_file():
            raise EnvironmentFailure(f"the compiler made no {work / PROGRAM}", f"Log: {log}")

        def fill(folder: Path) -> None:
            shutil.copy2(work / PROGRAM, folder / PROGRAM)

        done = cache.publish(PROGRAM, key, fill)
        shutil.rmtree(work, ignore_errors=True)
    return done / PROGRAM
