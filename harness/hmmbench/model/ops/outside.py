# SPDX-License-Identifier: GPL-2.0-or-later
"""Operations from outside of the bench: their Python modules are loaded and looked at."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

from hmmbench.base import outside
from hmmbench.base.errors import UsageError
from hmmbench.model.ops.base import Operation

#: Numbers below are the bench's own.
FIRST = 256
#: Their modules are called this and the family's name.
MODULE = "hmmbench_operations_"
#: The wire has 16 bits for them.
END = 1 << 16


def operations(own: Iterable[Operation]) -> list[Operation]:
    """Of all families from outside; `own`: those that the bench has.

    Raises UsageError if a file is no such family, or has a number or a name that is another's.
    """
    found: list[Operation] = []
    own = tuple(own)
    names = {operation.name for operation in own}
    rows = {row for operation in own for row in operation.rows}
    numbers: set[int] = set()
    for file in outside.families():
        for operation in _load(file):
            named = getattr(operation, "number", None), getattr(operation, "name", None)
            if not isinstance(named[0], int) or not isinstance(named[1], str):
                raise UsageError(f"{file}: {type(operation).__name__} has no number, or no name")
            where = f"{file}: operation {operation.name!r}"
            if operation.weight and operation.since == 1:
                raise UsageError(
                    f"{where} would never be drawn: it has a weight, and `since` is 1",
                    "Grammar 1 is what it was; `since` is the newest version plus one.",
                )
            taken = rows & set(operation.rows)
            if taken:
                raise UsageError(f"{where}: the row {min(taken)!r} is another's")
            rows |= set(operation.rows)
            if not FIRST <= operation.number < END or operation.number in numbers:
                raise UsageError(
                    f"{where} has number {operation.number}",
                    f"Numbers from outside are {FIRST} to {END - 1}, each of one operation.",
                )
            if operation.name in names:
                raise UsageError(f"{where}: there is one of that name already")
            numbers.add(operation.number)
            names.add(operation.name)
            found.append(operation)
    return found


def _load(file: Path) -> tuple[Operation, ...]:
    name = f"{MODULE}{file.stem}"
    if name not in sys.modules:
        spec = spec_from_file_location(name, file)
        if spec is None or spec.loader is None:
            raise UsageError(f"{file}: Python cannot load it")
        module = module_from_spec(spec)
        sys.modules[name] = module
        try:
            spec.loader.exec_module(module)
        except (Exception, SystemExit) as error:
            del sys.modules[name]
            raise UsageError(f"{file}: {type(error).__name__}: {error}") from error
    listed = getattr(sys.modules[name], "OPERATIONS", None)
    if not isinstance(listed, tuple) or not all(isinstance(o, Operation) for o in listed):
        raise UsageError(
            f"{file} has no OPERATIONS", "It is a tuple of instances of Operation; see mapping.py."
        )
    return listed
