# SPDX-License-Identifier: GPL-2.0-or-later
"""What schedules aim at: instructions by which two CPUs, or CPU and GPU, meet in memory.

Some programs of the campaign run in an exact machine that watches the instructions of the modules
under test and of the kernel's functions that drivers for HMM race with (hmm-exact-watch.c): the
profile.  It is kept by name and offset, so that it holds for another build of the driver wherever
a function has kept its size.

The idea is Snowboard's (Gong et al., SOSP 2021): profile accesses, pair those that meet, try the
uncommon pairs first.
"""

from __future__ import annotations

import json
import math
import re
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from hmmbench.build import cache
from hmmbench.campaign.repeat import nth
from hmmbench.example.exact_target import ExactTarget
from hmmbench.example.recipe import Environment
from hmmbench.example.schedules import Aims, Spot
from hmmbench.symbols import Sections, Symbol, SymbolTable, guest, operands
from hmmbench.symbols.points import functions
from hmmbench.symbols.table import plain
from hmmbench.vm.errors import QmpFailure, VmError
from hmmbench.vm.opener import Opener
from hmmbench.vm.snapshot import Snapshots
from hmmbench.vm.spec import MachineSpec

if TYPE_CHECKING:
    from hmmbench.build import Artifacts

#: struct HmmExactAccess of hmm-exact-watch.c.
ACCESS = np.dtype(
    [("pc", "<u8"), ("disp", "<i4"), ("base", "u1"), ("index", "u1"), ("scale", "u1"),
     ("access", "u1")]
)  # fmt: skip
_NO_REGISTER = 255

#: Functions of the kernel whose accesses are watched: HMM's own, and those that change what
#: HMM's read: the CPU's page tables and the notifiers' sequences.
_WATCHED = re.compile(
    r"(hmm_(?!test|dma)\w+|mmu_interval_\w+|mn_\w+|__mmu_notifier_\w+|__mmu_interval_\w+"
    r"|migrate_(vma|device)_\w+|__migrate_device_\w+|(make|remove|restore)_device_exclusive\w*"
    r"|restore_exclusive_pte|try_to_migrate_one|try_to_unmap_one|page_make_device_exclusive_one"
    r"|remove_migration_pte|migrate_folio_\w+|folio_migrate_mapping|do_swap_page|do_wp_page"
    r"|wp_page_\w+|zap_\w+|unmap_page_range|change_p[tm]\w+|change_protection\w*|copy_p[tm]\w+"
    r"|copy_page_range|move_p[tm]\w+|move_page_tables|do_anonymous_page|__handle_mm_fault"
    r"|madvise_cold_or_pageout_pte_range|set_pte_range|finish_fault|ptep_\w+|zone_device_\w+"
    r"|free_zone_device_folio)(\.\w+)*"
)
#: Gaps between such functions that are not worth another run of objdump (bytes).
_GAP = 1 << 20

#: Programs of the profile, in machines of so many each; their seed.
PROGRAMS, EACH, SEED = 15, 5, 1
#: Changes when what is kept in the cache does.
_FORMAT = "2"
_KIND, _FILE = "aim", "profile.json"

#: Short slices, a machine that is never idle in between: what meets in any order.
_SCHEDULE = "seed={seed} slice=5:12 step=9:13:0:8 busy=2"


@dataclass(frozen=True)
class Place:
    """An instruction that accesses memory.

    symbol, size -- the function that it is in, and how long that is in bytes
    offset       -- in it; `after`: of the next instruction (None: it is not in this function)
    passed       -- how often an example comes there while operations race
    gpu          -- how often of these to memory or registers of the GPU
    """

    symbol: str
    size: int
    offset: int
    after: int | None
    passed: float
    gpu: float

    def __str__(self) -> str:
        return _at(self.symbol, self.offset)


def _at(symbol: str, offset: int) -> str:
    name, bracket, module = symbol.partition(" [")
    return f"{name}+{offset:#x}{bracket}{module}"


