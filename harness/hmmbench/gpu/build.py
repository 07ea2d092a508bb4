# SPDX-License-Identifier: GPL-2.0-or-later
"""Compiles what a session needs: its program, with or without code of the user's, and kernels."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path

from hmmbench.base import paths, processes
from hmmbench.base.errors import EnvironmentFailure
from hmmbench.build import cache
from hmmbench.build.riscv import Tools
from hmmbench.gpu.errors import CompileError

_PARTS = ("user", "include")

# No contraction: a * b + c has two roundings, as in numpy.
_KERNEL_FLAGS = (
    "--target=riscv64", "-march=rv64imafd", "-mabi=lp64d", "-mcmodel=medany", "-fPIE",
    "-ffreestanding", "-O2", "-g", "-std=gnu11", "-nostdlibinc", "-ffp-contract=off",
    "-fno-math-errno", "-fno-asynchronous-unwind-tables", "-Wall", "-Wextra", "-Werror",
)  # fmt: skip
# One read-only segment, so that a small kernel's code is one page for the GPU to fault in.
_LINK_FLAGS = (
    "-pie", "--no-dynamic-linker", "-e", "0", "--no-rosegment", "-z", "norelro",
    "-z", "max-page-size=4096",
)  # fmt: skip
_HOST_FLAGS = ("-std=gnu11", "-O2", "-g", "-Wall", "-Wextra", "-Werror", "-ffp-contract=off")


def library() -> Path:
    """The folder with session.o and libhmmgpu.a, in the cache."""
    driver = paths.driver_sources()
    files = cache.read_sources(paths.device_sources() / "include", "include")
    for part in _PARTS:
        files |= cache.read_sources(driver / part, part)
    key = cache.digest(cache.sources_digest(files))
    found = cache.find("session", key)
    if found is not None:
        return found

    def fill(folder: Path) -> None:
        done = processes.run(
            ["make", "-s", "-C", driver / "user", f"OUT={folder}", "session"]
        )
        if done.returncode:
            raise EnvironmentFailure(f"building the session: {done.stderr.strip()[-800:]}")

    return cache.publish("session", key, fill)


def program(host: Path | None = None) -> bytes:
    """The session's program for the guest, with the C file `host` in it.

    Raises CompileError with the compiler's words about `host`, EnvironmentFailure about ours.
    """
    folder = library()
    includes = [f"-I{paths.user_sources() / part}" for part in ("session", "kernels", "lib")]
    includes.append(f"-I{paths.driver_sources() / 'include/uapi'}")
    includes.append(f"-I{paths.device_sources() / 'include'}")
    with tempfile.TemporaryDirectory(prefix="hmmbench-session-") as work:
        objects = [str(folder / "session.o")]
        if host is not None:
            at = _source(host)
            _compile(["gcc", *_HOST_FLAGS, *includes, "-c", at.name, "-o", f"{work}/h.o"], at)
            objects.append(f"{work}/h.o")
        out = Path(work) / "session"
        _compile(
            ["gcc", "-static", "-no-pie", *objects, str(folder / "libhmmgpu.a"), "-lpthread",
             "-lm", "-o", str(out)], host,
        )  # fmt: skip
        return out.read_bytes()


def kernels(source: Path, defines: Sequence[str] = ()) -> bytes:
    """An ELF file of the kernels in a C file.

    defines -- NAME or NAME=VALUE, for the preprocessor

    Raises CompileError with the compiler's words, EnvironmentFailure without a compiler.
    """
    tools = Tools.find()
    at = _source(source)
    includes = [
        f"-I{paths.user_sources() / 'kernels'}", f"-I{paths.device_sources() / 'include'}"
    ]  # fmt: skip
    with tempfile.TemporaryDirectory(prefix="hmmbench-kernels-") as work:
        _compile(
            [tools.clang, *_KERNEL_FLAGS, *(f"-D{d}" for d in defines), *includes, "-c", at.name,
             "-o", f"{work}/k.o"], at,
        )  # fmt: skip
        _compile([tools.lld, *_LINK_FLAGS, "-o", f"{work}/k.elf", f"{work}/k.o"], at)
        return Path(work, "k.elf").read_bytes()


def _source(path: Path) -> Path:
    """Absolute: the compiler runs in the file's folder, so that reports have its short name."""
    if not path.is_file():
        raise CompileError(f"{path} is not a file")
    return path.resolve()


def _compile(argv: Sequence[str], source: Path | None) -> None:
    done = processes.run(argv, cwd=source.parent if source else None)
    if done.returncode:
        what = source.name if source else "the session"
        kind = CompileError if source else EnvironmentFailure
        raise kind(f"{what} does not compile:\n{done.stderr.strip()[-4000:]}")
