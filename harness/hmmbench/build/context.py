# SPDX-License-Identifier: GPL-2.0-or-later
"""What every build step is handed: how to run programs, show progress and name logs."""

from __future__ import annotations

from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from hmmbench.base import host, paths
from hmmbench.base.ui import Ui
from hmmbench.build import cache
from hmmbench.build.apt import Mirror, host_mirror
from hmmbench.build.programs import Programs


@dataclass
class Context:
    ui: Ui
    programs: Programs = field(default_factory=Programs)
    #: ask the archive for newer versions, and build those
    update: bool = False
    jobs: int = field(default_factory=host.cpus)

    def log(self, name: str) -> Path:
        """The log of a stage. It holds the last run only: the one that can still be repeated."""
        path = paths.cache_dir("logs") / f"{name}.log"
        path.unlink(missing_ok=True)
        return path

    def lock(self, name: str, what: str) -> AbstractContextManager[None]:
        """Be alone at a work folder; the user is told of a wait, and may interrupt it."""
        return cache.lock(
            name,
            waiting=lambda: self.ui.say(f"another process builds {what}; waiting for it"),
            check=self.programs.check,
        )

    @cached_property
    def mirror(self) -> Mirror:
        """Found when first needed: a warm cache needs no apt, and not every host has it."""
        return host_mirror()
