# SPDX-License-Identifier: GPL-2.0-or-later
"""Snapshots of booted machines, so that every use after the first starts in a fraction of a second.

A snapshot is a folder in the cache, named by the hash of everything the machine was made of.
It is made in a folder of another name and renamed when it is whole, under a lock, so that a
folder with the right name is always whole and made only once. The oldest go when all together
are too large; one that is being restored just then lives on as QEMU's open file.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from hmmbench.base import paths
from hmmbench.build.cache import lock
from hmmbench.symbols import sections
from hmmbench.vm.accel import host_id
from hmmbench.vm.errors import VmDied, VmError, guard_disk
from hmmbench.vm.machine import Machine
from hmmbench.vm.spec import MachineSpec

#: Bytes on disk of all snapshots together. One takes 50 to 150 MB.
LIMIT = 3 << 30

#: What a folder holds; one of another number is not used.
_FORMAT = 2
_SECTIONS = "sections.json"

# The machine is saved when nothing of its start is going on any more: what still runs would run
# again in every restored copy.
_SETTLE = (
    "if [ -x /bin/dropbear ] && [ -e /sys/class/net/eth0 ]; then"
    " n=0; while [ ! -e /run/dropbear.pid ] && [ $n -lt 100 ]; do sleep 0.05; n=$((n+1)); done;"
    " fi; sync"
)


class Snapshots:
    """The snapshots of this user's cache. Safe to use from several processes at once."""

    def __init__(self, root: Path | None = None, limit: int = LIMIT) -> None:
        self.root = root or paths.cache_dir("snapshots")
        self.limit = limit

    def machine(self, spec: MachineSpec) -> Machine:
        """A machine (to be entered) that is restored; boots and saves one first if need be."""
        folder = self.ensure(spec)
        before = (folder / "console.log").read_text(errors="replace")
        return Machine(spec, state=folder / "state", before=before)

    @contextmanager
    def open(
        self, spec: MachineSpec, say: Callable[[str], None] = lambda text: None
    ) -> Iterator[Machine]:
        """A restored machine. A snapshot that cannot be restored is made anew, once; `say` is
        told why.

        Raises VmDied if a signal ended QEMU meanwhile, which is for the caller to judge.
        """
        machine = self.machine(spec)
        try:
            machine.__enter__()
        except VmError as error:
            why = error.message.split("\n", 1)[0]
            if isinstance(error, VmDied) and error.signalled:
                # Should it be the snapshot's doing after all: the next one is new.
                self.remove(spec)
                raise
            say(f"the saved machine cannot be restored ({why}); it is booted and saved again")
            self.remove(spec)
            machine = self.machine(spec)
            machine.__enter__()
        with contextlib.closing(machine):
            yield machine

    def ensure(self, spec: MachineSpec) -> Path:
        """The folder of the snapshot of `spec`, made if missing."""
        key = self._key(spec)
        folder = self.root / key
        if _touch(folder):
            return folder
        with lock(f"snapshot-{key}"):
            if _touch(folder):  # another process was faster
                return folder
            self._make(spec, key, folder)
        self._trim(keep=folder)
        return folder

    def sections(self, spec: MachineSpec) -> dict[str, dict[str, int]]:
        """Where the modules lie in every copy of this machine: module -> section -> address."""
        found: dict[str, dict[str, int]] = json.loads((self.ensure(spec) / _SECTIONS).read_text())
        return found

    def remove(self, spec: MachineSpec) -> None:
        """Forget the snapshot of `spec`, if there is one."""
        key = self._key(spec)
        with lock(f"snapshot-{key}"):
            shutil.rmtree(self.root / key, ignore_errors=True)

    def _key(self, spec: MachineSpec) -> str:
        return f"{spec.fingerprint(host_id() if spec.accel == 'kvm' else '')}-{_FORMAT}"

    def _make(self, spec: MachineSpec, key: str, folder: Path) -> None:
        """Caller holds the lock of `key`."""
        for leftover in self.root.glob(f".{key}.*"):
            shutil.rmtree(leftover, ignore_errors=True)
        with guard_disk(self.root):
            self.root.mkdir(parents=True, exist_ok=True)
            work = Path(tempfile.mkdtemp(prefix=f".{key}.", dir=self.root))
        try:
            with Machine(spec) as machine:
                machine.agent.check(_SETTLE)
                # Here, once: asked in a restored copy it would change what that executes.
                places = sections(machine.agent)
                machine.save(work / "state")
                with guard_disk(work):
                    (work / "console.log").write_text(machine.console.text())
                    (work / _SECTIONS).write_text(json.dumps(places, indent=1))
                    (work / "meta.json").write_text(
                        json.dumps({"boot_s": machine.ready_s, "hello": machine.hello}, indent=1)
                    )
            work.rename(folder)
        except BaseException:
            shutil.rmtree(work, ignore_errors=True)
            raise

    def _trim(self, keep: Path) -> None:
        """Remove the snapshots used longest ago until all fit into the limit."""
        found = []
        for folder in self.root.glob("[!.]*"):
            with contextlib.suppress(OSError):
                found.append((folder.stat().st_mtime, _size(folder), folder))
        total = sum(size for _, size, _ in found)
        for _, size, folder in sorted(found):
            if total <= self.limit:
                break
            if folder != keep:
                shutil.rmtree(folder, ignore_errors=True)
                total -= size


def _touch(folder: Path) -> bool:
    """Whether the snapshot exists; if so it counts as used now."""
    try:
        os.utime(folder)
    except OSError:
        return False
    return True


def _size(folder: Path) -> int:
    """Bytes on disk: a mapped-ram file is as long as the RAM, but mostly holes."""
    return sum(file.stat().st_blocks * 512 for file in folder.iterdir())
