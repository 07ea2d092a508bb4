# SPDX-License-Identifier: GPL-2.0-or-later
"""What a run says at its end: JSON for programs, JUnit for CI, a table for people."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from hmmbench.base.errors import UsageError
from hmmbench.model.cells import ORACLES
from hmmbench.report.words import seen_with
from hmmbench.vm.kinds import USUAL

#: The test of a KTAP file that is none of an oracle.
EVIDENCE = "evidence"


@dataclass
class Report:
    """Keys are stable: other tools read them.  `wall_s` and `stages` are seconds."""

    verdict: str = "error"
    seed: int = 0
    grammar: int = 1
    profile: str = ""
    #: of --minutes; 0: so many examples as the profile has, or were asked for
    minutes: float = 0.0
    kernel: str = ""
    qemu: str = ""
    accel: str = ""
    examples: int = 0
    operations: int = 0
    gpu_accesses: int = 0
    gpu_faults: int = 0
    replays: int = 0
    pages_to_device: int = 0
    pages_to_system: int = 0
    #: requests to migrate to VRAM
    migrations: int = 0
    undecided: int = 0
    #: asked for, and of these tried: there was room, and what they need
    promises: int = 0
    promises_tried: int = 0
    #: files that were to be on a disk or at a server, and those for which the kernel had one
    stores: int = 0
    stores_there: int = 0
    #: that were to be read at programs' ends, and were
    pages_to_read: int = 0
    pages_read: int = 0
    #: examples that were to run again for a census of what they leave, and of which it was taken
    censuses: int = 0
    censuses_taken: int = 0
    #: looks at the kernel's accounts of a process, and those for which nothing moved
    accounts: int = 0
    accounts_taken: int = 0
    #: machines scanned at their end for memory that nobody knows (kmemleak), and those of which
    #: a kernel that should could not be
    scans: int = 0
    unscanned: int = 0
    #: counter that a pass rests on -> times that it was not there
    missing: dict[str, int] = field(default_factory=dict)
    #: executions in which the mirror audit was on and not ready
    unready: int = 0
    audit: str = "off"
    schedule: str = "random"
    #: which examples were on which machine: machine (vm/kinds.py, and the sanitised kernel), kind,
    #: kernel, number of the first and how many, seconds, and why it was none if that is so
    portions: list[dict[str, Any]] = field(default_factory=list)
    #: machines at the same time, and how many were started in all
    jobs: int = 1
    machines: int = 0
    #: whose QEMU was ended from outside, or ended itself without a crash
    machines_lost: int = 0
    #: what machines failed with, which may have been beside a violation
    machines_failed: list[str] = field(default_factory=list)
    #: ordered pairs of delay points: how many there are, were tried, were met (schedule pairs)
    interleavings: dict[str, int] = field(default_factory=dict)
    #: with feedback: inputs and features, of these new ones, how examples were drawn, features by
    #: kind, inputs that are kept (campaign/explore.py)
    exploration: dict[str, Any] = field(default_factory=dict)
    audit_checks: int = 0
    audit_undecided: int = 0
    #: check of the device's -> times that it came to a bound and did not look (docs/checks.md)
    unlooked: dict[str, int] = field(default_factory=dict)
    ops_per_s: float = 0.0
    wall_s: float = 0.0
    violations: list[dict[str, Any]] = field(default_factory=list)
    #: what a pass needs and did not happen (verdict `short`): name and what was seen
    shortfalls: list[str] = field(default_factory=list)
    error: str = ""
    coverage: dict[str, Any] = field(default_factory=dict)
    #: `run --coverage`: source -> lines, hit, percent, missed (first and last line of stretches)
    line_coverage: dict[str, Any] = field(default_factory=dict)
    #: the same for the driver as a whole and each file of the kernel
    line_coverage_total: dict[str, Any] = field(default_factory=dict)
    #: what was run for it, and how that ended
    line_coverage_ran: list[str] = field(default_factory=list)
    html: str = ""
    #: options of `replay` that give the same kernel and driver
    options: list[str] = field(default_factory=list)
    stages: dict[str, float] = field(default_factory=dict)
    versions: dict[str, str] = field(default_factory=dict)
    #: see build/depends.py
    depends: dict[str, Any] = field(default_factory=dict)

    def write_json(self, path: Path) -> None:
        write_result(path, "run", asdict(self), self.depends)

    def write_junit(self, path: Path) -> None:
        """One test case for the run; each violation is a failure of it."""
        suite = ElementTree.Element(
            "testsuite", name="hmmbench", tests="1", skipped="0",
            failures="1" if self.verdict == "fail" else "0",
            errors="1" if self.verdict in ("error", "short") else "0", time=f"{self.wall_s:.3f}",
        )  # fmt: skip
        properties = ElementTree.SubElement(suite, "properties")
        for name, value in asdict(self).items():
            if isinstance(value, (str, int, float)):
                ElementTree.SubElement(properties, "property", name=name, value=str(value))
        case = ElementTree.SubElement(
            suite, "testcase", classname="hmmbench.run", name=f"{self.profile} seed {self.seed}",
            time=f"{self.wall_s:.3f}",
        )  # fmt: skip
        for v in self.violations:
            failure = ElementTree.SubElement(
                case, "failure", type=str(v["oracle"]), message=_clean(_message(v))
            )
            failure.text = _clean(f"recipe: {v['recipe'] or '-'}\n{v.get('details', '')}")
        if self.verdict in ("error", "short"):
            ElementTree.SubElement(case, "error", message=_clean(self.error))
        root = ElementTree.Element("testsuites")
        root.append(suite)
        ElementTree.indent(root)
        _write(path, ElementTree.tostring(root, encoding="unicode", xml_declaration=True) + "\n")

    def write_ktap(self, path: Path) -> None:
        """KTAP version 1 (kernel, Documentation/dev-tools/ktap.rst): a test for each oracle, and
        `evidence`, which fails for what a pass needs and did not happen.

        An oracle passes when it judged the whole run and found nothing; one that did not look is
        skipped.  After a violation the run stops, so the others passed as far as it came.  A run
        without a verdict is one failed test "run": KTAP 1 has no "Bail out!", and nothing was
        judged to its end.
        """
        # What `status` and `mapping` find is reported by the values oracle, of which they are part.
        named = set(ORACLES) - {"status", "mapping"}
        tests = [*sorted(named | {str(v["oracle"]) for v in self.violations}), EVIDENCE]
        done = self.verdict in ("pass", "fail", "short")
        lines = ["KTAP version 1", f"1..{len(tests) if done else 1}"]
        lines.append(_one_line(f"# hmmbench {self.profile} seed {self.seed} on {self.kernel}"))
        if not done:
            lines += ["# " + _one_line(self.error or "no verdict"), "not ok 1 run"]
            tests = []
        if said := self.machines_drawn():
            lines.append(_one_line(f"# examples by machine: {said}"))
        for number, oracle in enumerate(tests, 1):
            mine = [v for v in self.violations if v["oracle"] == oracle]
            for v in mine:
                lines.append("# " + _one_line(_message(v)))
                lines.append("# " + _one_line(f"recipe: {v['recipe'] or '-'}"))
            if oracle == EVIDENCE:
                lines += ["# " + _one_line(short) for short in self.shortfalls]
            bad = mine or (oracle == EVIDENCE and self.shortfalls)
            # "#" would begin a directive.
            name = _one_line(oracle).replace("#", "?")
            skipped = "" if bad or oracle not in self.blind() else " # SKIP it did not look"
            lines.append(f"{'not ok' if bad else 'ok'} {number} {name}{skipped}")
        _write(path, "\n".join(lines) + "\n")

    def machines_drawn(self) -> str:
        """Examples by machine; "" if all were on the usual one."""
        if {p["machine"] for p in self.portions} <= {USUAL}:
            return ""
        return ", ".join(
            f"{p['machine']} ({p['kind']}) " + ("refused" if p["refused"] else str(p["examples"]))
            for p in self.portions
        )

    def blind(self) -> set[str]:
        """Oracles that have looked at nothing."""
        looked = {
            "mirror": self.audit_checks > self.audit_undecided,
            "contents": self.pages_read > 0,
            "promise": self.promises_tried > 0,
            "account": self.accounts_taken > 0,
        }
        return {name for name, some in looked.items() if not some}

    def show(self, console: Console) -> None:
        """The summary table."""
        table = Table(show_header=False, box=None, padding=(0, 2, 0, 0))
        colour = {"pass": "green", "fail": "red"}.get(self.verdict, "yellow")
        table.add_row("verdict", f"[bold {colour}]{self.verdict}[/]")
        table.add_row("machine", f"Linux {self.kernel}, QEMU {self.qemu}, {self.accel}")
        if said := self.machines_drawn():
            table.add_row("drawn", said)
        table.add_row("seed", f"{self.seed} ({self.profile})")
        table.add_row(
            "examples",
            f"{self.examples}, {self.operations} operations ({self.ops_per_s:.0f}/s)",
        )
        table.add_row("GPU", f"{self.gpu_accesses} accesses, {self.gpu_faults} faults, "
                             f"{self.replays} replays")  # fmt: skip
        table.add_row(
            "migrated", f"{self.pages_to_device} pages to the device, {self.pages_to_system} back"
        )
        table.add_row("audit", f"{self.audit}: {self.audit_checks} translations compared, "
                               f"{self.audit_undecided} undecided")  # fmt: skip
        table.add_row("promises", f"{self.promises_tried} of {self.promises} tried; "
                                  f"{self.pages_read} pages read again")  # fmt: skip
        if self.stores:
            table.add_row("files", f"{self.stores_there} of {self.stores} on a disk or at a server "
                                   "as asked for, the others in memory")  # fmt: skip
        table.add_row("kernel", f"{self.censuses_taken} of {self.censuses} censuses of what is"
                                f" left, {self.accounts_taken} of {self.accounts} accounts"
                                " compared")  # fmt: skip
        if self.scans:
            table.add_row("leaks", f"{self.scans} machines scanned at their end (kmemleak)")
        table.add_row("undecided", f"{self.undecided} words that several had to do with at once")
        for name, times in self.unlooked.items():
            table.add_row("not looked", f"[yellow]{name}[/] came to its bound {times} times")
        if self.machines_lost:
            table.add_row("machines", f"[yellow]{self.machines_lost} lost[/] of {self.machines}")
        for failed in self.machines_failed:
            table.add_row("machine", f"[yellow]failed:[/] {escape(failed)}")
        for short in self.shortfalls:
            table.add_row("shortfall", f"[yellow]{escape(short)}[/]")
        if self.interleavings:
            table.add_row(
                "interleavings", "{pairs_met} of {pairs} ordered pairs of points met, "
                "{pairs_tried} tried".format(**self.interleavings),
            )  # fmt: skip
        if self.exploration:
            table.add_row(
                "exploration", "{features} states ({new_features} new) by {inputs} inputs "
                "({new_inputs} new)".format(**self.exploration),
            )  # fmt: skip
        if self.line_coverage_total:
            table.add_row("lines", ", ".join(
                f"{name} {found['percent']} %" for name, found in self.line_coverage_total.items()
            ))  # fmt: skip
        table.add_row("time", f"{self.wall_s:.1f} s")
        console.print(table)
        if self.html:
            # Not in the table, which would break a long path.
            console.print(f"report    {self.html}", markup=False, highlight=False, soft_wrap=True)
        for v in self.violations:
            console.print(f"\n[bold red]{v['oracle']}[/]: ", end="")
            console.print(str(v["message"]), markup=False, highlight=False, soft_wrap=True)
            if not v["recipe"]:
                continue
            console.print(
                f"  {v['operations']} operations: ./hmmbench replay {v['recipe']}",
                markup=False, highlight=False, soft_wrap=True,
            )  # fmt: skip
            if not v.get("rate"):
                console.print("  not seen again when repeated; the recipe is the whole example")
            if said := _where_seen(v):
                console.print(f"  ({said})", markup=False, highlight=False, soft_wrap=True)


def _where_seen(violation: dict[str, Any]) -> str:
    return seen_with(violation.get("shown_by", ()), violation.get("looked_for", 0))


def _message(violation: dict[str, Any]) -> str:
    """With what a reader of that alone should know."""
    seen = _where_seen(violation)
    return f"{violation['message']} ({seen})" if seen else str(violation["message"])


def _clean(text: str) -> str:
    """XML 1.0 has no control characters."""
    return "".join(c if c in "\n\t" or ord(c) >= 32 else "?" for c in text)


def _one_line(text: str) -> str:
    """A KTAP line cannot be continued."""
    return "".join(c if c.isprintable() else " " for c in text)


def write_json(path: Path | None, data: Any) -> None:
    """What `--json FILE` writes, if it was given.  Raises UsageError."""
    if path is not None:
        _write(path, json.dumps(data, indent=1) + "\n")


def write_result(
    path: Path | None, command: str, data: dict[str, Any], depends: dict[str, Any]
) -> None:
    """The same of a command that tests or measures: with what the result depends on (depends.py),
    so that `hmmbench sum` can add it to others."""
    write_json(path, {"command": command, **data, "depends": depends})


def _write(path: Path, text: str) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    except OSError as error:
        raise UsageError(f"cannot write {path}: {error.strerror}") from error


def check_writable(path: Path | None, option: str) -> None:
    """Say before the work that a result will have no place.  Raises UsageError."""
    if path is None:
        return
    if path.is_dir():
        raise UsageError(f"{option} {path} is a folder")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("a"):
            pass
    except OSError as error:
        raise UsageError(f"{option} {path}: {error.strerror}") from error
