# SPDX-License-Identifier: GPL-2.0-or-later
"""Names, addresses and call sites, from a map and an object file made here."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from hmmbench.symbols import Kind, SymbolTable, call_sites, functions, kernel_functions
from hmmbench.symbols.elf import Elf, ElfError
from hmmbench.symbols.guest import of_files, parse
from hmmbench.symbols.points import calls_by_function, gaps, kind_of, late_gaps, relocks, seams

TEXT, EXIT = 0xFFFFFFFFC0000000, 0xFFFFFFFFC0008000

SOURCE = r"""
void mutex_lock(void *), mutex_unlock(void *), something_else(void);
int hmm_range_fault(void *);
long counter = 7;

static int __attribute__((noinline)) inner(void *p)
{
	int ret;

	mutex_lock(p);
	ret = hmm_range_fault(p) + counter;
	mutex_unlock(p);
	return ret;
}

int outer(void *p)
{
	something_else();
	return inner(p) + 1;
}

void leaves(void *p)
{
	mutex_unlock(p);
}

void __attribute__((section(".init.text"))) begins(void *p)
{
	mutex_lock(p);
}

void __attribute__((section(".exit.text"))) ends(void *p)
{
	mutex_lock(p);
	counter++;
}
"""

MAP = """\
0000000000000000 D __per_cpu_start
0000000000001000 A an_absolute_number
ffffffff81000000 T _text
ffffffff81000000 T startup_64
ffffffff81001000 t helper
ffffffff81001100 T __pfx_hmm_range_fault
ffffffff81001110 T hmm_range_fault
ffffffff81001200 t hmm_range_fault.cold
ffffffff81001300 T migrate_vma_setup
ffffffff81001300 W __weak_alias
ffffffff81001400 T __mmu_notifier_invalidate_range_start
ffffffff81001500 t helper
ffffffff81001600 D some_data
ffffffff82000000 D __init_begin
ffffffff82000100 t in_init
ffffffff82001000 R __init_end
ffffffff82001000 B _end
"""


@pytest.fixture(scope="module")
def module(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("module")
    (folder / "toy.c").write_text(SOURCE)
    subprocess.run(
        ["gcc", "-c", "-O2", "-g", "-fno-pic", "-mcmodel=kernel", "-fcf-protection=none",
         "-fno-asynchronous-unwind-tables", "toy.c", "-o", "toy.ko"],
        cwd=folder, check=True,
    )  # fmt: skip
    return folder / "toy.ko"


@pytest.fixture(scope="module")
def table(module: Path) -> SymbolTable:
    (module.parent / "System.map").write_text(MAP)
    return of_files(module.parent / "System.map", {"toy": module, "absent": module}, PLACES)


PLACES = {"toy": {".text": TEXT, ".exit.text": EXIT, ".init.text": TEXT - 0x1000}}


def disassembly(module: Path, section: str) -> list[tuple[int, str]]:
    """(offset, instruction with its relocation) by binutils."""
    text = subprocess.run(
        ["objdump", "-dr", "-j", section, module], capture_output=True, text=True, check=True
    ).stdout
    lines: list[tuple[int, str]] = []
    for line in text.splitlines():
        at, colon, rest = line.strip().partition(":")
        if not colon:
            continue
        if "R_X86_64" in rest:
            lines[-1] = (lines[-1][0], f"{lines[-1][1]} {rest.split()[-1]}")
        elif "\t" in rest:
            lines.append((int(at, 16), rest.split("\t")[-1]))
    return lines


def test_kernel_names(table: SymbolTable) -> None:
    assert table.address("hmm_range_fault") == 0xFFFFFFFF81001110
    assert table.address("hmm_range_fault+0x27/0xf0") == 0xFFFFFFFF81001137
    assert table.name(0xFFFFFFFF81001137) == "hmm_range_fault+0x27"
    # What is no place in the kernel, and what is freed after the boot.
    for gone in ("an_absolute_number", "in_init", "__pfx_hmm_range_fault", "nothing"):
        with pytest.raises(KeyError):
            table.address(gone)
    assert table.name(0xFFFFFFFF82000123) == "0xffffffff82000123"
    assert table.name(0x1000) == "0x1000"


def test_of_several_at_one_address_the_kernels_choice(table: SymbolTable) -> None:
    assert table.name(0xFFFFFFFF81001300) == "migrate_vma_setup"
    assert table.name(0xFFFFFFFF81000000) == "startup_64"
    assert table.address("__weak_alias") == 0xFFFFFFFF81001300


def test_a_name_means_one_place(table: SymbolTable) -> None:
    assert table.address("helper") == 0xFFFFFFFF81001000
    assert table.address("helper#2+0x10") == 0xFFFFFFFF81001510
    assert table.name(0xFFFFFFFF81001510) == "helper#2+0x10"
    # There and back again, for each.
    for symbol in table:
        found = table.lookup(symbol.address)
        assert found is not None or not symbol.size
        if symbol.size:
            assert table.address(table.name(symbol.address)) == symbol.address


def test_module_names(table: SymbolTable, module: Path) -> None:
    starts = dict(disassembly(module, ".text"))
    outer = table.address("outer")
    assert outer - TEXT in starts
    assert table.name(outer + 4) == "outer+0x4 [toy]"
    assert table.address("outer+0x4 [toy]") == outer + 4
    assert table.address("ends") == EXIT
    assert table.find("outer", "") is None
    # .data was not placed, .init.text is freed
    assert table.find("counter") is None
    assert table.find("begins") is None
    assert [s.name for s in functions(table, "toy")] == ["inner", "outer", "leaves", "ends"]


def test_kernel_functions(table: SymbolTable) -> None:
    assert [s.name for s in kernel_functions(table)] == [
        "hmm_range_fault", "migrate_vma_setup", "__mmu_notifier_invalidate_range_start",
    ]  # fmt: skip


def test_call_sites(table: SymbolTable, module: Path) -> None:
    calls = call_sites(table, "toy", Elf(module), PLACES["toy"])
    assert [(c.callee, c.kind, c.place.partition("+")[0]) for c in calls] == [
        ("mutex_lock", Kind.LOCK, "inner"),
        ("hmm_range_fault", Kind.MM, "inner"),
        ("mutex_unlock", Kind.UNLOCK, "inner"),
        ("mutex_unlock", Kind.UNLOCK, "leaves [toy]"),
        ("mutex_lock", Kind.LOCK, "ends"),
    ]
    # Against binutils: each is an instruction that names the callee, and returns to the next.
    for base, section in ((TEXT, ".text"), (EXIT, ".exit.text")):
        lines = disassembly(module, section)
        for (at, words), (after, _) in zip(lines, [*lines[1:], (0, "")], strict=True):
            here = [c for c in calls if c.address == base + at]
            named = [c for c in calls if f" {c.callee}-0x4" in words]
            assert bool(here) == bool(named)
            if here:
                jumps = words.startswith("jmp")
                assert here[0].returns == (None if jumps else base + after)
    assert [c.returns for c in calls if c.callee == "mutex_unlock"][-1] is None


#: As drivers look at an address space: this one unlocks it in a function of its own.
LOOKS = r"""
void mutex_lock(void *), mutex_unlock(void *), up_read(void *), down_read(void *);
void plain(void), *mmu_interval_read_begin(void *);
int hmm_range_fault(void *);
void *xa_load(void *, unsigned long);

