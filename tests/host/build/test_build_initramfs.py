# SPDX-License-Identifier: GPL-2.0-or-later
"""The initramfs archive, read back by cpio's own format rules."""

from __future__ import annotations

import stat
import subprocess
from pathlib import Path

from hmmbench.build.cpio import CpioArchive
from hmmbench.build.initramfs import INIT


def entries(data: bytes) -> dict[str, tuple[int, bytes]]:
    """A reader written from the format's description, not from the writer."""
    found = {}
    at = 0
    while True:
        header = data[at : at + 110]
        assert header[:6] == b"070701"
        fields = [int(header[6 + 8 * i : 14 + 8 * i], 16) for i in range(13)]
        mode, size, name_size = fields[1], fields[6], fields[11]
        name = data[at + 110 : at + 110 + name_size - 1].decode()
        at += (110 + name_size + 3) & ~3
        if name == "TRAILER!!!":
            return found
        found[name] = (mode, data[at : at + size])
        at += (size + 3) & ~3


def test_round_trip() -> None:
    archive = CpioArchive()
    archive.file("a/b/c", b"12345", 0o755)
    archive.link("bin/sh", "busybox")
    archive.device("dev/console", 5, 1)
    archive.folder("a", 0o700)
    found = entries(archive.to_bytes())
    assert found["a/b/c"] == (stat.S_IFREG | 0o755, b"12345")
    assert found["bin/sh"] == (stat.S_IFLNK | 0o777, b"busybox")
    assert stat.S_ISCHR(found["dev/console"][0])
    names = list(found)
    assert names.index("a") < names.index("a/b") < names.index("a/b/c"), "folders come first"


def test_same_input_same_bytes() -> None:
    def make() -> bytes:
        archive = CpioArchive()
        archive.file("x", b"1")
        return archive.to_bytes()

    assert make() == make()


def test_init_is_a_valid_script() -> None:
    subprocess.run(["busybox", "sh", "-n", str(INIT)], check=True)
    first = Path(INIT).read_text().splitlines()[0]
    assert first == "#!/bin/busybox sh"
