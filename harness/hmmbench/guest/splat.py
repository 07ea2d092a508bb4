# SPDX-License-Identifier: GPL-2.0-or-later
"""Finds in a kernel's console output what a kernel prints only when something is wrong.

A report ("splat") begins with a head line of a known form and takes in the registers, stacks
and consequences printed after it. Heads are recognised at the start of a message only, so
that a driver named "debug" or a boot line about a firmware bug is none.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

#: Lines of one report at most; a longer one is cut, the rest is not taken for another.
MAX_LINES = 400
#: How many functions identify a report.
KEY_FUNCTIONS = 4

# What printk and the console put before a message: level, time, caller (CONFIG_PRINTK_CALLER).
_PREFIX = re.compile(r"^(?:<\d+>)?(?:\[ *\d+\.\d+\] ?)?(?:\[ *[TC]\d+\] ?)?")

_FRAME = re.compile(r"^ *(?:RIP: \d+:)?(\?)? ?([A-Za-z_][\w.]*)\+0x[0-9a-f]+/0x[0-9a-f]+")
_AT_FUNCTION = re.compile(r"\b(?:in|at) ([A-Za-z_][\w.]*)\+0x[0-9a-f]+/0x[0-9a-f]+")

# Functions of the reporting itself, and ways into the kernel: they identify nothing.
_PLUMBING = re.compile(
    r"^(?:__?)?(?:dump_stack.*|show_stack.*|show_regs.*|print_.*|kasan_.*|kfence_.*|kcsan_.*"
    r"|check_region_inline|asan_.*|warn.*|report_bug|handle_bug|exc_.*|asm_.*|do_error_trap"
    r"|die.*|oops_.*|no_context|bad_area.*|page_fault_oops|do_user_addr_fault|panic|vpanic"
    r"|might_resched|might_sleep.*|might_fault|schedule_bug|ubsan_.*|ubsan|lockdep_.*"
    r"|refcount_warn_saturate|bad_page.*|dump_page.*|list_(?:add|del).*_valid.*"
    r"|list_(?:add|del)_.*report|mark_lock.*|lock_acquire.*|lock_release.*|check_.*|validate_chain"
    r"|x64_sys_call|do_syscall_64|entry_SYSCALL.*|ret_from_fork.*|secondary_startup.*"
    r"|irq_exit_rcu|sysvec_.*|common_interrupt|rcu_.*stall.*|rcu_sched_clock_irq|sched_show_task"
    r"|__schedule|schedule(?:_.*)?|mutex_lock.*|down_(?:read|write).*|rt_mutex.*|register_lock_class"
    r"|process_one_work|worker_thread|kthread|wait_for_completion.*|io_schedule.*|kmalloc.*"
    r"|nmi_.*|trigger_.*backtrace.*|watchdog_.*|hrtimer_.*|update_process_times|tick_.*)$"
)


@dataclass(frozen=True)
class _Head:
    kind: str
    pattern: re.Pattern[str]
    # The line only announces the head that follows within a few lines ("refcount_t: ...").
    announces: bool = False


def _head(kind: str, pattern: str, announces: bool = False) -> _Head:
    return _Head(kind, re.compile(pattern), announces)


# The first that matches decides, so the special ones come first.
_HEADS = (
    _head("KASAN", r"BUG: KASAN: "),
    _head("KFENCE", r"BUG: KFENCE: "),
    _head("KCSAN", r"BUG: KCSAN: "),
    _head("KMSAN", r"BUG: KMSAN: "),
    _head("UBSAN", r"UBSAN: "),
    _head(
        "lockdep",
        r"WARNING: (?:possible|inconsistent|suspicious RCU|bad unlock|bad contention|held lock"
        r"|lock held|Nested lock|HARDIRQ|SOFTIRQ|RECLAIM|.*-safe ->|.*lock order)",
    ),
    _head("lockdep", r"INFO: (?:possible |suspicious |trying to register non-static)"),
    _head("lockdep", r"BUG: (?:MAX_|key |.*still (?:has|holds) )|BUG: .*lock held (?:when|at) "),
    _head("lockdep", r"\[ BUG: "),
    _head("hang", r"(?:watchdog: )?BUG: (?:soft lockup|workqueue lockup)"),
    _head("hang", r"(?:watchdog: )?(?:Watchdog detected |NMI watchdog: .*)hard LOCKUP"),
    _head("hang", r"INFO: task .* blocked (?:for more than|in I/O wait)"),
    _head("RCU stall", r"(?:rcu: )?INFO: rcu\w* .*(?:stall|detected expedited)"),
    _head(
        "list corruption",
        r"(?:slab )?list_(?:add|del) corruption|(?:slab )?list_(?:add|del)"
        r" double ",
        announces=True,
    ),
    _head("refcount", r"refcount_t: ", announces=True),
    _head("debug", r"ODEBUG: |DEBUG_LOCKS_WARN_ON\(", announces=True),
    _head("BUG", r"kernel BUG at |BUG: |BUG\(\)!"),
    _head("SLUB", r"BUG \S+ .*: "),
    _head("WARNING", r"WARNING: "),
    _head(
        "Oops",
        r"(?:Oops: )?(?:general protection fault|double fault|stack segment|divide error"
        r"|invalid opcode|int3|bounds|alignment check|control protection fault)\b.*\[#\d",
    ),
    _head("Oops", r"(?:Internal error: )?Oops\b"),
    _head("Oops", r"Unable to handle kernel|Internal error: "),
    _head("Oops", r"(?:Insufficient stack space|kernel stack overflow|corrupted stack end)"),
    _head("panic", r"Kernel panic - not syncing: "),
    _head("leak", r"unreferenced object 0x[0-9a-f]+"),
    _head("leak", r"unregister_netdevice: waiting for |VFS: Busy inodes after unmount"),
)

# After a report that is still going on, these are its consequences and no report of their own.
_CONSEQUENCE = re.compile(
    r"Oops: |Oops\b|Internal error: Oops"
    r"|Kernel panic - not syncing: (?:Fatal exception|.*panic_on_warn|hung_task|softlockup"
    r"|RCU Stall|Attempted to kill init|Fatal hardware|.*corrupted stack)"
    r"|DEBUG_LOCKS_WARN_ON\("
)
_END = re.compile(r"---\[ end (?:trace|Kernel panic)")
# Lines after the end mark in which the consequences of an oops come.
_AFTERMATH = 40
# Lines between an announcing line and its head ("cut here", "kernel BUG at").
_ANNOUNCED = 12


@dataclass(frozen=True)
class Splat:
    """One report.

    title     -- kind and place in one line, without addresses, numbers of processes or times:
                 equal for two sightings of one bug
    functions -- the top of the stack without the reporting's own functions
    text      -- the lines as printed
    """

    kind: str
    title: str
    functions: tuple[str, ...]
    text: str = field(compare=False)
    line: int = field(compare=False)


#: Said once, before a warning that is no report: dma-debug counts up to 7 mappings of a page and
#: takes more for a leak.  A mirror maps a shared page as often as processes do.  What is never
#: given back dma-debug reports when the driver is unbound.
_NO_REPORT = re.compile(r"DMA-API: exceeded \d+ overlapping mappings of cacheline ")


#: What KCSAN says, with both functions; and how a module's function is named.
_RACE = re.compile(r"BUG: KCSAN: ")
_OF_A_MODULE = re.compile(r" \[\w+\]")


def scan(text: str) -> list[Splat]:
    """All reports in a console output, in order."""
    lines = text.splitlines()
    return [
        _splat(kind, lines, first, last)
        for kind, first, last in _regions(lines)
        if not (_excused(lines, first) or _elsewhere(lines[first]))
    ]


def excused(text: str) -> int:
    """How many look like reports, to the kernel as well, and say nothing of a driver."""
    lines = text.splitlines()
    return sum(_excused(lines, first) for _, first, _ in _regions(lines))


def any_in(text: str) -> bool:
    """Whether there is any of a report in it, or the end of one, excused or not."""
    lines = [message(line) for line in text.splitlines()]
    return any(_match(line) or _END.match(line) for line in lines)


def _excused(lines: list[str], first: int) -> bool:
    return bool(first and _NO_REPORT.match(message(lines[first - 1])))


def _elsewhere(line: str) -> bool:
    """A race that KCSAN saw between two functions of the kernel's own, which has many."""
    return bool(_RACE.match(message(line))) and not _OF_A_MODULE.search(line)