static void __attribute__((noinline)) unlocks(void *p)
{
	up_read(p);
	up_read(p);
}

int looks(void *p)
{
	int ret;

	plain();
	mmu_interval_read_begin(p);
	down_read(p);
	ret = hmm_range_fault(p);
	up_read(p);
	plain();
	down_read(p);
	unlocks(p);
	mutex_lock(p);
	plain();
	mutex_unlock(p);
	plain();
	mutex_lock(p);
	mutex_unlock(p);
	return ret;
}

/* as compilers put aside what is seldom executed */
asm(".pushsection .text\n"
    ".type looks.cold, @function\n"
    "looks.cold:\n"
    "	call mutex_lock\n"
    "	call xa_load\n"
    ".size looks.cold, . - looks.cold\n"
    ".popsection\n");

void locks(void *p)
{
	mutex_lock(p);
	plain();
	mutex_unlock(p);
	mutex_lock(p);
	xa_load(p, 1);
	xa_erase(p, 1);
	mutex_unlock(p);
}

int notes(void *p)
{
	int ret;

	mmu_interval_read_begin(p);
	mutex_lock(p);
	plain();
	mutex_unlock(p);
	down_read(p);
	ret = hmm_range_fault(p);
	up_read(p);
	mutex_lock(p);
	plain();
	mutex_unlock(p);
	return ret;
}
"""


def test_gaps(tmp_path: Path) -> None:
    (tmp_path / "looks.c").write_text(LOOKS)
    (tmp_path / "System.map").write_text(MAP)
    subprocess.run(
        ["gcc", "-c", "-O2", "-fno-pic", "-mcmodel=kernel", "-fcf-protection=none", "looks.c"],
        cwd=tmp_path, check=True,
    )  # fmt: skip
    module, places = tmp_path / "looks.o", {".text": TEXT}
    table = of_files(tmp_path / "System.map", {"looks": module}, {"looks": places})
    calls = calls_by_function(table, "looks", Elf(module), places)
    assert set(calls) == {table.address(name) for name in ("unlocks", "looks", "locks", "notes")}
    named = {call.returns: call.callee for made in calls.values() for call in made}

    def in_looks(addresses: list[int]) -> list[str]:
        return [named[at] for at in addresses if table.name(at).startswith("looks+")]

    # Not where the lock is still held, and also behind the call within the module, which has no
    # relocation.
    assert in_looks(gaps(calls)) == ["up_read", "unlocks"]
    # A lock that is given back before the look does not end the gap.
    noted = [named[at] for at in gaps(calls) if table.name(at).startswith("notes+")]
    assert noted == ["up_read"]
    assert len(gaps(calls)) == 3
    # Where it is taken again; not at the end.
    again = relocks(calls)
    assert in_looks(again) == ["mutex_unlock"]
    assert [table.name(at).partition("+")[0] for at in again] == ["looks", "locks", "notes"]
    assert late_gaps(calls) == again[:1]
    # Each is the instruction behind a call, as binutils see it.
    lines = [at for at, _ in disassembly(module, ".text")]
    assert {at - TEXT for at in gaps(calls)} <= set(lines)
    found = seams(calls)
    behind = [at for at in found if at in named]
    assert in_looks(behind) == ["mmu_interval_read_begin", "plain", "unlocks", "plain"]
    own = [named[at] for at in behind if table.name(at).startswith("locks+")]
    assert own == ["mutex_unlock", "xa_load", "xa_erase"]
    # At what locks, and where a function begins if it locks first.
    made = [call for some in calls.values() for call in some]
    locking = {call.address for call in made if kind_of(call.callee) is Kind.LOCK}
    assert set(found) - set(behind) == locking | {table.address("locks")}
    assert len(locking) == 9


@pytest.mark.parametrize(
    ("callee", "kind"),
    [
        ("_raw_spin_lock_irqsave", Kind.LOCK), ("_raw_spin_unlock_irqrestore", Kind.UNLOCK),
        ("down_read_trylock", Kind.LOCK), ("up_write", Kind.UNLOCK), ("unlock_page", Kind.UNLOCK),
        ("downgrade_write", Kind.UNLOCK), ("__folio_lock", Kind.LOCK), ("down", Kind.LOCK),
        ("mutex_lock_interruptible", Kind.LOCK), ("mutex_trylock", Kind.LOCK),
        ("wait_for_completion", Kind.WAIT), ("schedule_timeout", Kind.WAIT),
        ("prepare_to_wait_event", Kind.WAIT), ("cancel_work_sync", Kind.WAIT),
        ("synchronize_rcu", Kind.WAIT), ("msleep", Kind.WAIT), ("usleep_range_state", Kind.WAIT),
        ("__wake_up", Kind.WAKE), ("wake_up_var", Kind.WAKE), ("complete", Kind.WAKE),
        ("queue_work_on", Kind.WAKE), ("queue_delayed_work_on", Kind.WAKE),
        ("dma_fence_signal", Kind.WAKE), ("dma_map_page_attrs", Kind.DMA),
        ("dma_unmap_phys", Kind.DMA), ("dma_pool_alloc", Kind.DMA),
        ("migrate_vma_pages", Kind.MM), ("mmu_interval_read_begin", Kind.MM),
        ("get_user_pages_remote", Kind.MM), ("mmput", Kind.MM), ("__mmdrop", Kind.MM),
        ("__xa_cmpxchg", Kind.NAME), ("ida_free", Kind.NAME), ("xa_erase", Kind.NAME),
        ("drm_mm_insert_node_in_range", Kind.NAME), ("fd_install", Kind.NAME),
        ("xa_load", Kind.LOOKUP), ("_find_next_zero_bit", Kind.LOOKUP), ("fget", Kind.LOOKUP),
        ("kfree", None), ("snprintf", None), ("drm_printf", None), ("dma_fence_init", None),
        ("destroy_workqueue", Kind.WAIT), ("locks_init", None), ("uprobe_register", None),
    ],
)  # fmt: skip
def test_kinds(callee: str, kind: Kind | None) -> None:
    assert kind_of(callee) == kind


def test_what_the_guest_says() -> None:
    text = (
        "/sys/module/hmm_gpu/sections/.text:0xffffffffc0001000\n"
        "/sys/module/hmm_gpu/sections/__param:0xffffffffc0002000\n"
        "/sys/module/hidden/sections/.text:0x0000000000000000\n"
        "grep: something else\n"
    )
    assert parse(text) == {"hmm_gpu": {".text": 0xFFFFFFFFC0001000, "__param": 0xFFFFFFFFC0002000}}


def test_damaged_files(module: Path, tmp_path: Path) -> None:
    data = module.read_bytes()
    for size in (0, 3, 63, len(data) // 2, len(data) - 1):
        (tmp_path / "cut.ko").write_bytes(data[:size])
        with pytest.raises(ElfError):
            Elf(tmp_path / "cut.ko").symbols()
    (tmp_path / "arm.ko").write_bytes(data[:18] + b"\xb7\0" + data[20:])
    with pytest.raises(ElfError):
        Elf(tmp_path / "arm.ko")
    with pytest.raises(ElfError):
        Elf(tmp_path / "missing.ko")
