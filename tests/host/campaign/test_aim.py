# SPDX-License-Identifier: GPL-2.0-or-later
"""What schedules aim at: operands of instructions, the profile in another build, and its words."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from hmmbench.campaign import aim
from hmmbench.campaign.aim import Place, Profile
from hmmbench.example import schedules
from hmmbench.example.schedules import Aims, Meetings, Points, Spot, addresses
from hmmbench.symbols import Symbol, SymbolTable
from hmmbench.symbols.operands import READ, WRITE, Access, listing, parse
from hmmbench.vm.spec import MachineSpec

RAX, RCX, RDX, RBX, RBP, RSI, RDI, R8, R12, R15 = 0, 1, 2, 3, 5, 6, 7, 8, 12, 15
BOTH = READ | WRITE


@pytest.mark.parametrize(
    ("text", "access"),
    [
        ("mov    0x10(%rdi),%rax", Access(0x10, RDI, None, 1, READ)),
        ("mov    %rax,-0x8(%r12)", Access(-8, R12, None, 1, WRITE)),
        ("movl   $0x1,(%rbx,%rcx,4)", Access(0, RBX, RCX, 4, WRITE)),
        ("movzbl 0x20(%r15,%r8,1),%eax", Access(0x20, R15, R8, 1, READ)),
        ("mov    -0x7e000000(,%rdx,8),%rax", Access(-0x7E000000, None, RDX, 8, READ)),
        ("cmpq   $0x0,(%rbx)", Access(0, RBX, None, 1, READ)),
        ("cmp    %rax,(%rbx)", Access(0, RBX, None, 1, READ)),
        ("testb  $0x1,0x9(%rdx)", Access(9, RDX, None, 1, READ)),
        ("add    %eax,0x30(%rsi)", Access(0x30, RSI, None, 1, BOTH)),
        ("add    0x30(%rsi),%eax", Access(0x30, RSI, None, 1, READ)),
        ("lock incl 0x34(%rdi)", Access(0x34, RDI, None, 1, BOTH)),
        ("incq   (%rax)", Access(0, RAX, None, 1, BOTH)),
        ("lock cmpxchg %rdx,(%rbx)", Access(0, RBX, None, 1, BOTH)),
        ("xchg   %rax,(%rdi)", Access(0, RDI, None, 1, BOTH)),
        ("xchg   (%rdi),%rax", Access(0, RDI, None, 1, BOTH)),
        ("imul   $0x18,0x8(%rax),%rcx", Access(8, RAX, None, 1, READ)),
        ("divq   0x8(%rcx)", Access(8, RCX, None, 1, READ)),
        ("sete   0x1(%rbp)", Access(1, RBP, None, 1, WRITE)),
        ("cmove  0x8(%rax),%rdx", Access(8, RAX, None, 1, READ)),
        ("lea    0x10(%rdi),%rax", None),
        ("nopw   0x0(%rax,%rax,1)", None),
        ("prefetcht0 (%rax)", None),
        ("push   0x8(%rax)", None),
        ("call   *0x8(%rax)", None),
        ("jmp    *0x8(%rax)", None),
        ("mov    0x8(%rsp),%rax", None),
        ("mov    %gs:0x10(%rax),%rdx", None),
        ("mov    %eax,%gs:0x10(%rdx)", None),
        ("mov    0x12345(%rip),%rax", None),
        ("rep stos %rax,%es:(%rdi)", None),
        ("mov    %rsp,%rbp", None),
        ("ret", None),
    ],
)
def test_operands(text: str, access: Access | None) -> None:
    assert parse(text) == access


LISTING = """
x.ko:     file format elf64-x86-64

Disassembly of section .text:

0000000000000000 <first>:
       0:\tmov    0x8(%rdi),%rax
       4:\tje     b <first+0xb>
       6:\tmov    0x0(%rip),%rbx        # d <first+0xd>

Disassembly of section .init.text:

0000000000000000 <init>:
       0:\tmov    %rax,(%rdi)

Disassembly of section .text.unlikely:

0000000000000000 <first.cold>:
       0:\tincl   0x4(%rbx)
       3:\tud2
