# SPDX-License-Identifier: GPL-2.0-or-later
"""File and line for the kernel's reports, from the debug information beside what ran."""

from __future__ import annotations

import posixpath
import re
import shlex
import subprocess
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from hmmbench.base import processes
from hmmbench.base.errors import HmmbenchError
from hmmbench.symbols import elf
from hmmbench.symbols.guest import module_name
from hmmbench.symbols.table import Symbol, kernel_symbols, plain

if TYPE_CHECKING:
    from hmmbench.build import Artifacts

#: How kernels print a place: "name+0x12/0x340", with the module behind it.
_PLACE = re.compile(r"([A-Za-z_][\w.]*)\+(0x[0-9a-f]+)/(0x[0-9a-f]+)(?: \[(\w+)\])?")
#: Lines whose place is the instruction itself.  In others it is where a call returns to, perhaps
#: the first instruction of another line.
_EXACT = re.compile(r"RIP: |\bat \S+:\d+ |\b(?:in|at) [\w.]+\+0x")
#: Bytes back from where a call returns: any number that leads into the call.
_CALL = 1

#: Seconds for one file; a whole kernel's takes a few.
_TIMEOUT_S = 120.0


@dataclass(frozen=True)
class _Asked:
    """`address` of `section`; "" where addresses are those of the running kernel."""

    file: Path
    section: str
    address: int


@dataclass
class SourceLines:
    """Says where in the source a place is.

    vmlinux     -- with debug information; None: kernel's places stay as they are
    system_map  -- of the kernel that ran, which has the same addresses
    modules     -- name -> file with debug information
    roots       -- folders that are left out in front of file names
    """

    vmlinux: Path | None
    system_map: Path | None
    modules: Mapping[str, Path]
    roots: tuple[Path, ...] = ()
    _kernel: dict[str, list[Symbol]] = field(default_factory=dict, repr=False)
    _modules: dict[str, dict[str, tuple[str, int]]] = field(default_factory=dict, repr=False)
    _known: dict[_Asked, str] = field(default_factory=dict, repr=False)

    @classmethod
    def of(cls, artifacts: Artifacts) -> SourceLines | None:
        """None if no debug information was built: `./hmmbench build --debug-info`."""
        vmlinux, modules = artifacts.debug_vmlinux, artifacts.debug_module_dir
        if vmlinux is None and modules is None:
            return None
        # A module's own files are named as if they lay where make was called from.
        folders = (
            artifacts.kernel_source_dir, artifacts.kernel_build_dir,
            vmlinux.parent if vmlinux else None,
        )  # fmt: skip
        files = modules.glob("*.ko") if modules else ()
        return cls(
            vmlinux, artifacts.system_map, {module_name(path): path for path in files},
            tuple(folder for folder in folders if folder is not None),
        )  # fmt: skip

    def annotate(self, text: str) -> str:
        """The text with file and line behind each place that a kernel printed in it.

        What cannot be found stays as it is.  Raises EnvironmentFailure without addr2line, OSError
        for a file that cannot be read, and subprocess.TimeoutExpired.
        """
        lines = text.split("\n")
        asked: dict[int, _Asked] = {}
        for number, line in enumerate(lines):
            match = _PLACE.search(line)
            if match:
                back = 0 if _EXACT.search(line[: match.end()]) else _CALL
                one = self._address(match[1], int(match[2], 16), int(match[3], 16), match[4], back)
                if one is not None:
                    asked[number] = one
        self._ask(asked.values())
        for number, one in asked.items():
            if found := self._known[one]:
                lines[number] = f"{lines[number].rstrip()}  {found}"
        return "\n".join(lines)

    def _address(
        self, name: str, offset: int, size: int, module: str | None, back: int
    ) -> _Asked | None:
        if offset:
            offset -= back
        if module:
            place = self._module(module).get(name)
            return _Asked(self.modules[module], place[0], place[1] + offset) if place else None
        if self.vmlinux is None or self.system_map is None:
            return None
        if not self._kernel:
            names = defaultdict(list)
            for symbol in kernel_symbols(self.system_map):
                names[plain(symbol.name)].append(symbol)
            self._kernel = dict(names)
        found = [s for s in self._kernel.get(name, []) if s.size == size]
        # Of two static functions of one name, mostly one has the size that was printed.
        if len({s.address for s in found}) != 1:
            return None
        return _Asked(self.vmlinux, "", found[0].address + offset)

    def _module(self, name: str) -> dict[str, tuple[str, int]]:
        """Function -> section, and place in it; names that stand for several are left out."""
        if name not in self._modules and name in self.modules:
            file = elf.Elf(self.modules[name])
            places: dict[str, set[tuple[str, int]]] = defaultdict(set)
            for symbol in file.symbols():
                if symbol.kind == elf.STT_FUNC and 0 < symbol.section < elf.SHN_LORESERVE:
                    section = file.sections[symbol.section].name
                    places[symbol.name].add((section, symbol.value))
            self._modules[name] = {n: min(at) for n, at in places.items() if len(at) == 1}
        return self._modules.get(name, {})

    def _ask(self, asked: Iterable[_Asked]) -> None:
        """Fill _known, with one run of addr2line for each file and section."""
        groups: dict[tuple[Path, str], list[_Asked]] = defaultdict(list)
        for one in dict.fromkeys(asked):
            if one not in self._known:
                groups[one.file, one.section].append(one)
        for (file, section), ones in groups.items():
            found = _addr2line(file, section, [one.address for one in ones])
            self._known |= {one: self._short(found.get(one.address, [])) for one in ones}

    def _short(self, places: list[str]) -> str:
        """Innermost first: what was inlined, then where into."""
        names = [self._relative(place) for place in places]
        return ", inlined at ".join(name for name in names if not name.startswith("?"))

    def _relative(self, place: str) -> str:
        for root in self.roots:
            place = place.removeprefix(f"{root}/")
        name, _, line = place.rpartition(":")
        return f"{posixpath.normpath(name)}:{line}"


def _addr2line(file: Path, section: str, addresses: list[int]) -> dict[int, list[str]]:
    """Address -> "file:line", the innermost inlined first."""
    words = ["addr2line", "-a", "-i", "-e", str(file), *(["-j", section] if section else [])]
    done = processes.run(
        words, text="".join(f"{at:#x}\n" for at in addresses), timeout=_TIMEOUT_S
    )
    found: dict[int, list[str]] = {}
    current: list[str] = []
    for line in done.stdout.splitlines():
        if re.fullmatch(r"0x[0-9a-f]+", line):
            current = found.setdefault(int(line, 16), [])
        else:
            current.append(line.split(" (discriminator")[0])
    return found


def explainer(artifacts: Artifacts, options: Sequence[str] = ()) -> Callable[[str], str]:
    """What a report of the kernel goes through before people see it.

    It gets file and line, or a last line with the command that makes them available; `options`:
    those of that command that give the same kernel and driver.
    """
    lines = SourceLines.of(artifacts)
    words = shlex.join(["./hmmbench", "build", "--debug-info", *options])
    whole = artifacts.debug_vmlinux is not None and artifacts.debug_module_dir is not None
    hint = "" if whole else f"\n(for more file and line, before the next run or replay: {words})"

    def explain(text: str) -> str:
        # A look-up that fails must not cost the finding.
        try:
            return (lines.annotate(text) if lines else text) + hint
        except (OSError, subprocess.SubprocessError, HmmbenchError) as error:
            return f"{text}\n(no file and line: {error})"

    return explain
