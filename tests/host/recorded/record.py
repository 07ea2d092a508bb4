# SPDX-License-Identifier: GPL-2.0-or-later
"""Record anew what the tests here compare with: README.md says when.

    PYTHONPATH=harness python tests/host/recorded/record.py programs
    PYTHONPATH=harness python tests/host/recorded/record.py answers --kernel lts
    PYTHONPATH=harness python tests/host/recorded/record.py verdicts
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import answers
import recording

from hmmbench.base.errors import HmmbenchError
from hmmbench.base.interrupt import interruptible
from hmmbench.base.ui import Ui
from hmmbench.build import BuildRequest, ensure
from hmmbench.campaign.runner import Campaign
from hmmbench.example.vm_target import VmTarget
from hmmbench.mutation import mutants
from hmmbench.vm.opener import Opener
from hmmbench.vm.standard import best_spec

#: Answers of one mutant at most, and the examples that are spent on them: those in which it
#: fails are kept, then others.
EACH, TRIED = 24, 48

#: Of those that use up a machine, which take longest, so many are enough.
HUNG = 3

#: Seconds after which no further mutant is taken.
LIMIT_S = 3600.0


def programs(grammar: int) -> None:
    """Some minutes of one CPU."""
    recording.programs(grammar).write_bytes(
        b"".join(recording.digest(n, grammar) for n in range(recording.COUNT))
    )


def collect(
    kernel: str, count: int, skip: int, each: int, limit_s: float, resume: bool
) -> None:  # fmt: skip
    """Answers of the sound driver, at least half of `count`, and of mutants.

    The device behaves or not, and races are widened, as in a campaign; its audit is off, because
    what it sees is no matter of the answer.

    skip, each -- mutants are taken from this one on, and every `each`th (so that the two kernels
                  get different ones)
    resume     -- the answers that are there stay, as far as there is room for them
    """
    first = 0 if kernel == "lts" else recording.COUNT // 2
    there = list(answers.read(answers.FILES[kernel])) if resume else []
    broken = [one for one in there if one.driver != answers.SOUND]
    sound = [one for one in there if one.driver == answers.SOUND]
    drivers = {one.driver for one in broken}
    numbers = iter(range(max((one.number + 1 for one in there), default=first), recording.COUNT))
    begun = time.monotonic()
    for mutant in mutants.load()[skip::each]:
        if mutant.name in drivers:
            continue
        if mutant.debug or mutant.device or mutant.proof or mutant.kernel not in ("lts", kernel):
            continue
        if len(broken) >= count // 2 or time.monotonic() - begun > limit_s:
            break
        request = replace(mutant.request(), kernel=kernel)
        try:
            with machine(request) as (target, campaign):
                seen = list(executed(target, campaign, numbers, mutant.name, TRIED, EACH))
        except HmmbenchError as error:
            # A driver that does not even start, say: there is no answer.
            print(f"{mutant.name}: {error.message}", flush=True)
            continue
        failing = [a for a in seen if a.verdict.violations]
        passing = [a for a in seen if not a.verdict.violations]
        kept = [*failing, *passing[: EACH - len(failing)]]
        broken += kept
        print(f"{mutant.name}: {len(failing)} of {len(seen)} fail, {len(kept)} kept", flush=True)
        save(kernel, [*broken, *sound])
    missing = count - len(broken) - len(sound)
    if missing > 0:
        with machine(BuildRequest(kernel=kernel)) as (target, campaign):
            sound += executed(
                target, campaign, numbers, answers.SOUND, 2 * missing, missing, True
            )
    save(kernel, [*broken, *sound[: count - len(broken)]])


def save(kernel: str, found: list[answers.Answer]) -> None:
    answers.write(answers.FILES[kernel], found)
    oracles = Counter(o for a in found for o, _, _ in a.verdict.violations)
    size = answers.FILES[kernel].stat().st_size
    print(f"{kernel}: {len(found)} answers, {size} bytes, {dict(oracles)}", flush=True)


@contextmanager
def machine(request: BuildRequest) -> Iterator[tuple[VmTarget, Campaign]]:
    """A machine, and a campaign that says what surrounds each program in it."""
    artifacts = ensure(request, Ui(quiet=True))
    spec, _ = best_spec(artifacts)
    with (
        tempfile.TemporaryDirectory(prefix="hmmbench-record-") as out,
        Opener(spec) as opener,
        VmTarget(opener) as target,
    ):
        yield target, Campaign(target, Path(out), delays=target.delay_points())


def executed(
    target: VmTarget, campaign: Campaign, numbers: Iterator[int], driver: str, tried: int,
    enough: int, whatever: bool = False,
) -> Iterator[answers.Answer]:  # fmt: skip
    """Answers to `tried` programs, until `enough` of them fail, or there are `enough` of any."""
    found = hung = 0
    for _, number in zip(range(tried), numbers, strict=False):
        program = recording.generate(number)
        env = replace(campaign.surroundings.of(number, program), audit="off", rebind=False)
        done = target.execute(program, env)
        answer = answers.of(number, driver, done)
        if answer is None:
            continue
        yield answer
        if driver == answers.SOUND and answer.verdict.violations:
            print(f"the sound driver, program {number}: {done.violations}", flush=True)
        found += whatever or bool(answer.verdict.violations)
        hung += bool(done.tainted)
        if found >= enough or (hung >= HUNG and not whatever):
            return


def verdicts() -> None:
    """Judge the recorded answers anew: an oracle was changed on purpose."""
    for path in answers.FILES.values():
        found = list(answers.read(path))
        differing = 0
        for one in found:
            now = one.judged()
            differing += now != one.verdict
            one.verdict = now
        answers.write(path, found)
        print(f"{path.name}: {differing} of {len(found)} verdicts differ")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n", 1)[0])
    commands = parser.add_subparsers(required=True)
    one = commands.add_parser("programs", help="the generator's programs, by hash")
    one.add_argument("--grammar", type=int, required=True)
    one.set_defaults(run=lambda args: programs(args.grammar))
    one = commands.add_parser("answers", help="of machines with one kernel, and their verdicts")
    one.add_argument("--kernel", choices=list(answers.FILES), required=True)
    one.add_argument("--count", type=int, default=1000, help="answers (default: %(default)s)")
    one.add_argument("--skip", type=int, default=0, help="mutants before the first one taken")
    one.add_argument("--each", type=int, default=2, help="take every so many-th mutant")
    one.add_argument("--limit", type=float, default=LIMIT_S, help="seconds for the mutants")
    one.add_argument("--resume", action="store_true", help="keep the answers that are there")
    one.set_defaults(
        run=lambda w: collect(w.kernel, w.count, w.skip, w.each, w.limit, w.resume)
    )
    one = commands.add_parser("verdicts", help="of the answers that are recorded")
    one.set_defaults(run=lambda _: verdicts())
    words = parser.parse_args()
    with interruptible():
        words.run(words)


if __name__ == "__main__":
    main()
