# SPDX-License-Identifier: GPL-2.0-or-later
"""Operations from outside of the bench: a driver's developer adds one for an ioctl of theirs.

A family from outside is two files beside one another, NAME.py as those of hmmbench/model/ops and
NAME.c as those of guest-driver/user/agent/ops.  They are found in the folders that --operations
names, and where a package offers a module as entry point of the group "hmmbench.operations".
"""

from __future__ import annotations

import os
from importlib.metadata import entry_points
from importlib.util import find_spec
from pathlib import Path

from hmmbench.base.errors import UsageError

#: Folders, as PATH has them; --operations sets it, and processes of ours inherit it.
VARIABLE = "HMMBENCH_OPERATIONS"
#: Of the entry points of packages.
GROUP = "hmmbench.operations"


def families() -> list[Path]:
    """The Python files of all families, each folder's in the order of names.

    Raises UsageError if a folder is none or has no family, if there are two of one name, and if
    an entry point names no module.
    """
    found: list[Path] = []
    for name in os.environ[VARIABLE].split(os.pathsep) if os.environ.get(VARIABLE) else ():
        folder = Path(name)
        files = sorted(folder.glob("*.py")) if folder.is_dir() else []
        if not files:
            raise UsageError(
                f"--operations {name}: no folder with families of operations",
                "A family is NAME.py with its operations and NAME.c with what the agent does; see "
                "docs/writing-tests.md.",
            )
        found += files
    for entry in entry_points(group=GROUP):
        try:
            spec = find_spec(entry.module)
        except ImportError:
            spec = None
        if spec is None or spec.origin is None:
            raise UsageError(f"entry point {entry.name} of {GROUP}: no module {entry.module}")
        found.append(Path(spec.origin))
    stems = [file.stem for file in found]
    for stem in stems:
        if stems.count(stem) > 1:
            raise UsageError(f"two families of operations are called {stem}", "Rename one.")
    return found


def agent_files() -> list[Path]:
    """What the agent needs of them: their C files.

    Raises UsageError for a family without one.
    """
    files = [file.with_suffix(".c") for file in families()]
    for file in files:
        if not file.is_file():
            raise UsageError(
                f"{file} is missing: what the agent does for the operations of {file.stem}.py"
            )
    return files