@dataclass
class Profile:
    """`pairs`: numbers of two places, the earlier first, and how often an example has them."""

    places: list[Place] = field(default_factory=list)
    pairs: dict[tuple[int, int], float] = field(default_factory=dict)

    def as_json(self) -> dict[str, object]:
        return {
            "places": [[p.symbol, p.size, p.offset, p.after, p.passed, p.gpu] for p in self.places],
            "pairs": [[a, b, count] for (a, b), count in self.pairs.items()],
        }

    @classmethod
    def from_json(cls, data: Mapping[str, list[list[float]]]) -> Profile:
        return cls(
            [Place(*row) for row in data["places"]],  # type: ignore[arg-type]
            {(int(a), int(b)): count for a, b, count in data["pairs"]},
        )


#: How much likelier is a pair of which one is the driver's or one of HMM's walkers.
OWN = 4.0
_WALKERS = re.compile(r"hmm_\w+|mmu_interval_\w+|migrate_(vma|device)_\w+|.*device_exclusive\w*")


def aims(profile: Profile, table: SymbolTable) -> Aims:
    """Of a profile in one guest: where functions have kept their size.

    Two functions that meet at ten fields of a structure are one family: no likelier for that.
    """
    spots = [_spot(place, table) for place in profile.places]
    pairs: list[tuple[Spot, Spot | None]] = []
    weights = []
    families: list[frozenset[str]] = []

    def add(first: int, second: int | None, count: float) -> None:
        one, other = spots[first], None if second is None else spots[second]
        if one is None or (second is not None and other is None):
            return
        places = [profile.places[n] for n in (first, second) if n is not None]
        pairs.append((one, other))
        weights.append((OWN if any(map(_own, places)) else 1.0) / math.sqrt(count))
        families.append(frozenset(place.symbol for place in places) | {"" if other else "GPU"})

    for (first, second), count in profile.pairs.items():
        add(first, second, count)
    for number, place in enumerate(profile.places):
        if place.gpu:
            add(number, None, place.gpu)
    sizes = Counter(families)
    shares = (w / sizes[family] for w, family in zip(weights, families, strict=True))
    return Aims(tuple(pairs), tuple(shares))


def _spot(place: Place, table: SymbolTable) -> Spot | None:
    name, _, module = place.symbol.rstrip("]").partition(" [")
    symbol = table.find(name, module)
    if symbol is None or symbol.size != place.size:
        return None
    after = None if place.after is None else symbol.address + place.after
    return Spot(symbol.address + place.offset, after, place.passed)


def _own(place: Place) -> bool:
    return place.symbol.endswith("]") or bool(_WALKERS.fullmatch(plain(place.symbol)))


# -- the table of instructions --


def instructions(
    artifacts: Artifacts, places: Sections, table: SymbolTable
) -> dict[int, tuple[operands.Access, int | None]]:
    """Those that are watched, by address, in rising order; with the address of the next one."""
    found: list[operands.Instruction] = []
    files = guest.module_files(artifacts)
    for path in sorted(artifacts.module_dir.glob("*.ko")):
        sections = places.get(guest.module_name(path))
        if sections and files[guest.module_name(path)] == path:
            kept = {name: at for name, at in sections.items() if not name.startswith(".init")}
            found += operands.listing(operands.disassemble(path), kept)
    image = artifacts.kernel_build_dir / "vmlinux"
    if image.exists():
        watched = [s for s in functions(table, "") if _WATCHED.fullmatch(plain(s.name))]
        inside = _Ranges(watched)
        for code in _clusters(watched):
            listed = operands.listing(operands.disassemble(image, code))
            found += [one for one in listed if one.address in inside]
    accesses = {}
    for one in sorted(found, key=lambda one: one.address):
        if (access := operands.parse(one.text)) is not None:
            accesses[one.address] = access, one.after
    return accesses


class _Ranges:
    def __init__(self, symbols: Sequence[Symbol]) -> None:
        self._begins = np.array([s.address for s in symbols], np.uint64)
        self._ends = np.array([s.address + s.size for s in symbols], np.uint64)

    def __contains__(self, address: int) -> bool:
        n = int(np.searchsorted(self._begins, np.uint64(address), "right")) - 1
        return n >= 0 and address < int(self._ends[n])


def _clusters(symbols: Iterable[Symbol]) -> list[range]:
    out: list[range] = []
    for symbol in symbols:
        end = symbol.address + symbol.size
        if out and symbol.address - out[-1].stop < _GAP:
            out[-1] = range(out[-1].start, max(out[-1].stop, end))
        else:
            out.append(range(symbol.address, end))
    return out


