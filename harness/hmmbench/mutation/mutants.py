# SPDX-License-Identifier: GPL-2.0-or-later
"""The set of driver mutants: patches of one fault each, and what each stands for.

A patch (tests/mutants/NAME.patch) begins with a sentence of prose, an empty line, and fields:

    Class: the class of bug it stands for, a few words
    Source: where such a bug was made, or which list asks for it
    Kernel: the kernel it is tried in: "lts" (the default) or "latest", if only that has what
      it needs; then "full" if that takes the full configuration (docs/building.md), and
      "debug" if only a sanitised kernel can see the fault (memory that is used after it was
      freed, a mapping that is never given back), or another of its kind ("kcsan")
    Device: coherent, if it needs VRAM that CPUs use as memory; caches, if a data cache;
      copy-faults, if copies whose faults are served; big-pages, if leaves of 64 KiB
    Machine: another than the usual one, if it only shows there (vm/kinds.py)
    Area: a number of the table of docs/mutants.md, of blind mutants
    Equivalent: only if no behaviour differs: the proof.  More lines are indented
      by two spaces.

Then, after an empty line, one file's diff with a/guest-driver/... paths.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from hmmbench.base import paths
from hmmbench.base.errors import UsageError
from hmmbench.build import BuildRequest
from hmmbench.build.kernel import SANITISED
from hmmbench.vm import kinds
from hmmbench.vm.spec import DEVICES

#: What the table says of mutants that need another device.
_DEVICES = {
    "coherent": "Coherent memory",
    "caches": "Data cache",
    "copy-faults": "Faults of copies",
    "big-pages": "Leaves of 64 KiB",
}

_NAME = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*")
_KERNEL = re.compile(rf"(lts|latest)( full)?(?: ({'|'.join(SANITISED)}))?")
_FIELD = re.compile(r"(\w+): (\S.*)")
_FILE = re.compile(r"--- a/(guest-driver/[\w./-]+)\n\+\+\+ b/(guest-driver/[\w./-]+)\n")


@dataclass(frozen=True)
class Mutant:
    """`proof` is empty for a mutant that is to be killed."""

    name: str
    path: Path
    prose: str
    bug_class: str
    source: str
    proof: str
    file: str
    kernel: str
    #: in the full configuration
    full: bool
    #: of kernel.SANITISED, or ""
    variant: str
    #: of DEVICES
    device: str
    #: of vm/kinds.py
    machine: str

    @property
    def debug(self) -> bool:
        """In a kernel with sanitisers."""
        return bool(self.variant)

    def request(self) -> BuildRequest:
        """What to build."""
        return BuildRequest(
            kernel=self.kernel, kernel_variants=variants_of(self.variant),
            full=self.full or kinds.needs_full(self.machine), driver_patches=(self.path,),
        )  # fmt: skip

    def sound(self) -> BuildRequest:
        """The same without what is broken."""
        return replace(self.request(), driver_patches=(), kernel_patches=())

    def argv(self) -> list[str]:
        """The arguments with which `hmmbench mutants` runs this one alone."""
        other = ["--kernel-variant", self.variant] if self.variant else []
        return [self.name, "--folder", str(self.path.parent), *other]


def folder() -> Path:
    return paths.project_root() / "tests" / "mutants"


def read_head(
    path: Path, text: str, needed: Sequence[str], more: Sequence[str]
) -> tuple[str, dict[str, str]]:
    """The sentence and the fields in the head of a patch.

    Raises UsageError for a field that is missing, unknown or given twice, and for a name of the
    file that is not one-with-dashes.
    """
    prose, _, rest = text.partition("\n\n")
    fields: dict[str, str] = {}
    last = ""
    for line in rest.strip("\n").split("\n"):
        match = _FIELD.fullmatch(line)
        if match and match[1] in (*needed, *more):
            last = match[1]
            if last in fields:
                raise UsageError(f"{path}: {last} is given twice")
            fields[last] = match[2]
        elif last and line.startswith("  "):
            fields[last] += "\n" + line[2:]
        else:
            raise UsageError(f"{path}: not understood in its head: {line!r}")
    lacking = [name for name in needed if name not in fields]
    if lacking:
        raise UsageError(f"{path}: its head has no {', '.join(lacking)}")
    if not prose.strip() or not _NAME.fullmatch(path.stem):
        raise UsageError(f"{path}: a mutant has a name-with-dashes and a sentence of prose")
    return prose.strip(), fields


def variants_of(variant: str) -> tuple[str, ...]:
    return (variant,) if variant else ()


def kernel_of(path: Path, fields: dict[str, str]) -> tuple[str, bool, str]:
    """Which kernel the head asks for, whether in the full configuration, and with which
    sanitisers."""
    match = _KERNEL.fullmatch(fields.get("Kernel", "lts"))
    if match is None:
        raise UsageError(
            f"{path}: Kernel is lts or latest, and perhaps full, and one of {', '.join(SANITISED)}"
        )
    return match[1], bool(match[2]), match[3] or ""


def parse(path: Path) -> Mutant:
    """Raises UsageError with what is wrong with the head."""
    try:
        text = path.read_text()
    except OSError as error:
        raise UsageError(f"cannot read the mutant {path}: {error.strerror}") from error
    place = _FILE.search(text)
    if place is None or place[1] != place[2]:
        raise UsageError(f"{path} is no mutant: no diff of one file of guest-driver/")
    prose, fields = read_head(
        path,
        text[: place.start()],
        ("Class", "Source"),
        ("Kernel", "Device", "Machine", "Area", "Equivalent"),
    )
    device = fields.get("Device", "")
    if "Device" in fields and device not in DEVICES:
        raise UsageError(f"{path}: Device is one of {', '.join(name for name in DEVICES if name)}")
    kinds.kinds(fields.get("Machine", ""))
    return Mutant(
        path.stem, path, prose, fields["Class"], fields["Source"],
        fields.get("Equivalent", ""), place[1], *kernel_of(path, fields), device,
        fields.get("Machine", ""),
    )  # fmt: skip


def load(where: Path | None = None) -> list[Mutant]:
    """All mutants, by name."""
    found = sorted((where or folder()).glob("*.patch"), key=lambda path: path.stem)
    return [parse(path) for path in found]


def choose(names: Iterable[str], where: Path | None = None) -> list[Mutant]:
    """The named ones in the order given, each once; all for no name."""
    known = {m.name: m for m in load(where)}
    wanted = list(dict.fromkeys(names)) or list(known)
    wrong = [name for name in wanted if name not in known]
    if wrong:
        raise UsageError(
            f"no mutant is called {', '.join(wrong)}", "./hmmbench mutants --list names them all."
        )
    if not wanted:
        raise UsageError(f"there is no mutant in {where or folder()}")
    return [known[name] for name in wanted]


def table(mutants: Iterable[Mutant]) -> str:
    """The table of docs/mutants.md."""
    lines = ["| mutant | class | what it breaks | source |", "|---|---|---|---|"]
    for m in sorted(mutants, key=lambda m: (m.bug_class, m.name)):
        prose = " ".join(m.prose.split()) + (" *Equivalent.*" if m.proof else "")
        prose += " *Newest kernel.*" if m.kernel == "latest" else ""
        prose += " *Full configuration.*" if m.full else ""
        sanitised = {"": "", "debug": " *Sanitised kernel.*"}
        prose += sanitised.get(m.variant, f" *Kernel with {m.variant}.*")
        prose += f" *{_DEVICES[m.device]}.*" if m.device else ""
        prose += f" *Machine {m.machine}.*" if m.machine else ""
        cells = (m.name, m.bug_class, prose, m.source)
        lines.append("| " + " | ".join(c.replace("|", "\\|") for c in cells) + " |")
    return "\n".join(lines) + "\n"
