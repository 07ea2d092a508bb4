# SPDX-License-Identifier: GPL-2.0-or-later
"""Where a schedule may hold a CPU, for any driver: found from symbols and relocations.

- functions(): every function of a module
- kernel_functions(): what HMM drivers call in the kernel, and what the kernel calls them back by
- call_sites(): calls of a module to locks, waits, wake-ups, look-ups, memory management and DMA,
  and to what gives out names or takes them back
- gaps(): where a module has looked at the CPU's page table and not yet taken the lock under which
  it asks whether that still holds
- relocks(): where it has let go of a lock, and is to take one again; late_gaps(): those of them
  that come after such a look
- seams(): where it has looked something up, has given out a name or taken one back, or is about
  to take any lock
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum

from hmmbench.symbols import elf
from hmmbench.symbols.table import Symbol, SymbolTable, is_init, plain


class Kind(StrEnum):
    """What a called function does."""

    LOCK = "lock"
    UNLOCK = "unlock"
    WAIT = "wait"
    WAKE = "wake"
    MM = "mm"
    DMA = "dma"
    LOOKUP = "lookup"
    NAME = "name"


#: By the callee's name; the first that matches decides.
_KINDS = (
    (Kind.LOCK, re.compile(
        r"(mutex|ww_mutex|rt_mutex|_raw_spin|_raw_read|_raw_write|queued_\w+|folio|page|__folio)"
        r"_(try)?lock(_(?!unlock)\w+)?|lock_page\w*|down(_(?!grade)\w+)?|(percpu_)?down_\w+"
        r"|__mutex_lock\w*|__srcu_read_lock|__rcu_read_lock|rtnl_lock|dma_resv_lock\w*"
        r"|drm_modeset_lock\w*|drm_dev_enter"
    )),
    (Kind.UNLOCK, re.compile(
        r"(mutex|ww_mutex|rt_mutex|_raw_spin|_raw_read|_raw_write|queued_\w+|folio|page|__folio)"
        r"_unlock\w*|unlock_page|up|(percpu_)?up_(read|write)\w*|downgrade_write"
        r"|__srcu_read_unlock|__rcu_read_unlock|rtnl_unlock|drm_modeset_unlock\w*|drm_dev_exit"
    )),
    (Kind.WAKE, re.compile(
        r"__wake_up\w*|wake_up_\w+|try_to_wake_up|swake_up\w*|complete(_all)?|kick_\w+"
        r"|(mod_|queue_|__queue_)(delayed_|rcu_)?work(_\w+)?|kthread_(mod_|queue_)\w+"
        r"|(mod_timer|add_timer|hrtimer_start)\w*|dma_fence_signal\w*|call_rcu\w*|call_srcu"
        r"|__tasklet_(hi_)?schedule|enable_irq|irq_wake_thread|drm_sched_wakeup\w*|eventfd_signal\w*"
    )),
    (Kind.WAIT, re.compile(
        r"schedule(_\w+)?|io_schedule\w*|wait_\w+|__wait_\w+|prepare_to_(s)?wait\w*|finish_(s)?wait"
        r"|(__)?folio_wait_\w+|flush_\w*work\w*|__flush_workqueue|flush_delayed_work|drain_workqueue"
        r"|(cancel|disable)_(delayed_)?work_sync|destroy_workqueue|synchronize_\w+|rcu_barrier"
        r"|srcu_barrier|kthread_(stop|flush_\w+|cancel_\w+)|m?sleep(_\w+)?|usleep_range\w*"
        r"|(del_timer|timer_delete|timer_shutdown)_sync|hrtimer_cancel|dma_fence_(default_)?wait\w*"
        r"|disable_irq|free_irq|pci_free_irq|tasklet_kill|dma_resv_wait\w*|out_of_line_wait_\w+"
    )),
    (Kind.DMA, re.compile(
        r"dma_(un)?map_\w+|dma_(alloc|free)_\w+|dma_pool_(alloc|free)|dma_sync_\w+|dma_iova_\w+"
        r"|__dma_sync_\w+|(iommu|hmm_dma)_(un)?map\w*|dma_vmap\w*|p2pdma_\w+|pci_p2pdma_\w+"
    )),
    (Kind.MM, re.compile(
        r"hmm_\w+|migrate_\w+|(__)?mmu_(interval_)?notifier_\w+|mmu_interval_read_begin"
        r"|make_device_exclusive\w*|(get|pin|unpin)_user_pages?\w*|fixup_user_fault"
        r"|handle_mm_fault|(lock_mm_and_)?find_vma\w*|mm(get|put|drop)\w*|__mmdrop|get_task_mm"
        r"|zone_device_\w+|mem(re|un)map_pages|(__)?alloc_(pages|folio)\w*|folio_alloc\w*"
        r"|vma_alloc_folio\w*|(__)?free_pages\w*|__folio_put|folio_(mark|set|add|isolate)_\w+"
        r"|set_page_dirty\w*|mark_page_accessed|vm_(insert|map)_\w+|vmf_insert_\w+|remap_pfn_range"
        r"|unmap_mapping_\w+|zap_\w+|do_mmap|vm_mmap|vm_munmap|follow_pfn\w*|walk_page_\w+"
        r"|drm_gpusvm_\w+|drm_pagemap_\w+|kthread_(un)?use_mm|madvise_\w+|lru_add_drain\w*"
    )),
    (Kind.LOOKUP, re.compile(
        r"xa_(load|find(_after)?|get_mark)|(__)?xas_(load|find\w*|next)|idr_(find|get_next\w*)"
        r"|radix_tree_(lookup|gang_lookup|next_chunk)\w*|(mas|mt)_(find|next|prev|walk)\w*|mtree_load"
        r"|_find_(first|next|last)_\w*bit|bitmap_find_\w+|rb_(first|next|last|prev)\w*"
        r"|\w+_iter_(first|next)|drm_gem_objects?_lookup|fget\w*|find_get_\w+"
        r"|drm_(syncobj|gpuva|gpuvm_bo)_find\w*"
    )),
    # Under which others find something, or may have something of their own from now on.
    (Kind.NAME, re.compile(
        r"(__)?xa_(store|erase|cmpxchg|insert|alloc|reserve)\w*|xas_store|ida_(alloc\w*|free)"
        r"|idr_(alloc\w*|remove|replace)|radix_tree_(insert|delete)\w*|rb_(insert_color|erase)\w*"
        r"|__rb_(insert_augmented|erase_color)|interval_tree_(insert|remove)|fd_install"
        r"|drm_gem_handle_(create|delete)|drm_gpuva_(insert|remove)|(mtree|mas)_(store|erase)\w*"
        r"|drm_mm_(insert|remove|reserve)_node\w*"
    )),
)  # fmt: skip

#: Kernel functions that HMM drivers call, or that call their notifiers; those that a kernel lacks
#: are left out, and names differ from version to version (make_device_exclusive_range until 6.14,
#: dma_map_phys since 6.18).
_KERNEL = re.compile(
    r"hmm_range_fault\w*|migrate_(vma_(setup|pages|finalize)|device_(range|pfns|pages|finalize))"
    r"|make_device_exclusive\w*|mmu_interval_(read_begin|notifier_(insert|insert_locked|remove))"
    r"|__mmu_notifier_invalidate_range_(start|end)"
    r"|__mmu_notifier_arch_invalidate_secondary_tlbs|__mmu_notifier_release"
    r"|zone_device_(page|folio)_init|dma_(un)?map_(page_attrs|phys)|hmm_dma_(un)?map_pfn"
)


@dataclass(frozen=True)
class CallSite:
    """A call in a module.

    address  -- of the call instruction
    returns  -- of the instruction after it; None for a jump out of the function's end
    place    -- "function+0x12 [module]", that is `address` by name
    """

    address: int
    returns: int | None
    callee: str
    kind: Kind
    place: str


def kind_of(callee: str) -> Kind | None:
    """What the function of this name does, if it is of interest."""
    return next((kind for kind, pattern in _KINDS if pattern.fullmatch(callee)), None)


def functions(table: SymbolTable, module: str) -> list[Symbol]:
    """All functions of a module ("": of the kernel), each once, in order of address.

    The halves that the compiler put aside as seldom executed are no functions of their own.
    """
    found: dict[int, Symbol] = {}
    for symbol in table:
        if symbol.module == module and symbol.function and ".cold" not in symbol.name:
            found.setdefault(symbol.address, symbol)
    return list(found.values())


def kernel_functions(table: SymbolTable) -> list[Symbol]:
    """The functions of the kernel at which drivers for HMM meet it, as far as it has them."""
    return [s for s in functions(table, "") if _KERNEL.fullmatch(plain(s.name))]


def call_sites(
    table: SymbolTable, module: str, file: elf.Elf, sections: Mapping[str, int]
) -> list[CallSite]:
    """Of the functions that kind_of() knows, in order of address.

    From the module's relocations, so a call through a pointer is not among them, nor what the
    compiler put inline.
    """
    return sorted(_calls(table, module, file, sections), key=lambda call: call.address)


@dataclass(frozen=True)
class Call:
    """Any direct call in a module.

    returns -- address
    callee  -- its name, and `to` its address if it is in the module; 0
    """

    returns: int
    callee: str
    to: int

    @property
    def address(self) -> int:
        return self.returns - _CALL_BYTES


#: Locks that are not taken to look at an address space, or shared.
_EXCLUSIVE = re.compile(
    r"(ww_|rt_)?mutex_(try)?lock\w*|_raw_(spin|write)_(try)?lock\w*|(percpu_)?down_write\w*"
)
#: Of exclusive locks.
_GIVEN_BACK = re.compile(
    r"(ww_|rt_)?mutex_unlock\w*|_raw_(spin|write)_unlock\w*|(percpu_)?up_write\w*"
)

#: What begins a look that is asked about later: mmu_interval_read_retry(), which is inline; and the
#: look itself, before which a driver may take its lock for something else.
_BEGINS, _LOOKS = "mmu_interval_read_begin", "hmm_range_fault"


def calls_by_function(
    table: SymbolTable, module: str, file: elf.Elf, sections: Mapping[str, int]
) -> dict[int, list[Call]]:
    """Address of each function of the module -> its direct calls, in order of address."""
    starts = {symbol.address: symbol for symbol in functions(table, module)}
    found: dict[int, list[Call]] = {}
    for call in sorted(_direct(starts, file, sections), key=lambda call: call.returns):
        inside = table.lookup(call.address)
        # Not those of what the compiler put aside, or of no function at all.
        if inside is not None and inside[0].address in starts:
            found.setdefault(inside[0].address, []).append(call)
    return found


def gaps(calls: Mapping[int, list[Call]]) -> list[int]:
    """Behind what unlocks the address space, between the begin of a look and an exclusive lock.

    Whoever is left alone there has seen what any change may come to now.  While the mmap lock is
    held most of them cannot, and a hold before that lets them come too early (docs/exact.md has
    figures).
    """
    unlocking = {
        name for name, made in calls.items()
        if any(kind_of(call.callee) is Kind.UNLOCK for call in made)
    }  # fmt: skip
    found = []
    for made in calls.values():
        looking = False
        for call in made:
            looking |= call.callee.startswith((_BEGINS, _LOOKS))
            if looking and _EXCLUSIVE.fullmatch(call.callee):
                looking = False
            if looking and (kind_of(call.callee) is Kind.UNLOCK or call.to in unlocking):
                found.append(call.returns)
    return found


def relocks(calls: Mapping[int, list[Call]]) -> list[int]:
    """Behind what lets go of an exclusive lock, in functions that then take one again.

    What was asked under the first may not hold under the second.  Taken in order of address, as the
    compiler laid the code out: branches that never follow one another may make one, and what a loop
    takes again at its head is none.
    """
    return [at for made in calls.values() for at in _relocks(made)]


def late_gaps(calls: Mapping[int, list[Call]]) -> list[int]:
    """Those that come after a look at an address space in the same function, of locks taken since.

    A hold in the gap before the first lock would use up what is to happen here.  Of drivers that
    ask under a shared lock there are none.
    """
    found: list[int] = []
    for made in calls.values():
        begun = [n for n, call in enumerate(made) if call.callee.startswith(_BEGINS)]
        looked = [n for n, call in enumerate(made) if call.callee.startswith(_LOOKS)]
        since = made[next((n for n in looked if n > begun[0]), begun[0]) :] if begun else []
        locked = next((n for n, call in enumerate(since) if _EXCLUSIVE.fullmatch(call.callee)), 0)
        found += _relocks(since[locked:])
    return found


def _relocks(made: Iterable[Call]) -> Iterator[int]:
    let_go: list[int] = []
    for call in made:
        if _GIVEN_BACK.fullmatch(call.callee):
            let_go.append(call.returns)
        elif _EXCLUSIVE.fullmatch(call.callee):
            yield from let_go
            let_go = []


def seams(calls: Mapping[int, list[Call]]) -> list[int]:
    """Between two steps that a driver may have taken for one.

    Behind what looks something up, and what gives out a name or takes one back; at each call that
    locks, where what comes before it has been decided, and behind the call before that (where the
    function begins if there is none).
    """
    found = []
    for start, made in calls.items():
        before = start
        for call in made:
            kind = kind_of(call.callee)
            if kind is Kind.LOCK:
                found += [before, call.address]
            elif kind in (Kind.LOOKUP, Kind.NAME):
                found.append(call.returns)
            before = call.returns
    return list(dict.fromkeys(found))


def _direct(
    starts: Mapping[int, Symbol], file: elf.Elf, sections: Mapping[str, int]
) -> Iterator[Call]:
    """Those to other files by their relocations, those within a section by where they lead."""
    for base, code, outside in _code(file, sections):
        at = code.find(_CALL)
        while 0 <= at <= len(code) - _CALL_BYTES:
            # A byte in the middle of another instruction leads nowhere that begins a function.
            to = base + at + _CALL_BYTES + struct.unpack_from("<i", code, at + 1)[0]
            if at in outside:
                yield Call(base + at + _CALL_BYTES, outside[at], 0)
            elif to in starts:
                yield Call(base + at + _CALL_BYTES, starts[to].name, to)
            at = code.find(_CALL, at + 1)


def _calls(
    table: SymbolTable, module: str, file: elf.Elf, sections: Mapping[str, int]
) -> Iterator[CallSite]:
    for base, code, outside in _code(file, sections):
        for at, callee in outside.items():
            kind = kind_of(callee)
            opcode = code[at : at + 1]
            if kind is None or opcode not in (_CALL, _JMP):
                continue
            address = base + at
            yield CallSite(
                address, address + _CALL_BYTES if opcode == _CALL else None, callee, kind,
                table.name(address),
            )  # fmt: skip


def _code(
    file: elf.Elf, sections: Mapping[str, int]
) -> Iterator[tuple[int, bytes, dict[int, str]]]:
    """Sections of code that stay: address, content, and of what leads out of them where it is and
    the name of what it leads to: calls and jumps, and other instructions that look alike here."""
    symbols = file.symbols()
    for section, relocations in file.relocations():
        base = sections.get(section.name)
        if base is None or is_init(section.name) or not section.flags & elf.SHF_EXECINSTR:
            continue
        # Older assemblers write PC32 for a call, too: the instruction decides.
        outside = {
            r.offset - 1: symbols[r.symbol].name for r in relocations
            if r.kind in (elf.R_X86_64_PLT32, elf.R_X86_64_PC32) and r.addend == -4 and r.offset
        }  # fmt: skip
        yield base, file.content(section), outside


_CALL, _JMP = b"\xe8", b"\xe9"
_CALL_BYTES = 5


#: Kinds of places within a module where a schedule may hold a CPU, found from its calls.  A new one
#: is a function and its line here; who holds there is in example/schedules.py.
KINDS: dict[str, Callable[[Mapping[int, list[Call]]], list[int]]] = {
    "gaps": gaps, "late_gaps": late_gaps, "relocks": relocks, "seams": seams,
}  # fmt: skip