def message(line: str) -> str:
    """A console line without the time and what else was put before the message."""
    return _PREFIX.sub("", line.rstrip("\r"), count=1)


def _match(text: str) -> _Head | None:
    return next((head for head in _HEADS if head.pattern.match(text)), None)


def _regions(lines: list[str]) -> Iterator[tuple[str, int, int]]:
    """(kind, first line, end) of each report."""
    open_head: _Head | None = None
    first = limit = 0
    for number, line in enumerate(lines):
        text = message(line)
        if open_head is not None and number >= limit:
            yield open_head.kind, first, limit
            open_head = None
        head = _match(text)
        if head is not None:
            if open_head is not None and _continues(open_head, text, number - first):
                # What was announced has come: from here on it is an ordinary report.
                if open_head.announces:
                    open_head = _Head(open_head.kind, open_head.pattern)
                    limit = max(limit, number + 1 + MAX_LINES)
                continue
            if open_head is not None:
                yield open_head.kind, first, number
            open_head, first = head, number
            limit = number + (_ANNOUNCED if head.announces else MAX_LINES)
        elif open_head is not None and _END.match(text):
            limit = min(limit, number + 1 + _AFTERMATH)
    if open_head is not None:
        yield open_head.kind, first, min(limit, len(lines))


def _continues(head: _Head, text: str, distance: int) -> bool:
    if head.announces and distance < _ANNOUNCED:
        return text.startswith(("WARNING: ", "kernel BUG at "))
    # An oops announced by "BUG: unable to handle" goes on; a second panic does not.
    return bool(_CONSEQUENCE.match(text))


