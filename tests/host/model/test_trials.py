# SPDX-License-Identifier: GPL-2.0-or-later
"""What trials tell, and what is said of it; a driver that gives copies up, and says so."""

from __future__ import annotations

import errno
import struct
from dataclasses import astuple, replace

import pytest

from hmmbench.device import injection
from hmmbench.guest.program import PAGE, Op, OpResult, Program, Result
from hmmbench.model.mishaps import Mishaps
from hmmbench.model.ops import buffers, queues, refusals
from hmmbench.model.ops.buffers import Buffer
from hmmbench.model.ops.device import TakeGpu
from hmmbench.model.ops.jobs import GpuFill
from hmmbench.model.ops.queues import Queue
from hmmbench.model.ops.refusals import Refusal
from hmmbench.model.ops.trials import Trial
from hmmbench.oracle import excess, progress
from hmmbench.oracle.values import Checker

FAULT = -errno.EFAULT

GOOD = buffers.Look(buffers.Step.KEPT, 4, 0, 0, 0, 0, 0)
REFUSED = buffers.Look(buffers.Step.PAST, 4, 0, FAULT, 4 * PAGE, 0, 4 * PAGE)


def answered(
    looks: list[buffers.Look] | list[queues.Look] | list[refusals.Look], form: str
) -> OpResult:
    return OpResult(data=b"".join(struct.pack(form, *astuple(look)) for look in looks))


@pytest.mark.parametrize(
    ("look", "said"),
    [
        (GOOD, ""),
        (replace(GOOD, wrong=1, at=8, got=1), "not what was in it: at 0x8"),
        (replace(GOOD, wrong=1, at=2**64 - 1, got=1), "not what was in it: the sum over 4 pages"),
        (replace(GOOD, step=buffers.Step.ZERO, wrong=2, got=9), "a new one is not zero"),
        (replace(GOOD, step=buffers.Step.FILLED, wrong=2), "not what was just written"),
        (REFUSED, ""),
        (replace(REFUSED, status=0), "not stopped: a job wrote behind its end"),
        (replace(REFUSED, status=-errno.EIO), "wrong fault: a job that wrote behind its end ended"),
        (replace(REFUSED, at=PAGE), "wrong fault: a job that wrote behind its end is told"),
        (replace(REFUSED, step=buffers.Step.FREED, status=0), "not stopped: a job wrote after"),
        (replace(GOOD, step=buffers.Step.UNDER, status=FAULT), ""),
        (replace(GOOD, step=buffers.Step.UNDER, status=-errno.EIO), "wrong fault: a job in it"),
    ],
)
def test_looks_at_buffers(look: buffers.Look, said: str) -> None:
    found = Buffer().judge(Op(Buffer.number), answered([GOOD, look], "<IIIiQQQ"), False)
    assert found.startswith(said)
    assert bool(found) == bool(said)


CONTENT = queues.Look(queues.Step.CONTENT, 0, 0, 0, 0, 7)


@pytest.mark.parametrize(
    ("look", "said"),
    [
        (CONTENT, ""),
        (replace(CONTENT, wrong=3, at=2, got=5), "out of order: word 2 is 0x5"),
        (queues.Look(queues.Step.TOLD, -errno.ETIME, 0, 0, 0, 0), "wrong answer: the syncobj"),
        (queues.Look(queues.Step.EARLY, -errno.ETIME, 0, 0, 0, 0), ""),
        (queues.Look(queues.Step.EARLY, 0, 0, 0, 0, 0), "wrong answer: who waits for a job"),
        (queues.Look(queues.Step.ENDED, FAULT, 0, 0, 0, 0), "wrong answer: a job that waited"),
        (queues.Look(queues.Step.ASKED, -errno.ECANCELED, 0, 0, 0, 0), ""),
        (queues.Look(queues.Step.WAITED, -errno.EIO, 0, 0, 0, 0), "wrong answer: who waits"),
        (queues.Look(queues.Step.DESTROYED, -errno.ENOENT, 0, 0, 0, 0), "wrong answer: who des"),
        (queues.Look(queues.Step.AGAIN, 0, 0, 0, 0, 0), "wrong answer: who destroys it once more"),
        (queues.Look(queues.Step.RESULT, 0, 1, 7, 0, 0x1000), "another's result: job 7 of 90"),
    ],
)
def test_looks_at_queues(look: queues.Look, said: str) -> None:
    found = Queue().judge(Op(Queue.number), answered([CONTENT, look], "<IiIIQQ"), False)
    assert found.startswith(said)
    assert bool(found) == bool(said)


