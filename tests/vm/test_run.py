# SPDX-License-Identifier: GPL-2.0-or-later
"""The campaign on the real machine: sound examples pass, broken drivers are caught."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from work import plain

from hmmbench.build import Artifacts
from hmmbench.campaign.export_c import export
from hmmbench.campaign.replay import replay
from hmmbench.campaign.runner import Campaign
from hmmbench.example.recipe import Environment
from hmmbench.example.tracer import DEVICE_EVENTS, Tracer
from hmmbench.example.vm_target import VmTarget
from hmmbench.report.trace import RESOLUTION, align
from hmmbench.suites import driver_life
from hmmbench.vm.opener import Opener
from hmmbench.vm.spec import MachineSpec


def test_a_short_campaign_passes(spec: MachineSpec, tmp_path: Path) -> None:
    with Opener(spec) as opener, VmTarget(opener) as target:
        campaign = Campaign(
            target, tmp_path / "out", seed=11, examples=40, delays=target.delay_points()
        )
        tally = campaign.run()
        assert [f.violation.message for f in tally.findings] == []
        assert tally.examples == 40
        totals = target.sample()
        assert totals.faults > 0
        assert totals.replays > 0
        assert totals.to_device > 0
        assert totals.to_system > 0


def test_replay_of_a_sound_recipe_finds_nothing(spec: MachineSpec) -> None:
    with Opener(spec) as opener, VmTarget(opener) as target:
        result = replay(target, plain())
    assert not result.found
    assert result.executions == 3


def test_an_exported_program_runs_and_can_fail(
    spec: MachineSpec, artifacts: Artifacts, tmp_path: Path
) -> None:
    library = tmp_path / "library"
    driver_life.build_library(library)
    source = export(plain())
    assert "READ(1, 0x0, 0x5ull)" in source
    broken = source.replace("READ(1, 0x0, 0x5ull)", "READ(1, 0x0, 0x6ull)")
    with Opener(spec) as opener:
        vm = opener()
        for name, text, status in (("good", source, 0), ("bad", broken, 1)):
            (tmp_path / f"{name}.c").write_text(text)
            program = driver_life.compile_c(
                tmp_path / f"{name}.c", library, tmp_path / name, libraries=driver_life.ENGINE
            )
            vm.agent.write_file(f"/tmp/{name}", program, 0o755)
            done = vm.agent.execute(f"/tmp/{name} 2", 60)
            assert done.status == status, done.output


def test_an_execution_is_traced(spec: MachineSpec) -> None:
    """Agent, driver and device are seen, and their clocks can be brought together."""
    with Opener(replace(spec, trace=DEVICE_EVENTS)) as opener, VmTarget(opener) as target:
        tracer = Tracer(target.vm)
        for _ in range(2):
            tracer.start()
            done = target.execute(plain().program, Environment())
            driver, device = tracer.driver(), tracer.device()
    assert done.result is not None
    starts = [r.start_ns for r in done.result.ops]
    assert all(starts)
    assert starts == sorted(starts)
    ends = [r.start_ns + r.time_ns for r in done.result.ops]
    assert all(end <= start for end, start in zip(ends, starts[1:], strict=False))
    jobs = [e for e in driver if e.name == "hmm_gpu_job" and e.value("op") == 1]
    # Only the second execution: the trace was cleared.
    assert len(jobs) == 1
    assert starts[2] - RESOLUTION <= jobs[0].time_ns <= ends[2]
    assert {"hmm_gpu_fault", "hmm_gpu_job_done", "hmm_gpu_map"} <= {e.name for e in driver}
    assert {"hmm_gpu_fault", "hmm_gpu_launch", "hmm_gpu_launch_done"} <= {e.name for e in device}
    alignment = align(driver, device)
    assert alignment is not None
    assert alignment.error is not None
