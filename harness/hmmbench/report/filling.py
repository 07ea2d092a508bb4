# SPDX-License-Identifier: GPL-2.0-or-later
"""A campaign's report from what it did."""

from __future__ import annotations

from hmmbench.example.totals import Totals
from hmmbench.report.result import Report
from hmmbench.report.tally import Tally

#: Words that may stay without a judgement (several changes of one view at a time, too many
#: orders): so many, and this part of the operations. The sound driver's are 0.3 %. Comparisons of
#: the mirror audit (a CPU that fills its entry meanwhile), too; the sound driver has none.
UNDECIDED, UNDECIDED_PART = 20, 0.02

#: A mirror audit of this mode that has compared nothing after so many accesses of the GPU was none:
#: `sampled` takes one of 16, in each engine.
AUDITED = {"sampled": 1000, "fill": 1, "access": 1}

#: So often something is done before it is evidence that nothing came of it: accesses of the GPU
#: without a fault, requests to migrate without a page that moved, promises of which none was tried,
#: examples of which no census was taken.
ACCESSES, MIGRATIONS, PROMISES, CENSUSES = 1000, 20, 10, 3


def fill(report: Report, tally: Tally, totals: Totals) -> None:
    report.examples = tally.examples
    report.operations = tally.operations
    report.gpu_accesses = tally.gpu_accesses
    report.undecided = tally.undecided
    report.violations = [f.to_json() for f in tally.findings]
    # Without a recipe: no program shows it.
    report.violations += [
        {"oracle": v.oracle, "message": v.message, "details": v.details, "recipe": "",
         "operations": 0, "rate": 1.0}
        for v in totals.ends
    ]  # fmt: skip
    report.promises, report.promises_tried = tally.promises, tally.promises_tried
    report.stores, report.stores_there = tally.stores, tally.stores_there
    report.pages_to_read, report.pages_read = tally.pages_to_read, tally.pages_read
    report.censuses, report.censuses_taken = tally.censuses, tally.censuses_taken
    report.accounts, report.accounts_taken = tally.accounts, tally.accounts_taken
    report.scans, report.unscanned = totals.scans, totals.unscanned
    report.migrations = tally.coverage.rows["migrate to VRAM"]
    report.missing, report.unready = dict(sorted(totals.missing.items())), totals.unready
    report.coverage = tally.coverage.to_json()
    report.gpu_faults, report.replays = totals.faults, totals.replays
    report.pages_to_device, report.pages_to_system = totals.to_device, totals.to_system
    report.machines, report.machines_lost = totals.machines, totals.lost
    report.machines_failed = list(tally.failed)
    report.audit_checks, report.audit_undecided = totals.audit_checks, totals.audit_undecided
    report.unlooked = dict(sorted(totals.unlooked.items()))
    if tally.run_s:
        report.ops_per_s = round(tally.operations / tally.run_s, 1)


def conclude(report: Report) -> None:
    """The verdict of a run that came to its end."""
    if report.undecided > UNDECIDED + UNDECIDED_PART * report.operations:
        report.shortfalls.append(
            f"undecided: {report.undecided} words of {report.operations} operations could not be"
            " judged"
        )
    least = AUDITED.get(report.audit)
    # A comparison is counted before it is known whether it can be made.
    compared = report.audit_checks - report.audit_undecided
    if least is not None and report.gpu_accesses >= least and compared <= 0:
        report.shortfalls.append(
            f"no mirror audit: the device compared nothing in {report.gpu_accesses} accesses. An"
            " IOMMU that translates, a driver that does not program it, or another architecture;"
            " --audit off if that is known"
        )
    elif report.audit_undecided > UNDECIDED + UNDECIDED_PART * report.audit_checks:
        report.shortfalls.append(
            f"undecided: {report.audit_undecided} of {report.audit_checks} comparisons of the"
            " mirror audit could not be made"
        )
    if report.portions and not report.examples:
        report.shortfalls.append("no examples: the driver refused the device wherever it might")
    report.shortfalls += _lacking(report)
    if report.violations:
        report.verdict = "fail"
    elif report.shortfalls:
        report.verdict = "short"
        report.error = "; ".join(report.shortfalls)
    else:
        report.verdict = "pass"


def _lacking(report: Report) -> list[str]:
    """What a pass needs and was not there or never happened, each with its name before a colon."""
    out = []
    if report.audit == "off" and report.gpu_accesses:
        out.append("mirror oracle off: nobody compared translations with the CPU's page table")
    elif report.unready:
        out.append(
            f"mirror oracle not ready: in {report.unready} executions the driver had not told the"
            " device of the CPU's page tables"
        )
    if report.missing:
        out.append(f"hook missing: there is no counter {', '.join(report.missing)}")
    if report.gpu_accesses >= ACCESSES and not report.gpu_faults:
        out.append(f"no faults: none in {report.gpu_accesses} accesses of the GPU")
    if report.migrations >= MIGRATIONS and not report.pages_to_device:
        out.append(
            f"no migrations: no page moved to VRAM in {report.migrations} requests for that, or"
            " the driver does not count them"
        )
    if report.promises >= PROMISES and not report.promises_tried:
        out.append(f"no promises: of {report.promises} none could be tried")
    if report.censuses >= CENSUSES and not report.censuses_taken:
        out.append(
            f"leaks not looked for: of {report.censuses} programs that were to run again none was"
            " followed by a census of the kernel's memory"
        )
    if report.unscanned:
        out.append(
            f"leaks not scanned: kmemleak was off at the end of {report.unscanned} machines, and"
            f" found what it could in {report.scans}"
        )
    if report.accounts >= PROMISES and not report.accounts_taken:
        out.append(f"accounts not compared: of {report.accounts} looks none could be taken")
    if report.pages_to_read and not report.pages_read:
        out.append(f"contents not read: none of {report.pages_to_read} pages")
    return out
