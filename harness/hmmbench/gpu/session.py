# SPDX-License-Identifier: GPL-2.0-or-later
"""Arrays, kernels and jobs of one session.

Arguments of kernels (and of functions on the CPU) are members of 8 bytes, in the order given: an
array is its address, an int is an int64_t or uint64_t, a float is a double.  So the C side is

    struct args { float *x; uint64_t n; double factor; };
"""

from __future__ import annotations

import contextlib
import math
import struct
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray

from hmmbench.base.errors import UsageError
from hmmbench.base.ui import Ui
from hmmbench.build import BuildRequest, ensure
from hmmbench.example.vm_target import ALL_VRAM
from hmmbench.gpu import build
from hmmbench.gpu.errors import JobFailed
from hmmbench.gpu.process import Process, numbers
from hmmbench.guest.program import (
    MIGRATE_DEVICE,
    PAGE,
    POLICY_EXCLUSIVE,
    POLICY_MAP,
    POLICY_MIGRATE,
    Q_CPU_DEVICE,
)
from hmmbench.vm.errors import VmError
from hmmbench.vm.machine import Machine
from hmmbench.vm.snapshot import Snapshots
from hmmbench.vm.spec import MachineSpec
from hmmbench.vm.standard import best_spec

#: What memory an array is in: see HS_MEM_* of guest-driver/user/session/session.h.
MEMORY = ("malloc", "anon", "shared", "file", "stack", "global", "device")

#: Of those, what can be in VRAM: the driver migrates anonymous memory.
MOVABLE = ("malloc", "anon", "stack", "global")

#: What the GPU does with a page that it touches and that is not in VRAM.
POLICIES = {
    "map": POLICY_MAP,
    "migrate": POLICY_MIGRATE,
    "exclusive": POLICY_MAP | POLICY_EXCLUSIVE,
}


#: Told `done` of `total`, and of what.
Progress = Callable[[int, int, str], None]


def pack(args: Sequence[object]) -> bytes:
    """Arguments as a C struct of 8-byte members.  Raises UsageError for what is none."""
    out = bytearray()
    for arg in args:
        if isinstance(arg, Array):
            out += struct.pack("<Q", arg.address)
        elif isinstance(arg, (bool, int, np.integer, np.bool_)):
            value = int(arg)
            if not -(1 << 63) <= value < 1 << 64:
                raise UsageError(f"argument {value} does not fit into 64 bits")
            out += struct.pack("<q" if value < 0 else "<Q", value)
        elif isinstance(arg, (float, np.floating)):
            out += struct.pack("<d", float(arg))
        else:
            raise UsageError(
                f"a kernel cannot have a {type(arg).__name__} as argument",
                "Arguments are arrays of the session, ints and floats.",
            )
    if len(out) > numbers().HS_MAX_ARGS:
        raise UsageError(f"{len(args)} arguments are more than {numbers().HS_MAX_ARGS // 8}")
    return bytes(out)


