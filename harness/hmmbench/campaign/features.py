# SPDX-License-Identifier: GPL-2.0-or-later
"""What an execution reached, as a set of numbers: what another one has not is new.

cell    -- operation x kind of mapping x where the page was (model/cells.py)
pair    -- two operations, one behind the other on a page, and where that was (model/trail.py)
end     -- how an operation ended
oracle  -- what the oracles had to do: how many words they could not decide, promises tried
device  -- the device's counters: how often, roughly
driver  -- those of the driver that is tested, if it has any
code    -- branches of driver and HMM, where the kernel counts them (`run --coverage`)
beside  -- in which function of driver or HMM one CPU stood while another stopped in one, an engine
           of the device stepped, or its interrupt came
met     -- two accesses to the same memory that an aimed schedule tried: a CPU was held at the one
           while another passed the other

All of it is the execution's own: on an exact machine it repeats, whatever the host does.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from typing import Any

import numpy as np

from hmmbench.example.judge import Verdict
from hmmbench.example.target import Execution
from hmmbench.model.trail import Trail
from hmmbench.symbols import SymbolTable, functions, kernel_functions
from hmmbench.vm.decisions import What

KINDS = ("cell", "pair", "end", "oracle", "device", "driver", "code", "beside", "met")

#: Bits of a number that tell features of a kind apart; the kind stands above them.
BITS = 40

#: With what a slice of a CPU ends, which says where that stands from then on.
_ENDS = (What.OVER, What.HALTED, What.PAUSED, What.AT_POINT, What.STANDS)


def of(
    trail: Trail, verdict: Verdict, execution: Execution, code: Functions | None = None
) -> frozenset[int]:
    """Of one execution: what it did, and what its machine showed; `code`: of which functions."""
    seen = execution.seen
    found = [
        *(("cell", one) for one in trail.cells), *(("pair", one) for one in trail.pairs),
        *(("end", one) for one in trail.ends),
        *(("oracle", one) for one in _sizes(_oracles(verdict))),
    ]  # fmt: skip
    if seen is not None:
        found += [("device", one) for one in _sizes(seen.device)]
        found += [("driver", one) for one in _sizes(seen.driver)]
        found += [("code", (one,)) for one in seen.code]
        if seen.log is not None and code is not None:
            found += [("beside", one) for one in code.beside(seen.log)]
    if code is not None:
        found += [("met", (code.table.name(a), code.table.name(b))) for a, b in execution.met]
    return frozenset(number(kind, one) for kind, one in found)


@lru_cache(maxsize=1 << 17)
def number(kind: str, what: tuple[Any, ...]) -> int:
    """The same in every process, and in a corpus."""
    text = "\t".join(str(int(one) if isinstance(one, int) else one) for one in what)
    digest = hashlib.blake2b(text.encode(), digest_size=BITS // 8).digest()
    return KINDS.index(kind) << BITS | int.from_bytes(digest, "little")


def by_kind(features: Iterable[int]) -> dict[str, int]:
    """How many of each."""
    counts = Counter(KINDS[one >> BITS] for one in features)
    return {kind: counts[kind] for kind in KINDS if counts[kind]}


def _oracles(verdict: Verdict) -> dict[str, int]:
    names = ("undecided", "promises", "promises_tried", "pages_read")
    return {name: getattr(verdict, name) for name in names} | {"refused": len(verdict.violations)}


def _sizes(counts: Mapping[str, int]) -> Iterator[tuple[str, int, int]]:
    """By halves of powers of two: 1, 2, 3, 4, 6, 8, 12, ..."""
    for name, count in counts.items():
        if count > 0:
            bits = count.bit_length()
            yield name, bits, count >> max(0, bits - 2) & 1


class Functions:
    """Those of the modules, and of the kernel those at which drivers for HMM meet it."""

    def __init__(self, table: SymbolTable) -> None:
        self.table = table
        modules = sorted({symbol.module for symbol in table if symbol.module})
        found = [*kernel_functions(table), *(f for name in modules for f in functions(table, name))]
        found.sort(key=lambda symbol: symbol.address)
        self.names = [f"{s.name} [{s.module}]" if s.module else s.name for s in found]
        self._begins = np.array([s.address for s in found], np.uint64)
        self._ends = np.array([s.address + s.size for s in found], np.uint64)

    def beside(self, log: np.ndarray[Any, Any]) -> set[tuple[str, str]]:
        """Pairs: where a CPU stood, and what was done meanwhile.

        A CPU stands where its slice ended until it is let run again: the log has each end.
        """
        if not self.names or not len(log):
            return set()
        ends = np.isin(log["what"], _ENDS)
        at = np.where(ends, self._numbers(log["pc"]), -1)
        done: list[tuple[np.ndarray[Any, Any], list[str]]] = [(at, self.names)]
        for what, words in ((What.ENGINE, "engine {}"), (What.IRQ, "interrupts {}")):
            who = np.where(log["what"] == what, log["who"].astype(np.int64), -1)
            done.append((who, [words.format(n) for n in range(256)]))
        found: set[tuple[str, str]] = set()
        for cpu in np.unique(log["who"][ends]):
            mine = ends & (log["who"] == cpu)
            # The function of this CPU's latest slice, at each entry.
            latest = np.maximum.accumulate(np.where(mine, np.arange(len(log)), -1))
            stands = np.where(latest >= 0, at[latest], -1)
            for others, names in done:
                both = (stands >= 0) & (others >= 0) & ~mine
                met = np.unique(np.stack([stands[both], others[both]]), axis=1)
                found |= {(self.names[a], names[b]) for a, b in met.T.tolist()}
        return found

    def _numbers(self, pcs: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        """Of the functions that these addresses are in; -1: none of them."""
        found = np.searchsorted(self._begins, pcs, "right").astype(np.int64) - 1
        inside = (found >= 0) & (pcs < self._ends[np.maximum(found, 0)])
        return np.where(inside, found, -1)
