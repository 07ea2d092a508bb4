# SPDX-License-Identifier: GPL-2.0-or-later
"""SSH into the guest: keys that belong to this cache alone, and dropbear with its libraries.

The guest listens on a forwarded port of the loopback interface only; even so no key is shared
between installations.
"""

from __future__ import annotations

import re
import shutil
from dataclasses import dataclass
from pathlib import Path

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from hmmbench.base import paths
from hmmbench.build import cache
from hmmbench.build.context import Context

SERVER_DIRS = "/usr/sbin:/usr/bin:/sbin:/bin"


@dataclass(frozen=True)
class Keys:
    #: the bench's private key, OpenSSH format
    client: Path
    #: its line for authorized_keys
    public: str
    #: the guest's host key, dropbear's format
    host: Path


def server() -> Path | None:
    """dropbear on this host."""
    found = shutil.which("dropbear", path=SERVER_DIRS)
    return Path(found) if found else None


def keys(ctx: Context) -> Keys | None:
    """Made once for each cache; None where the host has no dropbear."""
    maker = shutil.which("dropbearkey", path=SERVER_DIRS)
    if maker is None:
        return None
    folder = paths.cache_dir("ssh")
    folder.chmod(0o700)
    client, public, host = folder / "id_ed25519", folder / "id_ed25519.pub", folder / "host_key"
    with cache.lock("ssh"):
        if not (client.is_file() and public.is_file()):
            private = Ed25519PrivateKey.generate()
            cache.write_atomically(
                client,
                private.private_bytes(
                    serialization.Encoding.PEM,
                    serialization.PrivateFormat.OpenSSH,
                    serialization.NoEncryption(),
                ).decode(),
            )
            cache.write_atomically(
                public,
                private.public_key()
                .public_bytes(serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH)
                .decode()
                + " hmmbench\n",
            )
        if not host.is_file():
            fresh = folder / "host_key.new"
            fresh.unlink(missing_ok=True)
            ctx.programs.output(
                [maker, "-t", "ed25519", "-f", fresh], what="making the guest's host key"
            )
            fresh.rename(host)
    return Keys(client, public.read_text(), host)


def libraries(ctx: Context, program: Path) -> list[Path]:
    """The shared libraries of a program, its loader among them, as this host has them."""
    text = ctx.programs.output(["ldd", program], what=f"ldd {program}")
    return [Path(found) for found in re.findall(r"(/\S+) \(0x", text)]
