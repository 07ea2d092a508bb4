# SPDX-License-Identifier: GPL-2.0-or-later
"""`hmmbench sum`: results of parts, added up."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from hmmbench.base.errors import EXIT_ENVIRONMENT, EXIT_OK, EXIT_VIOLATION, UsageError
from hmmbench.commands import options
from hmmbench.compare import sums
from hmmbench.mutation.trial import KILLED
from hmmbench.report.result import check_writable, write_json


def main(
    files: Annotated[
        list[Path], typer.Argument(metavar="FILES...", help="What other commands wrote by --json.")
    ],
    show_all: Annotated[
        bool,
        typer.Option(
            "--all", help="Results that do not depend on the same: each group by itself."
        ),
    ] = False,
    json_file: options.JsonFile = None,
) -> int:
    """Add up results of run, mutants, selftests and exact: a long job may be run in parts.

    Parts are added if they depend on the same device, driver, agent, kernels and oracles, by the
    hashes in their files, whatever their commits. Of each file it is said whether that is still
    what this checkout holds: a part stays valid until what it tested changes.

    Exit status 1 if a part has a violation, 2 if a file cannot be used or may not be added to
    the others, 3 if a part broke off by itself.

    Example:  ./hmmbench sum results/run-*.json --json sum.json
    """
    check_writable(json_file, "--json")
    parts = [sums.read(path, sums.this_checkout, sums.kernel_here) for path in files]
    if same := sums.twice(files):
        raise UsageError(f"the same result twice: {'; '.join(same)}")
    found = sums.groups(parts)
    if not show_all:
        _refuse(found)
    for part in parts:
        _show_part(part)
    for group in found:
        typer.echo("")
        _show(group)
    violated = any(group.violated for group in found)
    lacking = any(group.lacking for group in found)
    verdict = "fail" if violated else "error" if lacking else "pass"
    write_json(
        json_file,
        {
            "command": "sum",
            "verdict": verdict,
            "parts": [
                {
                    "file": str(part.path), "kind": part.kind, "state": part.state,
                    "stale": part.stale, "unknown": part.unknown,
                    "broken_off": part.broken_off, "commit": part.depends["commit"],
                    "dirty": part.depends["dirty"],
                }
                for part in parts
            ],
            "groups": [group.to_json() for group in found],
        },
    )  # fmt: skip
    return {"fail": EXIT_VIOLATION, "error": EXIT_ENVIRONMENT}.get(verdict, EXIT_OK)


def _refuse(found: list[sums.Group]) -> None:
    """Raises UsageError if a kind has more than one group."""
    first: dict[str, sums.Group] = {}
    for group in found:
        other = first.setdefault(group.kind, group)
        if other is not group:
            raise UsageError(
                f"{group.parts[0].path} may not be added to {other.parts[0].path}: another "
                + ", ".join(sums.differences(other, group)),
                "--all shows each group of results by itself.",
            )


def _show_part(part: sums.Part) -> None:
    commit = str(part.depends["commit"])[:12] or "no commit"
    dirty = "+" if part.depends["dirty"] else ""
    broken = f"; broken off: {part.broken_off}" if part.broken_off else ""
    seed = f"seed {part.data['seed']}" if "seed" in part.data else ""
    typer.echo(
        f"{part.path}  {part.kind}  {part.line}  {seed}  {commit}{dirty}  {part.state}{broken}"
    )


def _show(group: sums.Group) -> None:
    if group.kind == "mutants":
        _show_mutants(group)
        return
    keys = sums.COUNTED[group.kind]
    typer.echo(f"{group.kind:40} {'parts':>6}" + "".join(f" {_head(k):>14}" for k in keys))
    lines = group.lines()
    if len(lines) > 1:
        lines["all"] = group.total()
    for line, counts in lines.items():
        typer.echo(f"{line:40} {counts['parts']:6,}" + "".join(f" {counts[k]:14,}" for k in keys))
    if evidence := sums.EVIDENCE.get(group.kind):
        total = group.total()
        typer.echo("  of them: " + ", ".join(f"{total[key]:,} {_head(key)}" for key in evidence))
    for machine, examples in sorted(group.machines().items()):
        typer.echo(f"{examples:12,} examples on {machine}")
    for words in group.again():
        typer.echo(f"more than once, the same examples: {words}")
    for part in group.parts:
        for v in part.data.get("violations", ()):
            typer.echo(f"{part.path}: {v['oracle']}: {v['message']}")
        if part.data.get("trouble"):
            typer.echo(f"{part.path}: {part.data['trouble']}")


def _head(key: str) -> str:
    return key.replace("_", " ")


def _show_mutants(group: sums.Group) -> None:
    typer.echo(
        f"{'mutant':34} {'kernel':14} {'status':14} {'found':>7} {'seconds':>9}  each"
    )
    mutants = group.mutants()
    for m in mutants:
        each = " ".join(
            f"{row.seconds:.1f}" if row.status == KILLED else row.status for row in m.rows
        )
        seconds = "-" if m.seconds is None else f"{m.seconds:.1f}"
        found = f"{len(m.found)}/{len(m.rows)}"
        typer.echo(f"{m.name:34} {m.kernel:14} {m.word:14} {found:>7} {seconds:>9}  {each}")
    words = sorted({m.word for m in mutants})
    typer.echo(", ".join(f"{sum(m.word == word for m in mutants)} {word}" for word in words))
    compared = group.feedback()
    for line in compared.lines() if compared.pairs else ():
        typer.echo(line)
    controls = group.controls()
    if controls:
        typer.echo(f"the sound driver: {sum(row.examples for row in controls):,} examples")
    for row in controls:
        if row.status == KILLED:
            typer.echo(f"FALSE ALARM on the sound driver: {row.message}")
