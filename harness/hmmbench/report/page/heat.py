# SPDX-License-Identifier: GPL-2.0-or-later
"""Coverage as a table: rows are operations, columns mapping kind and residency."""

from __future__ import annotations

import math
from dataclasses import dataclass

from hmmbench.model.belief import Residency
from hmmbench.model.cells import (
    GROUPS,
    MAPPINGS,
    ORACLES,
    RESIDENCIES,
    ROWS,
    Coverage,
    impossible,
    oracles_of,
)

#: Steps of the colour scale.
STEPS = 5


@dataclass(frozen=True)
class Cell:
    """`style`: m1..m5 met, empty, never.  `title`: the cell in words."""

    style: str
    text: str
    title: str


@dataclass(frozen=True)
class Row:
    name: str
    first_of_group: str
    group_size: int
    cells: tuple[Cell, ...]
    oracles: tuple[Cell, ...]


@dataclass(frozen=True)
class Heat:
    """`kinds`: (name, number of columns); `columns`: (residency, first of its kind)."""

    kinds: tuple[tuple[str, int], ...]
    columns: tuple[tuple[str, bool], ...]
    oracles: tuple[str, ...]
    rows: tuple[Row, ...]
    met: int
    possible: int

    @property
    def percent(self) -> int:
        return math.floor(100 * self.met / self.possible) if self.possible else 0


def short(n: int) -> str:
    """A count in at most four characters."""
    for limit, unit in ((10**9, "G"), (10**6, "M"), (10**3, "k")):
        if n >= limit:
            value = n / limit
            return f"{value:.1f}{unit}" if value < 9.95 else f"{value:.0f}{unit}"
    return str(n)


def heat(coverage: Coverage) -> Heat:
    """The table of what was met; columns that nothing can meet are left out."""
    columns: list[tuple[int, Residency]] = []
    kinds: list[tuple[str, int]] = []
    for kind, name in MAPPINGS.items():
        mine = [
            at for at in Residency if any(not impossible(row, kind, at) for row in ROWS)
        ]
        columns += [(kind, at) for at in mine]
        kinds.append((name, len(mine)))
    top = max([*coverage.cells.values(), 2])
    most = max([*coverage.rows.values(), 2])
    rows: list[Row] = []
    met = possible = 0
    for group, names in GROUPS.items():
        for k, row in enumerate(names):
            cells = []
            for kind, at in columns:
                cell = _cell(coverage, row, kind, at, top)
                possible += cell.style != "never"
                met += cell.style not in ("never", "empty")
                cells.append(cell)
            rows.append(
                Row(row, group if k == 0 else "", len(names), tuple(cells),
                    tuple(_judged(coverage, row, oracle, most) for oracle in ORACLES))
            )  # fmt: skip
    heads = []
    last = None
    for kind, at in columns:
        heads.append((RESIDENCIES[at], kind != last))
        last = kind
    return Heat(tuple(kinds), tuple(heads), ORACLES, tuple(rows), met, possible)


def _cell(coverage: Coverage, row: str, kind: int, at: Residency, top: int) -> Cell:
    n = coverage.cells.get((row, kind, int(at)), 0)
    where = f"{row} \N{MIDDLE DOT} {MAPPINGS[kind]} \N{MIDDLE DOT} {RESIDENCIES[at]}"
    if n:
        return Cell(_step(n, top), short(n), f"{where}: {n} operations")
    why = impossible(row, kind, at)
    if why:
        return Cell("never", "", f"{where}: impossible, {why}")
    return Cell("empty", "", f"{where}: not met")


def _judged(coverage: Coverage, row: str, oracle: str, top: int) -> Cell:
    where = f"{row} \N{MIDDLE DOT} {oracle} oracle"
    if oracle not in oracles_of(row):
        return Cell("never", "", f"{where}: not its subject")
    n = coverage.judged(oracle, row)
    if n:
        return Cell(_step(n, top), short(n), f"{where}: {n} operations judged")
    return Cell("empty", "", f"{where}: nothing judged")


def _step(n: int, top: int) -> str:
    """Logarithmic: the first meeting matters more than the thousandth."""
    return f"m{1 + min(STEPS - 1, int(STEPS * math.log(n) / math.log(max(top, 2))))}"