def write_table(path: Path, accesses: Mapping[int, tuple[operands.Access, int | None]]) -> None:
    """As the machine reads it."""
    rows = [
        (at, a.disp, _NO_REGISTER if a.base is None else a.base,
         _NO_REGISTER if a.index is None else a.index, a.scale, a.access)
        for at, (a, _) in sorted(accesses.items())
    ]  # fmt: skip
    np.array(rows, ACCESS).tofile(path)


# -- the profile --


def make(
    artifacts: Artifacts, spec: MachineSpec, snapshots: Snapshots | None = None,
    programs: int = PROGRAMS,
) -> Profile:  # fmt: skip
    """Run the programs, and see who meets."""
    places = (snapshots or Snapshots()).sections(spec)
    table = guest.of_guest(artifacts, places)
    accesses = instructions(artifacts, places, table)
    passed: Counter[int] = Counter()
    gpu: Counter[int] = Counter()
    pairs: Counter[tuple[int, int]] = Counter()
    with tempfile.TemporaryDirectory(prefix="hmmbench-aim-") as folder, Opener(
        spec, snapshots
    ) as opener:
        given, taken = Path(folder, "table"), Path(folder, "found")
        write_table(given, accesses)
        target = ExactTarget(opener)
        for first in range(0, programs, EACH):
            target.renew()
            target.vm.exact.watch(given)
            for index in range(first, min(first + EACH, programs)):
                schedule = _SCHEDULE.format(seed=index)
                env = Environment((), (), "off", False, None, schedule)
                if target.execute(nth(SEED, index), env).tainted:
                    break
            vm = target.left
            if vm is None:
                continue
            try:
                vm.exact.write_watch(taken)
            except (VmError, QmpFailure):
                continue
            _add(taken.read_text(), passed, gpu, pairs)
        target.close()
    return _named(accesses, table, passed, gpu, pairs, programs)


def _add(
    text: str, passed: Counter[int], gpu: Counter[int], pairs: Counter[tuple[int, int]]
) -> None:
    for line in text.splitlines():
        kind, first, second, count = line.split()
        if kind == "P":
            passed[int(first, 16)] += int(second)
            gpu[int(first, 16)] += int(count)
        else:
            pairs[int(first, 16), int(second, 16)] += int(count)


def _named(
    accesses: Mapping[int, tuple[operands.Access, int | None]], table: SymbolTable,
    passed: Counter[int], gpu: Counter[int], pairs: Counter[tuple[int, int]], programs: int,
) -> Profile:  # fmt: skip
    """Those that meet somebody."""
    profile = Profile()
    numbers: dict[int, int] = {}
    for address in sorted({a for pair in pairs for a in pair} | {a for a in gpu if gpu[a]}):
        found = table.lookup(address)
        if found is None:
            continue
        symbol, offset = found
        after = accesses[address][1]
        inside = after is not None and after - symbol.address < symbol.size
        name = f"{symbol.name} [{symbol.module}]" if symbol.module else symbol.name
        numbers[address] = len(profile.places)
        profile.places.append(
            Place(
                name, symbol.size, offset,
                after - symbol.address if inside and after is not None else None,
                passed[address] / programs, gpu[address] / programs,
            )
        )  # fmt: skip
    for (a, b), count in sorted(pairs.items()):
        if a in numbers and b in numbers:
            profile.pairs[numbers[a], numbers[b]] = count / programs
    return profile


def key(spec: MachineSpec) -> str:
    """Of the cached profile: the machine with all that is in it, and the code that makes it."""
    code = [Path(__file__), Path(operands.__file__)]
    return cache.digest(_FORMAT, spec.fingerprint(), *(cache.file_digest(path) for path in code))


def profile(
    artifacts: Artifacts, spec: MachineSpec, snapshots: Snapshots | None = None,
    making: Callable[[], None] = lambda: None,
) -> Profile:  # fmt: skip
    """From the cache, or made now (`making` is called before)."""
    name = key(spec)
    with cache.lock(f"{_KIND}-{name}"):
        folder = cache.find(_KIND, name)
        if folder is None:
            making()
            found = make(artifacts, spec, snapshots)
            text = json.dumps(found.as_json())

            def fill(path: Path) -> None:
                (path / _FILE).write_text(text)

            folder = cache.publish(_KIND, name, fill)
    return Profile.from_json(json.loads((folder / _FILE).read_text()))