@pytest.mark.parametrize(
    ("look", "said"),
    [
        (refusals.Look(0, 0, 0, 8), ""),
        (refusals.Look(FAULT, 0, 8, 8), "wrongly refused: a job that wrote"),
        (refusals.Look(FAULT, 1, 8, 8), ""),
        (refusals.Look(FAULT, 1, 16, 8), "wrong fault: a job that wrote"),
        (refusals.Look(-errno.ENOMEM, 1, 8, 8), "wrong fault: a job that wrote"),
        (refusals.Look(0, 1, 0, 8), "not stopped: a job wrote what"),
    ],
)
def test_looks_at_refusals(look: refusals.Look, said: str) -> None:
    found = Refusal().judge(Op(Refusal.number), answered([look], "<iIQQ"), False)
    assert found.startswith(said)
    assert bool(found) == bool(said)


@pytest.mark.parametrize("kind", [Buffer(), Queue(), Refusal()])
def test_one_that_says_nothing(kind: Trial) -> None:
    o = Op(kind.number)
    assert kind.judge(o, OpResult(), False).startswith("nothing seen")
    assert kind.judge(o, OpResult(aux0=1), False) == ""
    with pytest.raises(ValueError, match="3 bytes"):
        kind.judge(o, OpResult(data=b"abc"), False)


@pytest.mark.parametrize("rules", [(), ("bus.read nth=40 error",)])
def test_nothing_is_said_beside_a_device_that_ends_jobs(rules: tuple[str, ...]) -> None:
    p = Program([Op(Buffer.number, arg=buffers.Word.LOOK)])
    bad = Result([answered([replace(GOOD, wrong=1)], "<IIIiQQQ")])
    violation = Checker(p, bad, rules=rules).run()
    assert (violation is None) == bool(rules)
    assert violation is None or violation.oracle == "contents"


HOME = f"ce.copy {injection.HOME}"


@pytest.mark.parametrize(
    ("rule", "hurts", "kept"),
    [
        (f"{HOME} count=1 error", False, True),
        (f"{HOME} count=2 error", True, False),
        ("ce.copy nth=1 error", False, False),
        ("ce.copy prob=0.2 count=1 error", False, False),
        ("bus.read nth=40 error", False, False),
        ("ce.copy match=100000/ffffffffffd00000 count=6 error", False, False),
    ],
)
def test_who_may_be_told_that_a_page_cannot_be_had(rule: str, hurts: bool, kept: bool) -> None:
    assert injection.hurts((rule,)) == hurts
    assert injection.keeps_promises((rule,)) == kept
    assert (Mishaps((rule,)).hurts, Mishaps((rule,)).promises) == (hurts, kept)


def test_what_comes_behind_a_page_that_could_not_be_had_is_not_judged() -> None:
    p = Program([Op(GpuFill.number, len=PAGE), Op(Buffer.number, arg=buffers.Word.LOOK, phase=1)])
    told = Result([OpResult(status=-errno.EIO), OpResult(aux0=1)])
    assert Checker(p, told, rules=(f"{HOME} count=2 error",)).run() is None
    assert Checker(p, told, rules=(f"{HOME} count=1 error",)).run() is not None


def test_who_dies_of_it() -> None:
    dead = Result([], died=1, died_signal=7)
    assert progress.by_sigbus(dead)
    assert not progress.by_sigbus(replace(dead, died_signal=11))
    assert not progress.by_sigbus(replace(dead, timeout=1))
    assert not progress.by_sigbus(replace(dead, died=3))
    assert not progress.by_sigbus(Result([]))


@pytest.mark.parametrize(
    ("rules", "errors", "bad"),
    [
        ((), 0, False), ((), 1, True),
        ((f"{HOME} count=2 error",), 1, False), ((f"{HOME} count=2 error",), 2, True),
        ((f"{HOME} count=4 error",), 3, False), ((f"{HOME} count=4 error",), 4, True),
        (("ce.copy prob=0.2 error",), 50, False), (("bus.read nth=40 error",), 5, False),
    ],
)  # fmt: skip
def test_copies_that_are_blamed_for_others(rules: tuple[str, ...], errors: int, bad: bool) -> None:
    before, after = (f"copy_errors {n}\n" for n in (7, 7 + errors))
    result = Result([], counters_before=before, counters_after=after)
    assert (excess.blamed(Program([]), result, rules) is not None) == bad
    assert excess.blamed(Program([Op(TakeGpu.number)]), result, rules) is None
