# SPDX-License-Identifier: GPL-2.0-or-later
"""A machine saved in the middle of a GPU kernel finishes it, there and in every copy."""

from __future__ import annotations

import random
import time
from pathlib import Path

import work

from hmmbench.guest import splat
from hmmbench.guest.program import Result
from hmmbench.vm.channel import protocol
from hmmbench.vm.machine import Machine

TIMES = 50


def catch_mid_run(vm: Machine, rng: random.Random, seed: int) -> tuple[work.Work, int]:
    """Start a job and stop the machine when faults are outstanding; the job and its request."""
    while True:
        job = work.mixed(seed, pages=1024, lanes=480, each=12)
        launches = vm.gpu.counters()["launches"]
        ident = vm.channel.post(protocol().HB_MSG_PROGRAM, job.program.encode())
        deadline = time.monotonic() + 30
        # How deep into the kernel is left to chance: the counts of faults at which to look.
        faults = vm.gpu.counters()["faults"] + rng.randrange(1, 1200)
        while time.monotonic() < deadline and vm.gpu.counters()["launches"] == launches:
            if vm.gpu.counters()["faults"] < faults:
                continue
            vm.pause()
            counters = vm.gpu.counters()
            if counters["pending_faults"] > 0 and counters["launches"] == launches:
                return job, ident
            vm.resume()
        # It was over before a look fell well: once more.
        job.check(finish(vm, job, ident))


def finish(vm: Machine, job: work.Work, ident: int) -> Result:
    kind, body = vm.channel.collect(ident, 120)
    assert kind == protocol().HB_MSG_PROGRAM | protocol().HB_MSG_REPLY
    return Result.decode(body, job.program)


def test_restored_mid_run(vm: Machine, tmp_path: Path) -> None:
    rng = random.Random(2)
    state = tmp_path / "state"
    pending = []
    for seed in range(TIMES):
        job, ident = catch_mid_run(vm, rng, seed)
        pending.append(vm.gpu.counters()["pending_faults"])
        vm.save(state, resume=True)
        with Machine(vm.spec, state=state, greet=False) as copy:
            job.check(finish(copy, job, ident))
            # The copy is a whole machine: more work runs in it.
            other = work.mixed(seed + 1000)
            other.check(work.run(copy, other.program))
            assert copy.gpu.counters()["pending_faults"] == 0
            assert splat.scan(copy.console.text()) == []
        # The original went on as if nothing had been.
        job.check(finish(vm, job, ident))
    assert len(pending) == TIMES
    assert min(pending) > 0
