# SPDX-License-Identifier: GPL-2.0-or-later
"""Compiler and linker for what runs on the GPU's lanes: stock clang and lld, for riscv64."""

from __future__ import annotations

import shutil
import subprocess
from dataclasses import dataclass

from hmmbench.base.errors import EnvironmentFailure

_VERSIONS = ("", *(f"-{n}" for n in range(22, 13, -1)))


@dataclass(frozen=True)
class Tools:
    """Paths of compiler and linker."""

    clang: str
    lld: str

    @staticmethod
    def find() -> Tools:
        """The installed ones; EnvironmentFailure if one is not."""
        clang, lld = _tool("clang"), _tool("ld.lld")
        if clang and lld:
            return Tools(clang, lld)
        missing = [*([] if clang else ["clang"]), *([] if lld else ["lld"])]
        raise EnvironmentFailure(
            f"not installed: {' and '.join(missing)}", f"apt-get install {' '.join(missing)}"
        )

    def version(self) -> str:
        """The compiler's own first line about itself."""
        done = subprocess.run(
            [self.clang, "--version"], capture_output=True, text=True, check=False
        )
        return done.stdout.partition("\n")[0]


def _tool(name: str) -> str | None:
    """The path of a program, also where only a name with a version is installed."""
    return next((path for v in _VERSIONS if (path := shutil.which(name + v))), None)
