# SPDX-License-Identifier: GPL-2.0-or-later
"""GPU programs with an answer that is known: found in workloads/, run, and judged.

A workload is NAME.py beside its kernels NAME.c, and NAME_host.c if it has code of its own on
the CPU (docs/writing-workloads.md).  NAME.py has

    a docstring   -- its first line says what the workload shows
    SIZES         -- {"tiny": {...}, "small": {...}, "large": {...}}: arguments of run()
    run(gpu, ...) -- does it, and calls same() or close() on what came out; may return a dict of
                     figures of its own, for the JSON; of a figure "SOMETHING/s" a sweep makes a
                     plot (hmmbench.gpu.sweep)
"""

from __future__ import annotations

import ast
import time
import traceback
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike

from hmmbench import gpu
from hmmbench.base import paths
from hmmbench.base.errors import HmmbenchError, UsageError, ViolationFound
from hmmbench.gpu.errors import SessionError, SessionOver
from hmmbench.gpu.session import Progress
from hmmbench.guest import splat
from hmmbench.guest.program import PAGE
from hmmbench.oracle import mirror, misuse
from hmmbench.vm.errors import AgentTimeout, VmDied
from hmmbench.vm.machine import Machine

SIZES = ("tiny", "small", "large")

#: How long the driver may take to give everything back (seconds).
SETTLE_S = 20.0

Verdict = Literal["pass", "fail", "error"]


class WrongResult(ViolationFound):
    """The GPU's answer is not numpy's."""


def same(got: ArrayLike, want: ArrayLike, what: str) -> None:
    """Bit for bit equal, NaNs and signs of zeros included; else WrongResult."""
    g, w = np.asarray(got), np.asarray(want)
    _shapes(g, w, what)
    kind = f"V{w.dtype.itemsize}"
    wrong = np.ascontiguousarray(g).reshape(-1).view(kind) != (
        np.ascontiguousarray(w).reshape(-1).view(kind)
    )
    _wrong(g, w, wrong, what, "")


def close(got: ArrayLike, want: ArrayLike, rtol: float, what: str) -> None:
    """Equal up to `rtol` of the largest wanted magnitude; else WrongResult.  A NaN never is."""
    g, w = np.asarray(got), np.asarray(want)
    _shapes(g, w, what)
    limit = rtol * float(np.max(np.abs(w), initial=0.0))
    with np.errstate(invalid="ignore", over="ignore"):
        wrong = ~(np.abs(g.astype(np.float64) - w) <= limit)
    _wrong(g, w, wrong.reshape(-1), what, f", tolerance {limit:.3g}")


def _shapes(got: np.ndarray[Any, Any], want: np.ndarray[Any, Any], what: str) -> None:
    if got.shape != want.shape or got.dtype != want.dtype:
        raise WrongResult(
            f"{what}: {got.dtype} of shape {got.shape}, not {want.dtype} of {want.shape}"
        )


def _wrong(
    got: np.ndarray[Any, Any], want: np.ndarray[Any, Any], wrong: Any, what: str, words: str
) -> None:
    places = np.flatnonzero(wrong)
    if len(places):
        at = int(places[0])
        raise WrongResult(
            f"{what}: {len(places)} of {want.size} wrong, the first at {at}:"
            f" {got.reshape(-1)[at]}, not {want.reshape(-1)[at]}{words}"
        )


@dataclass(frozen=True)
class Workload:
    """One that was found.  `what` is the first line of its docstring."""

    name: str
    path: Path
    what: str

    @property
    def host(self) -> Path | None:
        """Its code for the CPU, if it has some."""
        path = self.path.with_name(f"{self.name}_host.c")
        return path if path.is_file() else None


