# SPDX-License-Identifier: GPL-2.0-or-later
"""Names and addresses of the guest's kernel and modules.

    table = symbols.of_guest(artifacts, sections)
    table.name(0xffffffff81234567)          "hmm_range_fault+0x27"
    table.address("hmm_range_fault+0x27")   0xffffffff81234567

    symbols.points(artifacts, sections)     where a schedule may hold a CPU

The kernel lies where its System.map says (spec.py boots it with nokaslr); a module lies where the
guest put its sections (guest.sections, kept with each snapshot).
"""

from __future__ import annotations

from hmmbench.symbols.elf import ElfError
from hmmbench.symbols.guest import Places, Sections, module_files, of_guest, points, sections
from hmmbench.symbols.points import CallSite, Kind, call_sites, functions, kernel_functions
from hmmbench.symbols.table import Symbol, SymbolTable

__all__ = [
    "CallSite", "ElfError", "Kind", "Places", "Sections", "Symbol", "SymbolTable", "call_sites",
    "functions", "kernel_functions", "module_files", "of_guest", "points", "sections",
]  # fmt: skip
