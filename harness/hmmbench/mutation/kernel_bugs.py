# SPDX-License-Identifier: GPL-2.0-or-later
"""The set of historical kernel bugs that the bench is tried on, each made again by a patch.

A patch (tests/kernel-bugs/NAME.patch) begins with a sentence of prose, an empty line, and
fields; more lines of a field are indented by two spaces:

    Class: the class of bug, a few words
    Row: its row in the project's list of historical bugs (facts/hmm.md, 5.2)
    Subject: the subject of the commit that fixed it
    CVE: where it has one
    Kernel: the kernel it is made in: "lts" (the default) or "latest", then "debug" if only a
      kernel with sanitisers shows it
    Made: how: "reverted", or what differs from the original
    Equivalent: only if no behaviour differs: the proof

Then, after an empty line, diffs of C sources of the kernel, -p1.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from hmmbench.base import paths
from hmmbench.base.errors import UsageError
from hmmbench.build import BuildRequest
from hmmbench.build.kernel_patch import files
from hmmbench.mutation.mutants import Mutant, kernel_of, read_head, variants_of

_NEEDED = ("Class", "Row", "Subject", "Made")


@dataclass(frozen=True)
class KernelBug(Mutant):
    """A mutant of the kernel.  `source` is the commit's subject, and the CVE."""

    row: int
    made: str

    def request(self) -> BuildRequest:
        return BuildRequest(
            kernel=self.kernel, kernel_variants=variants_of(self.variant), full=self.full,
            kernel_patches=(self.path,),
        )  # fmt: skip

    def argv(self) -> list[str]:
        return ["--kernel-bugs", self.name]


def folder() -> Path:
    return paths.project_root() / "tests" / "kernel-bugs"


def parse(path: Path) -> KernelBug:
    """Raises UsageError with what is wrong with the head."""
    touched = files(path)
    prose, fields = read_head(
        path, path.read_text().split("\n--- a/", 1)[0], _NEEDED, ("CVE", "Kernel", "Equivalent")
    )
    if not fields["Row"].isdigit():
        raise UsageError(f"{path}: Row is a number")
    cve = f" ({fields['CVE']})" if "CVE" in fields else ""
    return KernelBug(
        path.stem, path, prose, fields["Class"], fields["Subject"] + cve,
        fields.get("Equivalent", ""), touched[0], *kernel_of(path, fields), "", "",
        int(fields["Row"]), " ".join(fields["Made"].split()),
    )  # fmt: skip


def load(where: Path | None = None) -> list[KernelBug]:
    """All kernel bugs, by name."""
    found = sorted((where or folder()).glob("*.patch"), key=lambda path: path.stem)
    return [parse(path) for path in found]


def choose(names: Iterable[str], where: Path | None = None) -> list[KernelBug]:
    """The named ones in the order given, each once; all for no name."""
    known = {b.name: b for b in load(where)}
    wanted = list(dict.fromkeys(names)) or list(known)
    wrong = [name for name in wanted if name not in known]
    if wrong:
        raise UsageError(
            f"no kernel bug is called {', '.join(wrong)}",
            "./hmmbench mutants --kernel-bugs --list names them all.",
        )
    if not wanted:
        raise UsageError(f"there is no kernel bug in {where or folder()}")
    return [known[name] for name in wanted]


def table(bugs: Iterable[Mutant]) -> str:
    """The table of docs/kernel-bugs.md."""
    lines = ["| bug | row | kernel | what is broken | fixed by | made |", "|" + "---|" * 6]
    chosen = [b for b in bugs if isinstance(b, KernelBug)]
    for b in sorted(chosen, key=lambda b: (b.row, b.name)):
        kernel = " ".join((b.kernel, *["full"] * b.full, *variants_of(b.variant)))
        prose = " ".join(b.prose.split()) + (" *Equivalent.*" if b.proof else "")
        cells = (b.name, str(b.row), kernel, prose, b.source, b.made)
        lines.append("| " + " | ".join(c.replace("|", "\\|") for c in cells) + " |")
    return "\n".join(lines) + "\n"
