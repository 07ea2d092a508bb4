# SPDX-License-Identifier: GPL-2.0-or-later
"""The guest's root file system: busybox, dropbear, the agent, the modules and /init."""

from __future__ import annotations

import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from hmmbench.base.errors import EnvironmentFailure
from hmmbench.build import agent, cache, driver, ssh
from hmmbench.build.context import Context
from hmmbench.build.cpio import CpioArchive
from hmmbench.build.kernel import Kernel

INIT = Path(__file__).parent / "guest" / "init"
NAME = "initramfs.cpio"

_FOLDERS = ("proc", "sys", "dev", "tmp", "root", "run", "var/log", "etc", "lib/modules", "mnt")
_FILES = {
    "etc/passwd": "root:x:0:0:root:/root:/bin/sh\n",
    "etc/group": "root:x:0:\n",
    "etc/shells": "/bin/sh\n",
    "etc/hosts": "127.0.0.1 localhost\n",
}


@dataclass(frozen=True)
class Contents:
    kernel: Kernel
    #: folder with hmm_gpu.ko
    driver: Path
    #: folder with the agent
    agent: Path


def build(ctx: Context, contents: Contents, keys: ssh.Keys | None) -> Path:
    """The archive's path. Not compressed: copying is faster than unpacking under emulation."""
    data = _archive(ctx, contents, keys).to_bytes()
    key = cache.digest(data)
    found = cache.find("initramfs", key)
    if found is None:
        with ctx.ui.stage("initramfs"):
            found = cache.publish("initramfs", key, lambda folder: _write(folder / NAME, data))
    return found / NAME


def _write(path: Path, data: bytes) -> None:
    path.write_bytes(data)


def _archive(ctx: Context, contents: Contents, keys: ssh.Keys | None) -> CpioArchive:
    archive = CpioArchive()
    for folder in _FOLDERS:
        archive.folder(folder)
    # The kernel opens the console before anything is mounted on /dev.
    archive.device("dev/console", 5, 1)
    archive.device("dev/null", 1, 3, 0o666)
    for name, text in _FILES.items():
        archive.file(name, text.encode())
    archive.copy("init", INIT, 0o755)
    _add_busybox(archive)
    archive.copy("bin/agent", contents.agent / agent.PROGRAM, 0o755)
    _add_modules(archive, contents)
    _add_dropbear(ctx, archive, keys)
    return archive


def _add_busybox(archive: CpioArchive) -> None:
    found = shutil.which("busybox", path="/bin:/usr/bin")
    if found is None:
        raise EnvironmentFailure("busybox is missing", "Install the package busybox-static.")
    program = Path(found)
    if b"/ld-linux" in program.read_bytes()[:4096]:
        raise EnvironmentFailure(
            f"{program} is not static, so it cannot run alone in the guest",
            "Install the package busybox-static.",
        )
    archive.copy("bin/busybox", program, 0o755)
    for applet in subprocess.check_output([program, "--list"], text=True).split():
        if applet != "busybox":
            archive.link(f"bin/{applet}", "busybox")


def _add_modules(archive: CpioArchive, contents: Contents) -> None:
    order = []
    for module in contents.kernel.modules:
        archive.copy(f"lib/modules/{module.name}", module)
        order.append(module.name)
    archive.file("lib/modules/order", "".join(f"{name}\n" for name in order).encode())
    archive.copy(f"lib/modules/{driver.MODULE}", contents.driver / driver.MODULE)
    if contents.kernel.test_hmm is not None:
        archive.copy("lib/modules/test_hmm.ko", contents.kernel.test_hmm)


def _add_dropbear(ctx: Context, archive: CpioArchive, keys: ssh.Keys | None) -> None:
    server = ssh.server()
    if server is None or keys is None:
        ctx.ui.say("note: dropbear is not installed, so the guest will have no SSH")
        return
    archive.copy("bin/dropbear", server, 0o755)
    for library in ssh.libraries(ctx, server):
        archive.copy(str(library), library, 0o755)
    archive.folder("root/.ssh", 0o700)
    archive.file("root/.ssh/authorized_keys", keys.public.encode(), 0o600)
    archive.file("etc/dropbear/host_key", keys.host.read_bytes(), 0o600)