def _splat(kind: str, lines: list[str], first: int, end: int) -> Splat:
    body = [message(line) for line in lines[first:end]]
    functions = _functions(body)
    return Splat(kind, _title(body, functions), functions, "\n".join(lines[first:end]), first + 1)


def _functions(body: list[str]) -> tuple[str, ...]:
    """The stack below the reporting. What the head and RIP name comes first."""
    found: list[str] = []

    def add(name: str) -> None:
        name = re.sub(r"\.(?:isra|constprop|part|cold)\b.*", "", name)
        if name not in found and not _PLUMBING.match(name):
            found.append(name)

    head = _AT_FUNCTION.search(body[0])
    if head:
        add(head.group(1))
    for line in body[1:]:
        if line.lstrip().startswith("RIP: ") or line.startswith(" "):
            frame = _FRAME.match(line)
            # "?" marks what was found on the stack and is perhaps no caller.
            if frame and not frame.group(1):
                add(frame.group(2))
        if len(found) >= KEY_FUNCTIONS:
            break
    return tuple(found[:KEY_FUNCTIONS])


_VARIABLE = (
    (re.compile(r"\+0x[0-9a-f]+/0x[0-9a-f]+"), ""),
    (re.compile(r"\[#\d+\].*"), ""),
    (re.compile(r"\bCPU#?:? ?\d+:? ?"), ""),
    (re.compile(r"\bPID: \d+ "), ""),
    (re.compile(r"\btask \S+:\d+ "), "task "),
    (re.compile(r"\b(pfn|pte|pmd|val):-?[0-9a-f]+"), r"\1"),
    (re.compile(r"\b(?:in process )?\S+/\d+/0x[0-9a-f]+"), ""),
    (re.compile(r"\bin process \S+ "), ""),
    (re.compile(r"\b(?:0x)?[0-9a-f]{8,16}\b"), "ADDR"),
    (re.compile(r"\b\d+ (seconds|jiffies|bytes)\b|\b\d+s!?( \[.*\])?"), r"N \1"),
    (re.compile(r"(?:, |: )?\S*/\d+$"), ""),
    (re.compile(r"\s+"), " "),
)


def _title(body: list[str], functions: tuple[str, ...]) -> str:
    title = body[0]
    for pattern, replacement in _VARIABLE:
        title = pattern.sub(replacement, title)
    title = title.strip(" :,")
    if functions and functions[0] not in title:
        title += f" in {functions[0]}"
    return title
