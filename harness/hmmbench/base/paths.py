# SPDX-License-Identifier: GPL-2.0-or-later
"""Where things lie: the project's own sources, and the cache.

Nothing is written outside the cache and the folders a command names as its output.
"""

from __future__ import annotations

import os
from pathlib import Path

from hmmbench.base.errors import EnvironmentFailure


def project_root() -> Path:
    """The checkout, found from this file: sources of device, driver and agent are beside it."""
    root = Path(__file__).resolve().parents[3]
    if not (root / "pyproject.toml").is_file():
        raise EnvironmentFailure(
            f"{root} is not a checkout of hmmbench",
            "Run the launcher ./hmmbench from the checkout; an installed copy alone has no sources"
            " to build from.",
        )
    return root


def cache_root() -> Path:
    """HMMBENCH_CACHE, else the user's cache folder."""
    own = os.environ.get("HMMBENCH_CACHE")
    if own:
        return Path(own).expanduser().resolve()
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "hmmbench"


def cache_dir(*parts: str) -> Path:
    """A folder in the cache, made if missing."""
    path = cache_root().joinpath(*parts)
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise EnvironmentFailure(
            f"cannot make the cache folder {path}: {error.strerror}",
            "Set HMMBENCH_CACHE to a folder you may write to, with about 6 GB free.",
        ) from error
    return path


def device_sources() -> Path:
    return project_root() / "qemu-device"


def driver_sources() -> Path:
    return project_root() / "guest-driver"


def user_sources() -> Path:
    """Agent, user library, GPU kernels and the sessions' program."""
    return driver_sources() / "user"
