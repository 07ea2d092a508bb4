# SPDX-License-Identifier: GPL-2.0-or-later
"""Which instructions access memory, and where: from objdump's listing of x86-64 code.

Left out is what a schedule cannot aim at: stacks (push, pop, what is relative to %rsp), per-CPU
data (%gs), string instructions, what is relative to %rip, and what only names an address (lea).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from hmmbench.base import processes
from hmmbench.base.errors import EnvironmentFailure

READ, WRITE = 1, 2

#: As the instruction set numbers them.
REGISTERS = {
    f"%{name}": number
    for number, name in enumerate(
        ("rax", "rcx", "rdx", "rbx", "rsp", "rbp", "rsi", "rdi",
         "r8", "r9", "r10", "r11", "r12", "r13", "r14", "r15")
    )
}  # fmt: skip

_LINE = re.compile(r"\s*([0-9a-f]+):\s+(.+?)\s*(?:[#<].*)?")
_SECTION = re.compile(r"Disassembly of section (\S+):")
_PREFIX = re.compile(r"(?:(?:lock|rep|repz|repnz|notrack|bnd|data16|cs|ds|rex\.?\w*) )+")
_MEMORY = re.compile(
    r"(?P<disp>-?0x[0-9a-f]+)?\((?P<base>%\w+)?(?:,(?P<index>%\w+),(?P<scale>[1248]))?\)"
)
_NO_ACCESS = re.compile(
    r"lea\w*|nop\w*|prefetch\w*|push\w*|pop\w*|call\w*|j\w+|ret\w*|clflush\w*|clwb|invlpg|fx\w+"
    r"|ld\w+|st[id]|str|s[gi]dt\w*|l[gil]dt\w*|ud\d\w*"
)
_ONLY_READS = re.compile(r"cmp[bwlq]?|test[bwlq]?|bt[wlq]?|u?comis\w+")
#: Whatever is written there does not depend on what was.
_ONLY_WRITES = re.compile(r"mov\w*|set\w+")
#: With one operand: the others read it.
_CHANGES = re.compile(r"(inc|dec|not|neg|sh[lr]|sa[lr]|ro[lr]|rc[lr])[bwlq]?")
_EXCHANGES = re.compile(r"(xchg|xadd|cmpxchg)\w*")


@dataclass(frozen=True)
class Access:
    """What an instruction does at `disp + base + index * scale`.

    base, index -- numbers of registers; None: none
    access      -- READ, WRITE or both
    """

    disp: int
    base: int | None
    index: int | None
    scale: int
    access: int


def parse(text: str) -> Access | None:
    """Of an instruction in AT&T's words; None: it accesses nothing that is of interest."""
    mnemonic, _, operands = _PREFIX.sub("", text.strip(), count=1).partition(" ")
    found = _MEMORY.search(operands)
    if not found or _NO_ACCESS.fullmatch(mnemonic):
        return None
    before = operands[: found.start()].strip()
    # A segment that is named is another address space, or a string instruction.
    if before.endswith((":", "*")) or (found["base"] is None and found["index"] is None):
        return None
    named = [found["base"], found["index"]]
    base, index = (None if name is None else REGISTERS.get(name) for name in named)
    if any(name is not None and name not in REGISTERS for name in named):
        return None
    if base == REGISTERS["%rsp"]:
        return None
    last = not operands[found.end() :].strip()
    alone = last and not before
    if _EXCHANGES.fullmatch(mnemonic):
        access = READ | WRITE
    elif _ONLY_READS.fullmatch(mnemonic) or not last:
        access = READ
    elif _ONLY_WRITES.fullmatch(mnemonic):
        access = WRITE
    elif alone and not _CHANGES.fullmatch(mnemonic):
        access = READ
    else:
        access = READ | WRITE
    return Access(
        int(found["disp"] or "0", 16), base, index, int(found["scale"] or "1"), access
    )  # fmt: skip


@dataclass(frozen=True)
class Instruction:
    """`after`: address of the next one in the listing; None: there is none in its section."""

    address: int
    after: int | None
    text: str


def listing(lines: Iterable[str], sections: Mapping[str, int] | None = None) -> list[Instruction]:
    """The instructions of a listing, in its order.

    sections -- where the guest has each section; others are left out.  None: addresses are
                those of the listing
    """
    found: list[Instruction] = []
    base: int | None = 0
    first = True
    for line in lines:
        if section := _SECTION.fullmatch(line.strip()):
            base = 0 if sections is None else sections.get(section[1])
            first = True
        elif base is not None and (match := _LINE.fullmatch(line)):
            address = base + int(match[1], 16)
            if not first:
                last = found[-1]
                found[-1] = Instruction(last.address, address, last.text)
            found.append(Instruction(address, None, match[2]))
            first = False
    return found


def disassemble(file: Path, code: range | None = None) -> Iterator[str]:
    """objdump's listing of a file, or of these addresses of it."""
    command = ["objdump", "-d", "--no-show-raw-insn", "-w", str(file)]
    if code is not None:
        command += [f"--start-address={code.start:#x}", f"--stop-address={code.stop:#x}"]
    done = processes.run(command)
    if done.returncode:
        raise EnvironmentFailure(
            f"objdump does not list {file}: {done.stderr.strip()[-300:]}",
            "It comes with binutils, as ld does.",
        )
    yield from done.stdout.splitlines()