class Array:
    """Memory of the session that is read and written as a numpy array.

    address -- in the session; kernels and host functions get it
    """

    def __init__(
        self, gpu: Gpu, address: int, shape: tuple[int, ...], dtype: DTypeLike,
        kind: int | None = None,
    ) -> None:  # fmt: skip
        self._gpu = gpu
        self._kind = kind
        self.address = address
        self.shape = shape
        self.dtype: np.dtype[Any] = np.dtype(dtype)
        self.nbytes = math.prod(shape) * self.dtype.itemsize

    @property
    def pages(self) -> range:
        """Numbers of the pages that it touches."""
        return range(self.address // PAGE, (self.address + self.nbytes - 1) // PAGE + 1)

    def __len__(self) -> int:
        return self.shape[0]

    def numpy(self) -> NDArray[Any]:
        """A copy of the content, read by the session's CPU: pages in VRAM come home.

        Of memory that is always in VRAM ("device"), by the copy engine.
        """
        raw = self._gpu.process.read(self.address, self.nbytes)
        return np.frombuffer(raw, dtype=self.dtype).reshape(self.shape).copy()

    def write(self, data: ArrayLike) -> None:
        """Replace the content, by the session's CPU.  `data` is broadcast and converted."""
        full = np.broadcast_to(np.asarray(data, dtype=self.dtype), self.shape)
        self._gpu.process.write(self.address, np.ascontiguousarray(full).tobytes())

    @property
    def _in_device(self) -> bool:
        return self._kind == numbers().HS_MEM_DEVICE

    def to_device(self) -> tuple[int, int]:
        """Move its pages to VRAM: how many moved, how many could not."""
        if self._in_device:
            return 0, 0
        self._gpu.limit_vram()
        return self._gpu.process.migrate(self.address, self.nbytes, to_device=True)

    def to_system(self) -> tuple[int, int]:
        """Move its pages to system memory.  Raises UsageError for memory that is always in VRAM."""
        if self._in_device:
            raise UsageError("memory of kind 'device' cannot leave VRAM")
        return self._gpu.process.migrate(self.address, self.nbytes, to_device=False)

    def prefetch(self) -> tuple[int, int]:
        """As to_device(), and map them on the GPU: it does not fault on them."""
        if self._in_device:
            return 0, 0
        self._gpu.limit_vram()
        return self._gpu.process.migrate(
            self.address, self.nbytes, to_device=bool(MIGRATE_DEVICE), map_it=True
        )

    def in_vram(self) -> float:
        """The share of its pages that live in VRAM now, 0 to 1."""
        if self._in_device:
            return 1.0
        flags = self._gpu.process.query(self.pages.start * PAGE, len(self.pages))
        return sum(bool(f & Q_CPU_DEVICE) for f in flags) / len(self.pages)

    def free(self) -> None:
        """Give the memory back.  What the bench did not allocate stays."""
        kind, self._kind = self._kind, None
        if kind is not None:
            self._gpu.process.free(kind, self.nbytes, self.address)
            self._gpu._account(self, kind, -1)


class Job:
    """A launch or copy under way.

    instructions -- taken by all its threads, once it was waited for
    """

    def __init__(self, gpu: Gpu, name: str, number: int) -> None:
        self._gpu = gpu
        self._name = name
        self._number = number
        self.instructions = 0

    def wait(self, timeout: float | None = None) -> Job:
        """Until it has ended.  Raises JobFailed if with an error; a second call does nothing."""
        if not self._number:
            return self
        begun = time.monotonic()
        result = self._gpu.process.wait(self._number, timeout)
        self._gpu.busy_s += time.monotonic() - begun
        self._number = 0
        self.instructions = result.instructions
        if result.printed:
            self._gpu.on_print(self._gpu.process.printed())
        if result.error:
            raise JobFailed(
                self._name, result.report, -result.error, function=result.function,
                file=result.file, line=result.line, block=result.block, thread=result.thread,
                address=result.address, pc=result.pc,
            )  # fmt: skip
        return self


class Kernels:
    """The kernels of one C file, in the session's memory."""

    def __init__(self, gpu: Gpu, number: int) -> None:
        self._gpu = gpu
        self._number = number

    def launch(
        self, name: str, grid: int, block: int, *args: object, shared: int = 0, local: int = 0,
        budget: int = 0, wait: bool = True, timeout: float | None = None,
    ) -> Job:  # fmt: skip
        """Run a kernel.

        grid, block -- blocks, and threads a block
        args        -- the members of its struct: arrays, ints, floats
        shared      -- bytes that the threads of a block share
        local       -- bytes of stack a thread; 0: 4096
        budget      -- instructions a thread may take; 0: no limit
        wait        -- False: return at once; wait() of the job is then the caller's
        timeout     -- seconds to wait, after which the session is ended; None: the session's

        Raises JobFailed with a report that names the source line.
        """
        for what, size in (("grid", grid), ("block", block)):
            if size < 1:
                raise UsageError(f"{name}: a {what} of {size} runs no thread")
        self._gpu.limit_vram()
        begun = time.monotonic()
        number = self._gpu.process.launch(
            self._number, name, grid, block, pack(args), shared, local, budget
        )
        self._gpu.busy_s += time.monotonic() - begun
        job = Job(self._gpu, name, number)
        return job.wait(timeout) if wait else job

    def symbol(self, name: str) -> int:
        """The address of a kernel or variable of the file."""
        return self._gpu.process.symbol(self._number, name)


def driver_counters(vm: Machine) -> dict[str, int]:
    """All counters of the driver, and its gauges, live_NAME."""
    text = vm.agent.read_file(f"{_debugfs(vm)}/counters").decode()
    found = {}
    for line in text.splitlines():
        name, _, value = line.partition(" ")
        if value.strip().lstrip("-").isdigit():
            found[name] = int(value)
    return found


def _debugfs(vm: Machine) -> str:
    return str(vm.hello.get("debugfs") or "/sys/kernel/debug/dri/0")


class Gpu:
    """A process in the guest with a GPU.  Made by open().

    footprint -- bytes of all arrays there are, and what claim() added
    largest   -- that footprint was so far; most_movable: the same of `movable`
    busy_s    -- seconds that this side waited for jobs
    on_print  -- called with what kernels printed (hmm_printf()) when a job was waited for
    """

    def __init__(
        self, vm: Machine, process: Process, folder: Path | None = None,
        vram: int | float | None = None, defines: Sequence[str] = (),
        progress: Progress | None = None,
    ) -> None:  # fmt: skip
        self.vm = vm
        self.process = process
        self.folder = folder or Path()
        self.footprint = 0
        self.largest = 0
        self.busy_s = 0.0
        self.on_print: Callable[[str], object] = sys.stdout.write
        self._vram = vram
        self._limit = ALL_VRAM
        self.most_movable = 0
        self._users: Counter[int] = Counter()
        self._other_pages = 0
        self._defines = tuple(defines)
        self._progress = progress

    @property
    def movable(self) -> int:
        """Pages of the footprint and of the kernels' code that the driver can put into VRAM."""
        return len(self._users) + self._other_pages

    def progress(self, done: int, total: int, what: str = "") -> None:
        """Tell whoever waits that `done` of `total` is behind us.  Cheap: say it often."""
        if self._progress is not None:
            self._progress(done, total, what)

    # -- memory

    def array(self, data: ArrayLike, memory: str = "malloc", path: str = "") -> Array:
        """A numpy array (or what numpy makes one of) in the session's memory.

        memory -- one of MEMORY; path -- of the guest's file, for "file"
        """
        source = np.asarray(data)
        out = self.empty(source.shape, source.dtype, memory, path)
        out.write(source)
        return out

    def zeros(
        self, shape: int | tuple[int, ...], dtype: DTypeLike, memory: str = "malloc",
        path: str = "",
    ) -> Array:  # fmt: skip
        """As empty(), and every byte written with 0."""
        out = self.empty(shape, dtype, memory, path)
        out.write(0)
        return out

    def empty(
        self, shape: int | tuple[int, ...], dtype: DTypeLike, memory: str = "malloc",
        path: str = "",
    ) -> Array:  # fmt: skip
        """Memory that nobody has touched."""
        if memory not in MEMORY:
            raise UsageError(f"there is no memory {memory!r}: {', '.join(MEMORY)}")
        full = (shape,) if isinstance(shape, int) else tuple(shape)
        if np.dtype(dtype).hasobject:
            raise UsageError(
                f"an array of {np.dtype(dtype)} holds references to this Python's objects",
                "Give it a dtype that is memory: dtype=np.float32, say.",
            )
        kind = numbers()[f"HS_MEM_{memory.upper()}"]
        size = math.prod(full) * np.dtype(dtype).itemsize
        if size == 0:
            raise UsageError("an array without elements has no address")
        out = Array(self, self.process.allocate(kind, size, path), full, dtype, kind)
        self._account(out, kind, 1)
        return out

    def _account(self, array: Array, kind: int, sign: int) -> None:
        """An array has come (sign 1) or gone (-1)."""
        self._claim(sign * array.nbytes)
        if kind in {numbers()[f"HS_MEM_{memory.upper()}"] for memory in MOVABLE}:
            for page in array.pages:
                # Neighbours share a page.
                self._users[page] += sign
                if not self._users[page]:
                    del self._users[page]
        self.most_movable = max(self.most_movable, self.movable)

    def view(self, address: int, shape: int | tuple[int, ...], dtype: DTypeLike) -> Array:
        """Memory that the session's own code allocated, as an array."""
        return Array(self, address, (shape,) if isinstance(shape, int) else tuple(shape), dtype)

    def claim(self, size: int) -> None:
        """Bytes that the session's own code allocated belong to the footprint."""
        self._claim(size)
        self._more_pages(math.ceil(size / PAGE))

    def _more_pages(self, pages: int) -> None:
        self._other_pages += pages
        self.most_movable = max(self.most_movable, self.movable)

    def _claim(self, size: int) -> None:
        self.footprint += size
        self.largest = max(self.largest, self.footprint)

    # -- work

    def kernels(self, source: str | Path) -> Kernels:
        """Compile a C file and load its kernels.  A relative path is from the workload's folder.

        Raises CompileError with the compiler's words.
        """
        elf = build.kernels(self.folder / source, self._defines)
        self._more_pages(1)  # its code
        return Kernels(self, self.process.load(elf))

    def call(self, name: str, *args: object, timeout: float | None = None) -> int:
        """Run a function of the host C file on the guest's CPU; what it returned."""
        return self.process.call(name, pack(args), timeout)

    def copy(self, dst: Array, src: Array, wait: bool = True) -> Job:
        """Copy all of `src` by the copy engine.  Raises UsageError if `dst` is smaller."""
        if dst.nbytes < src.nbytes:
            raise UsageError(f"{src.nbytes} bytes do not fit into {dst.nbytes}")
        self.limit_vram()
        job = Job(self, "copy", self.process.copy(dst.address, src.address, src.nbytes))
        return job.wait() if wait else job

    def policy(self, name: str) -> None:
        """One of POLICIES: what an access to a page outside VRAM does from now on."""
        if name not in POLICIES:
            raise UsageError(f"there is no policy {name!r}: {', '.join(POLICIES)}")
        self.process.policy(POLICIES[name])

    # -- what happened

    def counters(self) -> dict[str, int]:
        """The driver's counters, and the device's as dev_NAME.  They count since the boot."""
        return driver_counters(self.vm) | {f"dev_{n}": v for n, v in self.vm.gpu.counters().items()}

    @contextmanager
    def counting(self) -> Iterator[dict[str, int]]:
        """A dict that holds, after the block, how much each counter grew in it."""
        grown: dict[str, int] = {}
        before = self.counters()
        yield grown
        grown |= {n: v - before.get(n, 0) for n, v in self.counters().items()}

    # -- how much VRAM

    def limit_vram(self) -> None:
        """Bring the driver's limit to what open() was asked for, as far as the arrays are known."""
        if self._vram is None:
            return
        pages = self._vram
        if isinstance(pages, float):
            pages = max(1, math.ceil(pages * self.movable))
        if pages != self._limit:
            self._set_limit(pages)

    @property
    def vram_pages(self) -> int | None:
        """The limit in force, None if there is none."""
        return None if self._limit == ALL_VRAM else self._limit

    def unlimit_vram(self) -> None:
        """All of VRAM again; nothing if the machine is gone."""
        if self._limit != ALL_VRAM:
            with contextlib.suppress(VmError):
                self._set_limit(ALL_VRAM)

    def _set_limit(self, pages: int) -> None:
        path = f"{_debugfs(self.vm)}/vram_limit"
        self.vm.agent.write_file(path, str(pages).encode(), mode=0)
        self._limit = pages


@contextmanager
def open(
    vm: Machine | None = None, *, spec: MachineSpec | None = None, kernel: str = "lts",
    host: Path | None = None, folder: Path | None = None, vram: int | float | None = None,
    policy: str = "migrate", timeout: float = 120.0, defines: Sequence[str] = (),
    progress: Progress | None = None,
) -> Iterator[Gpu]:  # fmt: skip
    """A session, in a machine of its own or in one that runs.

    vm      -- a machine to attach to; else one is restored from the snapshot of
    spec    -- this machine; else of the usual one with the kernel
    kernel  -- as ./hmmbench run --kernel; what is missing is built
    host    -- a C file (hmm_host.h) whose functions the session has
    folder  -- where relative paths of kernels() begin
    vram    -- what the driver may use of it: pages, or as a float a factor of what is `movable`
    policy  -- one of POLICIES
    timeout -- seconds for one request, a job's end among them
    defines -- NAME=VALUE, for the preprocessor of the kernels
    progress -- told what the workload says of it

    What kernels print goes to standard output, unless Gpu.on_print is set.

    Program and machine are gone at the end, also after an error; of a machine that was given,
    the program, and the limit of VRAM.
    """
    with ExitStack() as stack:
        if vm is None:
            if spec is None:
                spec, _ = best_spec(ensure(BuildRequest(kernel=kernel), Ui()))
            vm = stack.enter_context(Snapshots().open(spec))
        process = stack.enter_context(Process(vm.agent, build.program(host), timeout))
        gpu = Gpu(vm, process, folder, vram, defines, progress)
        gpu.policy(policy)
        # Last in, first out: the program's pages leave VRAM after the limit has.
        stack.callback(gpu.unlimit_vram)
        yield gpu