"""


def test_a_listing_is_placed_by_its_sections() -> None:
    found = listing(LISTING.splitlines(), {".text": 0x1000, ".text.unlikely": 0x2000})
    assert [(one.address, one.after) for one in found] == [
        (0x1000, 0x1004), (0x1004, 0x1006), (0x1006, None), (0x2000, 0x2003), (0x2003, None),
    ]  # fmt: skip
    assert [parse(one.text) is not None for one in found] == [True, False, False, True, False]
    assert len(listing(LISTING.splitlines())) == 6


def test_the_table_is_as_the_machine_reads_it(tmp_path: Path) -> None:
    path = tmp_path / "table"
    access = Access(-8, RDI, None, 1, WRITE)
    aim.write_table(path, {0x20: (access, 0x24), 0x10: (replace(access, index=R8, scale=4), None)})
    rows = np.fromfile(path, aim.ACCESS).tolist()
    assert rows == [(0x10, -8, RDI, R8, 4, WRITE), (0x20, -8, RDI, 255, 1, WRITE)]
    assert path.stat().st_size == 2 * 16


PROFILE = Profile(
    [
        Place("hmm_range_fault", 0x80, 0x33, 0x37, 10.0, 0.0),
        Place("notify [drv]", 0x40, 0x16, None, 8.0, 0.0),
        Place("ring [drv]", 0x20, 0x4, 0x8, 2.0, 2.0),
        Place("page_fault", 0x50, 0x8, 0xC, 400.0, 0.0),
    ],
    {(1, 0): 4.0, (3, 0): 4.0, (3, 3): 4.0, (2, 1): 0.25},
)


def table(ring: int = 0x20) -> SymbolTable:
    return SymbolTable([
        Symbol("hmm_range_fault", 0xFFFFFFFF81000000, 0x80),
        Symbol("page_fault", 0xFFFFFFFF81001000, 0x50),
        Symbol("notify", 0xFFFFFFFFC0000000, 0x40, "drv"),
        Symbol("ring", 0xFFFFFFFFC0000100, ring, "drv"),
    ])  # fmt: skip


def test_a_profile_holds_where_functions_kept_their_size() -> None:
    kept = aim.aims(Profile.from_json(PROFILE.as_json()), table())  # type: ignore[arg-type]
    assert len(kept.pairs) == 5
    hmm = Spot(0xFFFFFFFF81000033, 0xFFFFFFFF81000037, 10.0)
    assert kept.pairs[0] == (Spot(0xFFFFFFFFC0000016, None, 8.0), hmm)
    assert kept.pairs[4] == (Spot(0xFFFFFFFFC0000104, 0xFFFFFFFFC0000108, 2.0), None)
    # Uncommon ones first, and those of the driver and of HMM before others.
    assert kept.weights[3] > kept.weights[0] == kept.weights[1] > kept.weights[2]
    changed = aim.aims(PROFILE, table(ring=0x24))
    assert changed.pairs == kept.pairs[:3]


def test_two_functions_are_no_likelier_for_meeting_at_many_fields() -> None:
    places = [Place("notify [drv]", 0x40, n, None, 4.0, 0.0) for n in range(5)]
    places += [Place("ring [drv]", 0x20, n, None, 4.0, 0.0) for n in range(5)]
    places.append(Place("hmm_range_fault", 0x80, 0, None, 4.0, 0.0))
    pairs = {(n, 5 + n): 4.0 for n in range(5)} | {(10, 0): 4.0}
    found = aim.aims(Profile(places, pairs), table())
    assert sum(found.weights[:5]) == pytest.approx(found.weights[5])


def test_words_hold_at_one_of_two_or_behind_it_and_count_the_other() -> None:
    points = Points(aims=aim.aims(PROFILE, table()))
    spots = {s for pair in points.aims.pairs for s in pair if s is not None}
    places = {s.address for s in spots} | {s.after for s in spots}
    seen: set[int] = set()
    for seed in range(200):
        schedule = schedules.draw("aimed", random.Random(seed), points)
        words = [word.partition("=")[0] for word in schedule.split()]
        assert len(words) == len(set(words)), schedule
        assert "busy=2" in schedule.split()
        at = addresses(schedule)
        assert 1 <= len(at) <= max(schedules.PAIRS)
        assert set(at) <= places
        assert set(addresses(schedule, "count")) <= {s.address for s in spots}
        seen |= set(at)
    assert seen == places - {None}


def test_without_a_profile_it_holds_at_points() -> None:
    points = Points((0xFFFFFFFF81000000,), (0xFFFFFFFF81000040,))
    schedule = schedules.draw("aimed", random.Random(1), points)
    assert set(addresses(schedule)) <= set(points.all)
    assert addresses(schedule)


def test_meetings_are_of_pairs_that_meet() -> None:
    one, two, three = Spot(16, 20, 1.0), Spot(32, None, 1.0), Spot(48, 52, 1.0)
    meetings = Meetings(Aims(((one, two), (two, three), (three, None)), (1.0, 1.0, 1.0)))
    assert meetings.coverage() == {"pairs": 4, "pairs_tried": 0, "pairs_met": 0}
    # Behind the first of them, counting the second; and what was no pair.
    meetings.learn("seed=1 at=14,30 count=20", [(20, 32), (48, 16), (99, 32)])
    assert meetings.coverage() == {"pairs": 4, "pairs_tried": 2, "pairs_met": 1}
    meetings.learn("seed=1 at=20", [(32, 16)])
    assert meetings.coverage() == {"pairs": 4, "pairs_tried": 3, "pairs_met": 2}
    assert Meetings(Aims()).coverage() == {}


def test_the_cached_profile_is_of_one_machine(tmp_path: Path) -> None:
    files = {name: tmp_path / name for name in ("qemu", "kernel", "initramfs")}
    for name, file in files.items():
        file.write_text(name)
    spec = MachineSpec(**files, firmware=())
    first = aim.key(spec)
    assert aim.key(spec) == first
    # The driver and the agent are in the initramfs.
    (tmp_path / "other").write_text("another driver")
    assert aim.key(replace(spec, initramfs=tmp_path / "other")) != first
    assert aim.key(replace(spec, cpus=3)) != first