@dataclass
class WorkloadOutcome:
    """How one run ended.

    detail      -- what is wrong; empty if nothing is
    seconds     -- of the run, data in and out included, on this host
    gpu_seconds -- of those, waiting for jobs
    footprint   -- bytes, the largest it was
    movable     -- pages of it that the driver can put into VRAM, the most there were
    vram_pages  -- the limit of VRAM during the run, None: all of it
    arguments   -- of run()
    story       -- what the run was about, in bytes and events: see story()
    counters    -- by how much they grew (gauges left out)
    printed     -- by its kernels
    """

    name: str
    size: str
    verdict: Verdict = "pass"
    detail: str = ""
    seconds: float = 0.0
    gpu_seconds: float = 0.0
    footprint: int = 0
    movable: int = 0
    vram_pages: int | None = None
    arguments: dict[str, Any] = field(default_factory=dict)
    story: dict[str, int] = field(default_factory=dict)
    counters: dict[str, int] = field(default_factory=dict)
    printed: str = ""
    #: what run() returned: figures of the workload's own
    figures: dict[str, Any] = field(default_factory=dict)
    #: which of several runs of the workload it is
    words: str = ""


def story(counters: Mapping[str, int]) -> dict[str, int]:
    """Of how counters grew, what tells most.

    faults, batches  -- of the GPU, and the service's rounds they came in
    cpu_faults       -- of the CPU, on pages in VRAM
    bytes_to_vram, bytes_back -- migrated; back counts evicted pages, too
    evictions, bytes_evicted  -- of chunks of VRAM that had to make room
    """
    pages = {n: PAGE * counters.get(f"pages_{n}", 0) for n in ("to_device", "to_system", "evicted")}
    return {
        "faults": counters.get("faults", 0),
        "batches": counters.get("fault_batches", 0),
        "cpu_faults": counters.get("cpu_faults", 0),
        "bytes_to_vram": pages["to_device"],
        "bytes_back": pages["to_system"],
        "evictions": counters.get("evictions", 0),
        "bytes_evicted": pages["evicted"],
    }


def folder() -> Path:
    return paths.project_root() / "workloads"


def find(where: Path | None = None) -> list[Workload]:
    """All workloads of a folder, by name.  Raises UsageError for one that is none."""
    return [_read(path) for path in sorted((where or folder()).glob("*.py"))]


def _read(path: Path) -> Workload:
    try:
        text = ast.get_docstring(ast.parse(path.read_text())) or ""
    except SyntaxError as error:
        raise UsageError(f"{path}: line {error.lineno}: {error.msg}") from error
    except (OSError, ValueError) as error:
        raise UsageError(f"{path} cannot be read: {error}") from error
    if not text:
        raise UsageError(f"{path}: a docstring has to say what the workload shows")
    return Workload(path.stem, path, text.partition("\n")[0])


def choose(names: Iterable[str], where: Path | None = None) -> list[Workload]:
    """Those named, in the order given.  A name that ends in .py is a file of the user's own.

    Raises UsageError for a name that is none.
    """
    known = {w.name: w for w in find(where)}
    chosen = []
    for name in names:
        if name.endswith(".py"):
            if not Path(name).is_file():
                raise UsageError(f"{name} is not a file")
            chosen.append(_read(Path(name).resolve()))
        elif name in known:
            chosen.append(known[name])
        else:
            raise UsageError(f"there is no workload {name}", "./hmmbench workload --list names all")
    return chosen


def load(workload: Workload) -> ModuleType:
    """Its Python file, executed.  Raises UsageError if SIZES or run is missing."""
    module = ModuleType(f"workload_{workload.name}")
    module.__file__ = str(workload.path)
    try:
        # Not imported: that would leave a __pycache__ beside the user's file.
        exec(compile(workload.path.read_text(), workload.path, "exec"), module.__dict__)
    except Exception as error:
        raise _mistake(workload, error) from error
    sizes = getattr(module, "SIZES", None)
    if not callable(getattr(module, "run", None)) or not isinstance(sizes, dict):
        raise UsageError(f"{workload.path} has no run() or no SIZES")
    missing = [size for size in SIZES if not isinstance(sizes.get(size), dict)]
    if missing:
        raise UsageError(f"{workload.path}: SIZES has no {missing[0]}")
    return module


