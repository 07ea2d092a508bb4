# SPDX-License-Identifier: GPL-2.0-or-later
"""The bench's side of a debugger: answers what gdb's commands ask.

A Unix socket, JSON lines, one request at a time:

    {"id": 1, "method": "page_tables", "params": {"address": 4096}}
    {"id": 1, "result": [...]}    or    {"id": 1, "error": "why not"}

Methods of every machine (it stands while gdb has it):

    gpu          counters, violations, contexts, address spaces
    page_tables  {address, asid (optional), cr3 (optional)}: both walks of an address
    memory       {address, length}: physical memory, in hex

Of a machine that can go back (travel.py):

    where        first, present and last instruction of the example, gdb's socket
    goto         {instruction}: stand there; as where
    violation    stand where it is seen first; as where, and `moment`: which that is, in words
    switches     {count}: the last ones before the present instruction
    last_write   {address, asid (optional)}: of both page tables' entries; stand at the later one
"""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from hmmbench.base.errors import HmmbenchError
from hmmbench.vm.errors import VmError
from hmmbench.vm.gdb.tables import Gpu, hardware
from hmmbench.vm.machine import Machine
from hmmbench.vm.spec import GPU_ID

#: What a method is called with; its result has to be JSON.
Method = Callable[[Mapping[str, Any]], Any]

_MAX_MEMORY = 1 << 20
_CR3_FRAME = 0x000FFFFFFFFFF000


class DebugServer:
    """Serves one machine until it is closed.

    The machine is used by the server's thread alone meanwhile: its owner waits for gdb.

    machine -- who goes back puts another one here
    methods -- more may be added before gdb is there
    """

    def __init__(self, machine: Machine, path: Path) -> None:
        self.machine = machine
        self.methods: dict[str, Method] = {
            "gpu": self._gpu, "page_tables": self.page_tables, "memory": self._memory,
        }  # fmt: skip
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.bind(str(path))
        self._socket.listen(1)
        self._thread = threading.Thread(target=self._serve, name="debug-server", daemon=True)
        self._thread.start()

    def __enter__(self) -> DebugServer:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        # Wakes an accept() that waits; what is being answered goes on to its end.
        self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()
        self._thread.join(timeout=60.0)

    def _serve(self) -> None:
        while True:
            try:
                peer, _ = self._socket.accept()
            except OSError:
                return
            with peer, peer.makefile("rwb") as stream:
                for line in stream:
                    stream.write(json.dumps(self.answer(line)).encode() + b"\n")
                    stream.flush()

    def answer(self, line: bytes) -> dict[str, Any]:
        """To one request; whatever goes wrong is told to whoever asked."""
        number = None
        try:
            request = json.loads(line)
            number = request.get("id")
            method = self.methods.get(request.get("method"))
            if method is None:
                known = ", ".join(sorted(self.methods))
                raise LookupError(f"this machine has no {request.get('method')!r}, but {known}")
            return {"id": number, "result": method(request.get("params", {}))}
        except HmmbenchError as error:
            return {"id": number, "error": error.message}
        except Exception as error:
            return {"id": number, "error": f"{type(error).__name__}: {error}"}

    # -- methods

    def _gpu(self, _: Mapping[str, Any]) -> Any:
        gpu = self._device()
        hw = hardware()
        return {
            "counters": self.machine.gpu.counters(),
            "violations": json.loads(self.machine.gpu.violations()),
            "contexts": gpu.contexts(),
            "address_spaces": [
                {
                    "asid": asid, "root": f"{root & hw.HG_PTE_FRAME_MASK:#x}",
                    "in_vram": bool(root & hw.HG_ROOT_VRAM),
                    "process": f"{(gpu.cpu_root(asid) or 0) & _CR3_FRAME:#x}",
                }
                for asid, root in gpu.address_spaces()
            ],
        }  # fmt: skip

    def page_tables(self, params: Mapping[str, Any]) -> Any:
        address, wanted = int(params["address"]), params.get("asid")
        gpu = self._device()
        hw = hardware()
        # The usual root of a process, if the driver does not say which.
        cr3 = int(params.get("cr3", 0)) & _CR3_FRAME
        levels = 5 if int(params.get("cr4", 0)) >> 12 & 1 else 4
        current = cr3 | levels << hw.HG_AUDIT_LEVELS_SHIFT if cr3 else None
        found = []
        for asid, root in gpu.address_spaces():
            if wanted is None or asid == wanted:
                told = gpu.cpu_root(asid)
                process = told or current
                found.append({
                    "asid": asid,
                    "gpu": gpu.walk(root, address).to_json(),
                    "cpu": gpu.walk_cpu(process, address).to_json() if process else None,
                    "cpu_from": "the driver" if told else "cr3",
                })  # fmt: skip
        if not found and current is not None and wanted is None:
            found.append({
                "asid": None, "gpu": None, "cpu": gpu.walk_cpu(current, address).to_json(),
                "cpu_from": "cr3",
            })  # fmt: skip
        return found

    def _memory(self, params: Mapping[str, Any]) -> str:
        length = int(params["length"])
        if not 0 < length <= _MAX_MEMORY:
            raise ValueError(f"a length between 1 and {_MAX_MEMORY}")
        return self._read(int(params["address"]), length).hex()

    # -- the machine

    def _read(self, address: int, length: int) -> bytes:
        return physical(self.machine, address, length)

    def _device(self) -> Gpu:
        return gpu_of(self.machine)


def gpu_of(machine: Machine) -> Gpu:
    """The device of a machine that stands.  Raises VmError if there is none, or no driver."""
    hw = hardware()
    for bus in machine.qmp("query-pci"):
        for device in _devices(bus):
            if device.get("qdev_id") == GPU_ID:
                bars = {r["bar"]: r["address"] for r in device["regions"]}
                regs, vram = bars.get(hw.HG_BAR_REGS, -1), bars.get(hw.HG_BAR_VRAM, -1)
                if min(regs, vram) <= 0:
                    raise VmError("the GPU's memory is switched off: no driver has it")
                frame = machine.gpu.frame if machine.spec.iommu else int
                return Gpu(partial(physical, machine), regs, vram, frame)
    raise VmError("this machine has no GPU")


def physical(machine: Machine, address: int, length: int) -> bytes:
    """Physical memory of a machine that stands."""
    path = machine.folder / "debug-memory"
    try:
        machine.qmp("pmemsave", val=address, size=length, filename=str(path))
        data = path.read_bytes()
    finally:
        path.unlink(missing_ok=True)
    if len(data) != length:
        raise VmError(f"physical memory at {address:#x} cannot be read")
    return data


def _devices(bus: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Of a bus and of those behind its bridges."""
    found: list[Mapping[str, Any]] = []
    for device in bus.get("devices", []):
        found.append(device)
        found += _devices(device.get("pci_bridge", {}))
    return found