def run_one(
    vm: Machine, workload: Workload, size: str, vram: int | float | None = None,
    timeout: float = 300.0, defines: Sequence[str] = (), audit: str = "off",
    change: Mapping[str, Any] | None = None, progress: Progress | None = None,
) -> WorkloadOutcome:  # fmt: skip
    """Run a workload in a machine and judge it.

    vram     -- pages, or as a float a factor of what can be in VRAM of the footprint
    timeout  -- seconds for one job
    defines  -- for the preprocessor of its kernels
    audit    -- which translations the device compares with the CPU's (docs/audit.md)
    change   -- arguments of run() that are not the size's
    progress -- told how far the workload is, if it says so

    Fails if the answer is wrong, a job ends with an error or not in time, the program in the guest
    dies, the driver holds something afterwards, the device saw a violation, or the guest's kernel
    complained, hangs or died.  What says nothing about the GPU is raised: UsageError, VmError.
    """
    module = load(workload)
    arguments = {**module.SIZES[size], **(change or {})}
    outcome = WorkloadOutcome(workload.name, size, arguments=arguments)
    vm.gpu.set_audit(audit)
    try:
        with gpu.open(
            vm, host=workload.host, folder=workload.path.parent, vram=vram, timeout=timeout,
            defines=defines, progress=progress,
        ) as g:  # fmt: skip
            _run(g, workload, module, outcome)
        _oracles(vm, outcome)
    except AgentTimeout as error:
        _oracle(outcome, [f"the guest hangs: {error.message}"])
    except VmDied as error:
        splats = splat.scan(vm.console.text())
        if not splats and not error.panicked:
            raise
        _oracle(outcome, [error.summary, *(s.title for s in splats)])
    return outcome


def _run(g: gpu.Gpu, workload: Workload, module: ModuleType, outcome: WorkloadOutcome) -> None:
    said: list[str] = []
    g.on_print = said.append
    begun = time.monotonic()
    with g.counting() as grown:
        try:
            outcome.figures = module.run(g, **outcome.arguments) or {}
        except (ViolationFound, SessionOver) as error:
            outcome.verdict, outcome.detail = "fail", error.message
        except AssertionError as error:
            outcome.verdict = "fail"
            outcome.detail = _mistake(workload, error).message
        except SessionError as error:
            outcome.verdict, outcome.detail = "error", error.message
        except HmmbenchError:
            raise
        except Exception as error:
            raise _mistake(workload, error) from error
        finally:
            outcome.printed = "".join(said)
    outcome.seconds = round(time.monotonic() - begun, 3)
    outcome.gpu_seconds = round(g.busy_s, 3)
    outcome.footprint, outcome.movable = g.largest, g.most_movable
    outcome.vram_pages = g.vram_pages
    outcome.counters = {n: v for n, v in grown.items() if not n.startswith("live_")}
    outcome.story = story(outcome.counters)


def _mistake(workload: Workload, error: Exception) -> UsageError:
    """An exception of the workload's own, with the line in its file."""
    frames = traceback.extract_tb(error.__traceback__)
    lines = [f.lineno for f in frames if f.filename == str(workload.path)]
    where = f"{workload.path.name}:{lines[-1]}" if lines else workload.path.name
    return UsageError(f"{where}: {type(error).__name__}: {error}")


def _oracles(vm: Machine, outcome: WorkloadOutcome) -> None:
    """What guest and device have to say, also what they said late of the workload before."""
    left = _left(vm)
    seen = mirror.read(vm.gpu.violations())
    if seen.total:
        vm.gpu.clear_violations()
    wrong = mirror.check(seen)
    said = [wrong.message] if wrong is not None else []
    said += [v.message for v in misuse.check(seen.protocol)]
    said += [s.title for s in splat.scan(vm.printed())]
    if left:
        said.append(f"the driver still holds {left} after the program's end")
    _oracle(outcome, said)


def _left(vm: Machine) -> str:
    """What the driver holds though no program uses it; the last of it goes a moment later."""
    end = time.monotonic() + SETTLE_S
    while True:
        live = {n: v for n, v in gpu.driver_counters(vm).items() if n.startswith("live_") and v}
        if not live or time.monotonic() > end:
            return ", ".join(f"{n} {v}" for n, v in live.items())
        time.sleep(0.02)


def _oracle(outcome: WorkloadOutcome, said: list[str]) -> None:
    """What an oracle says comes before what the workload does."""
    if said:
        outcome.verdict = "fail"
        outcome.detail = "; ".join([*said, outcome.detail] if outcome.detail else said)
