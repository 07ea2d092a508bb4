# SPDX-License-Identifier: GPL-2.0-or-later
"""Every workload, and that a wrong one is found; sessions in a real machine."""

from __future__ import annotations

import errno
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hmmbench import gpu
from hmmbench.base import paths
from hmmbench.base.errors import UsageError
from hmmbench.build import Artifacts
from hmmbench.commands import workload as command
from hmmbench.gpu.errors import CompileError, SessionError
from hmmbench.guest import splat
from hmmbench.oracle import mirror
from hmmbench.suites import workload
from hmmbench.vm.channel import Channel
from hmmbench.vm.machine import Machine
from hmmbench.vm.snapshot import Snapshots
from hmmbench.vm.spec import MachineSpec

NAMES = [w.name for w in workload.find()]


@pytest.fixture(scope="module")
def machine(spec: MachineSpec, snapshots: Snapshots) -> Iterator[Machine]:
    """One for all: a session leaves nothing, and every test says so."""
    with snapshots.open(spec) as vm:
        yield vm


@pytest.fixture(autouse=True)
def clean(machine: Machine) -> Iterator[None]:
    before = listing(machine)
    yield
    assert listing(machine) == before
    assert splat.scan(machine.console.text()) == []


def listing(vm: Machine) -> str:
    """The files and processes that a session could leave behind, and the limit of VRAM."""
    return vm.agent.check(
        "ls /tmp; ps | grep -c '[h]mmbench-session'; cat /sys/kernel/debug/dri/0/vram_limit; true"
    )


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("size", ["tiny", "small"])
def test_passes(machine: Machine, name: str, size: str) -> None:
    (one,) = workload.choose([name])
    outcome = workload.run_one(machine, one, size)
    assert (outcome.verdict, outcome.detail) == ("pass", "")
    assert outcome.counters["jobs_done"] > 0
    assert outcome.counters["dev_instrs"] > 0
    assert outcome.footprint > 0
    assert outcome.story["faults"] >= outcome.story["batches"] > 0
    assert outcome.arguments == workload.load(one).SIZES[size]


@pytest.mark.parametrize("name", NAMES)
def test_passes_with_half_the_vram(machine: Machine, name: str) -> None:
    """And every translation that the GPU fetches is the CPU's."""
    (one,) = workload.choose([name])
    before = mirror.read(machine.gpu.violations()).checks
    outcome = workload.run_one(machine, one, "tiny", vram=0.5, audit="fill")
    assert mirror.read(machine.gpu.violations()).checks > before
    assert (outcome.verdict, outcome.detail) == ("pass", "")
    assert outcome.vram_pages is not None
    assert 0 < outcome.vram_pages <= -(-outcome.movable // 2)


def test_stories(machine: Machine) -> None:
    """What some of them are said to show is what the counters say."""
    def run(name: str, vram: float | None = None) -> workload.WorkloadOutcome:
        return workload.run_one(machine, workload.choose([name])[0], "tiny", vram)

    nodes = 20
    chased = run("linked_list").counters
    assert chased["fault_batches"] >= nodes
    ways = run("one_pointer").figures
    assert ways["prefetched"]["faults"] < ways["unified"]["faults"]
    assert ways["explicit"]["engine_copy_bytes"] > ways["unified"]["engine_copy_bytes"]
    assert run("stencil", 0.5).counters["pages_evicted"] > 0
    assert run("mailbox").story["bytes_to_vram"] == 0
    # The columns are read where they are: half of the rest does not hold the table.
    assert run("analytics", 0.5).story["evictions"] > 0


def test_progress_is_told(machine: Machine) -> None:
    told: list[tuple[int, int, str]] = []
    (one,) = workload.choose(["training"])
    workload.run_one(machine, one, "tiny", progress=lambda *words: told.append(words))
    steps = workload.load(one).SIZES["tiny"]["steps"]
    assert told == [(step, steps, "steps") for step in range(steps)]


def broken(tmp_path: Path, name: str, old: str, new: str) -> workload.Workload:
    """A copy of a workload whose kernel is changed in one place."""
    for path in workload.folder().glob(f"{name}*.[chp]*"):
        shutil.copy(path, tmp_path)
    source = tmp_path / f"{name}.c"
    assert source.read_text().count(old) == 1
    source.write_text(source.read_text().replace(old, new))
    (one,) = workload.choose([str(tmp_path / f"{name}.py")])
    return one


#: For each workload a mistake in its kernel, and how the complaint begins.  (Both boxes of the
#: mailbox answer wrongly; the talk ends with the first, which may be either.)
MISTAKES = {
    "analytics": ("mine[r].amount, __ATOMIC", "mine[r].count, __ATOMIC", "count and sum"),
    "bfs": ("&far, next, 0,", "&far, next + 1, 0,", "distances: "),
    "deep_copy": ("row->data[i] += hmm_bid();", "", "sums by the GPU: "),
    "gups": ("__atomic_fetch_xor", "__atomic_fetch_or", "the table: "),
    "hash_table": ("args->keys[i], 1)", "args->keys[i], 2)", "values: "),
    "histogram": ("b < BINS;", "b < BINS / 4;", "the bins: "),
    "linked_list": ("hash * 31", "hash * 33", "count and hash: "),
    "mailbox": ("3 * b->message", "2 * b->message", r"answer 1 of box [01]: "),
    "mappings": ("3 * args->x[i] + 1", "3 * args->x[i] + 2", "malloc: "),
    "matmul": ("b[i][x]", "b[x][i]", "the product: "),
    "max_flow": ("args->arrived, amount", "args->arrived, 1", "what arrived: "),
    "one_pointer": ("0x9e3779b97f4a7c15 + i", "0x9e3779b97f4a7c15", "explicit: "),
    "prefix_sum": ("before += s[hmm_ntid() - 1]", "before += s[0]", "the prefix sums: "),
    "radix_sort": ("(DIGITS - 1)", "(DIGITS - 2)", "the keys: "),
    "reduction": ("for (uint32_t by = 16;", "for (uint32_t by = 8;", "the sum: "),
    "saxpy": ("a * x[i] + y[i]", "a * x[i] - y[i]", "y: "),
    "spmv": ("args->column[i]]", "args->column[i] / 2]", "the product: "),
    "stencil": ("x == n - 1 ||", "", "the grid "),
    "training": ("args->mask[i] == 0", "args->mask[i] < 0", "the loss of step 1: "),
}


@pytest.mark.parametrize("name", NAMES)
def test_a_wrong_result_is_found(machine: Machine, tmp_path: Path, name: str) -> None:
    old, new, said = MISTAKES[name]
    outcome = workload.run_one(machine, broken(tmp_path, name, old, new), "tiny")
    assert outcome.verdict == "fail"
    assert re.match(said, outcome.detail)


TROUBLE = """'A workload that computes nothing and leaves trouble.'
SIZES = {"tiny": {}, "small": {}, "large": {}}
def run(gpu):
    gpu.vm.agent.execute('''%s''')
"""


def in_trouble(vm: Machine, tmp_path: Path, command: str) -> workload.WorkloadOutcome:
    (tmp_path / "trouble.py").write_text(TROUBLE % command)
    return workload.run_one(vm, workload.choose([str(tmp_path / "trouble.py")])[0], "tiny")


def test_what_the_oracles_say(
    spec: MachineSpec, snapshots: Snapshots, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Trouble of each kind, in a machine of its own; the last one ends it."""
    with snapshots.open(spec) as vm:
        sound = in_trouble(vm, tmp_path, "true")
        assert (sound.verdict, sound.detail) == ("pass", "")
        # Opened by the shell itself, so before the counters are looked at.
        keep = "for n in /dev/dri/renderD*; do exec 9<$n; sleep 99 <&9 >/dev/null 2>&1 & done"
        with monkeypatch.context() as impatient:
            impatient.setattr(workload, "SETTLE_S", 0.5)
            held = in_trouble(vm, tmp_path, keep)
        assert held.verdict == "fail"
        assert re.match(r"the driver still holds .*live_svms 1", held.detail)
        vm.agent.check("killall sleep")
        splat_ = in_trouble(vm, tmp_path, "echo 'BUG: a test says so' >/dev/kmsg")
        assert splat_.verdict == "fail"
        assert "BUG: a test says so" in splat_.detail
        assert in_trouble(vm, tmp_path, "true").verdict == "pass"
        died = in_trouble(vm, tmp_path, "echo c >/proc/sysrq-trigger")
        assert died.verdict == "fail"
        assert "sysrq" in died.detail.lower()


def test_exceptions_of_the_workload(machine: Machine, tmp_path: Path) -> None:
    def run(body: str) -> workload.WorkloadOutcome:
        text = f'"""D."""\nSIZES = {{"tiny": {{}}, "small": {{}}, "large": {{}}}}\n{body}\n'
        (tmp_path / "mine.py").write_text(text)
        (one,) = workload.choose([str(tmp_path / "mine.py")])
        return workload.run_one(machine, one, "tiny")

    failed = run("def run(gpu):\n    assert 1 == 2, 'no'")
    assert (failed.verdict, failed.detail) == ("fail", "mine.py:4: AssertionError: no")
    for body, said in (
        ("def run(gpu):\n    return nothing", r"mine\.py:4: NameError: .*'nothing'"),
        ("import nothing\ndef run(gpu): ...", r"mine\.py:3: ModuleNotFoundError"),
        ("def run(gpu):\n    gpu.array([])", "without elements"),
    ):
        with pytest.raises(UsageError, match=said):
            run(body)
    assert [p.name for p in tmp_path.iterdir()] == ["mine.py"]


def test_a_job_without_end_fails(machine: Machine, tmp_path: Path) -> None:
    one = broken(tmp_path, "linked_list", "n->next)", "*(struct node *volatile *)&args->first)")
    outcome = workload.run_one(machine, one, "tiny", timeout=5.0)
    assert outcome.verdict == "fail"
    assert "did not answer in 5000 ms" in outcome.detail


def impatient_mailbox(tmp_path: Path, old: str, new: str) -> workload.Workload:
    """A broken copy that does not wait for a minute; ten seconds are very many rounds."""
    one = broken(tmp_path, "mailbox", old, new)
    text = one.path.read_text()
    assert text.count("PATIENCE, LOOK = 60.0,") == 1
    one.path.write_text(text.replace("PATIENCE, LOOK = 60.0,", "PATIENCE, LOOK = 10.0,"))
    return one


def test_a_mailbox_without_answers_fails(machine: Machine, tmp_path: Path) -> None:
    """One block waits for a turn that never comes: it is said which, and nothing hangs."""
    one = impatient_mailbox(
        tmp_path, "turn != 2 * r + 1", "turn != 2 * r + 1 + hmm_bid() * (r == 3)"
    )
    outcome = workload.run_one(machine, one, "tiny")
    assert outcome.verdict == "fail"
    assert re.match(r"a box had no answer for 10 s; rounds of each: \[\d+, 3\]", outcome.detail)


def test_a_mailbox_whose_gpu_side_dies_names_the_line(machine: Machine, tmp_path: Path) -> None:
    one = impatient_mailbox(
        tmp_path, "uint64_t turn;", "uint64_t turn = r == 5 ? *(volatile uint64_t *)8 : 0;"
    )
    outcome = workload.run_one(machine, one, "tiny")
    assert outcome.verdict == "fail"
    assert re.search(r"access fault at 0x8 .*mailbox\.c:\d+", outcome.detail)


def test_a_job_that_fails_names_its_line(machine: Machine, tmp_path: Path) -> None:
    one = broken(tmp_path, "saxpy", "y[i] = a * x[i] + y[i];",
                 "y[i] = a * x[i] + *(volatile float *)8;")  # fmt: skip
    line = next(
        n for n, text in enumerate((tmp_path / "saxpy.c").read_text().splitlines(), 1)
        if "volatile" in text
    )  # fmt: skip
    report = rf"saxpy: access fault at 0x8 .* saxpy\.c:{line}"
    with gpu.open(machine, folder=tmp_path) as g:
        x, k = g.zeros(64, np.float32), g.kernels("saxpy.c")
        with pytest.raises(gpu.JobFailed, match=report) as e:
            k.launch("saxpy", 1, 32, x, x, 64, 1.0)
    assert (e.value.error, e.value.line, e.value.address) == (errno.EFAULT, line, 8)
    assert (e.value.file, e.value.function) == ("saxpy.c", "saxpy")
    outcome = workload.run_one(machine, one, "tiny")
    assert outcome.verdict == "fail"
    assert f"saxpy.c:{line}" in outcome.detail


def test_a_kernel_without_end(machine: Machine, tmp_path: Path) -> None:
    """Ended by its budget, the next launch works; by the bench's patience, the session is over."""
    (tmp_path / "k.c").write_text(
        '#include "hmm_gpu_kernel.h"\nstruct args { uint64_t *x; };\n'
        "HMM_KERNEL(loop, struct args)\n{\n\twhile (*(volatile uint64_t *)args->x == 0)\n\t\t;\n}\n"
    )
    with gpu.open(machine, folder=tmp_path) as g:
        x, k = g.zeros(1, np.uint64), g.kernels("k.c")
        with pytest.raises(gpu.JobFailed, match=r"budget.*k\.c:5") as e:
            k.launch("loop", 1, 32, x, budget=10_000)
        assert e.value.error == errno.ETIME
        x.write(1)
        k.launch("loop", 1, 32, x)
        x.write(0)
        with pytest.raises(SessionError, match="did not answer"):
            k.launch("loop", 1, 32, x, timeout=0.5)
        with pytest.raises(SessionError, match="closed"):
            x.numpy()


def test_an_interrupt_leaves_nothing(
    machine: Machine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ctrl-C while a job runs that would go on for a minute: `clean` looks for what is left."""
    (tmp_path / "k.c").write_text(
        '#include "hmm_gpu_kernel.h"\nstruct args { uint64_t *x; };\n'
        "HMM_KERNEL(loop, struct args)\n{\n\targs->x[0] = 1;\n"
        "\tfor (;;)\n\t\thmm_compiler_barrier();\n}\n"
    )
    real = Channel.collect

    def interrupted(self: Channel, *_: object) -> tuple[int, bytes]:
        # The request is on its way, the answer is not: once.
        monkeypatch.setattr(Channel, "collect", real)
        raise KeyboardInterrupt

    def work() -> None:
        with gpu.open(machine, folder=tmp_path, vram=9) as g:
            job = g.kernels("k.c").launch("loop", 1, 1, g.zeros(1, np.uint64), wait=False)
            monkeypatch.setattr(Channel, "collect", interrupted)
            job.wait(timeout=300)

    with pytest.raises(KeyboardInterrupt):
        work()
    # With the agent still waiting for the job this would have no answer.
    assert machine.agent.execute("echo here").output == "here\n"


def test_arrays(machine: Machine) -> None:
    with gpu.open(machine) as g:
        data = np.arange(12, dtype=np.int16).reshape(3, 4)
        x = g.array(data)
        assert x.numpy().dtype == np.int16
        assert (x.numpy() == data).all()
        big = g.array(np.arange(3_000_000, dtype=np.uint32), "anon")  # in more than one message
        assert big.to_device()[0] > 0
        assert big.in_vram() > 0.9
        assert big.numpy()[-1] == 2_999_999
        assert big.in_vram() < 0.1
        other = g.empty(big.shape, big.dtype, "shared")
        g.copy(other, big)
        assert (other.numpy() == big.numpy()).all()
        with pytest.raises(UsageError, match="do not fit"):
            g.copy(x, big)
        big.free()
        assert g.footprint == x.nbytes + other.nbytes
        with pytest.raises(UsageError, match="no memory 'vram'"):
            g.empty(1, np.int8, "vram")
        with pytest.raises(SessionError, match="allocating"):
            g.empty(1 << 40, np.int64, "stack")
        assert (x.numpy() == data).all(), "a refused request is not the end"


def test_what_can_be_in_vram(machine: Machine, tmp_path: Path) -> None:
    """Pages, each once; the factor of --vram is of them."""
    (tmp_path / "k.c").write_text(
        '#include "hmm_gpu_kernel.h"\nstruct args { uint64_t *x; };\n'
        "HMM_KERNEL(one, struct args)\n{\n\targs->x[0] = 1;\n}\n"
    )
    with gpu.open(machine, folder=tmp_path, vram=0.5) as g:
        first = g.zeros(8, np.uint64, "stack")
        g.zeros(8, np.uint64, "stack")
        assert g.movable == 1, "neighbours on one page"
        g.zeros(8192, np.uint8, "shared")
        g.zeros(8192, np.uint8, "file", "/tmp/hmmbench-test.bin")
        machine.agent.check("rm /tmp/hmmbench-test.bin")
        assert g.movable == 1, "these stay where they are"
        big = g.zeros(40 * 4096, np.uint8, "anon")
        kernels = g.kernels("k.c")
        assert g.movable == 1 + 40 + 1
        kernels.launch("one", 1, 1, first)
        assert g.vram_pages == 21
        big.free()
        g.claim(5000)
        assert g.movable == 1 + 1 + 2
        assert g.most_movable == 42
        kernels.launch("one", 1, 1, first)
        assert g.vram_pages == 2


def test_a_file_that_does_not_compile(machine: Machine, tmp_path: Path) -> None:
    (tmp_path / "k.c").write_text("int x = nothing;\n")
    with gpu.open(machine, folder=tmp_path) as g, pytest.raises(CompileError, match=r"k\.c:1:9"):
        g.kernels("k.c")


def test_the_command(
    spec: MachineSpec, artifacts: Artifacts, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    monkeypatch.setattr(command, "ensure", lambda *_: artifacts)
    broken(tmp_path, "saxpy", "a * x[i] + y[i]", "a * x[i]")
    out = tmp_path / "out.json"
    names = ["spmv", str(tmp_path / "saxpy.py"), "reduction"]
    status = command.main(
        names, everything=False, size=command.Size.tiny, vram="2", sweep=None, plot=None,
        limit=60.0, audit=command.options.Audit.fill, kernel="lts",
        kernel_build=None, json_file=out, list_only=False,
    )  # fmt: skip
    data = json.loads(out.read_text())
    assert status == 1
    assert [(w["name"], w["verdict"]) for w in data["workloads"]] == [
        ("spmv", "pass"), ("saxpy", "fail"), ("reduction", "pass")
    ]  # fmt: skip
    assert data["workloads"][0]["vram_pages"] == 2
    assert data["workloads"][0]["counters"]["pages_evicted"] > 0
    assert data["not_run"] == []
    assert "2 of 3 passed" in capsys.readouterr().out


def command_of(
    artifacts: Artifacts, monkeypatch: pytest.MonkeyPatch, names: list[str], out: Path,
    **options: object,
) -> tuple[int, list[dict[str, Any]]]:  # fmt: skip
    """The command at size tiny: its exit status, and the runs of its JSON."""
    monkeypatch.setattr(command, "ensure", lambda *_: artifacts)
    usual = {"everything": False, "size": command.Size.tiny, "vram": None, "sweep": None,
             "limit": 60.0, "audit": command.options.Audit.off, "kernel": "lts",
             "kernel_build": None, "list_only": False}  # fmt: skip
    status = command.main(
        names, **(usual | options), plot=out / "plots", json_file=out / "out.json"
    )  # type: ignore[arg-type]
    return status, json.loads((out / "out.json").read_text())["workloads"]


def test_a_sweep_across_the_limit_of_vram(
    artifacts: Artifacts, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    """All of the runs have the VRAM that the first one needs; the largest does not fit."""
    status, ran = command_of(
        artifacts, monkeypatch, ["training"], tmp_path, sweep="batch=4,16,64"
    )
    assert status == 0
    assert [r["arguments"]["batch"] for r in ran] == [16, 4, 64]
    assert len({r["vram_pages"] for r in ran}) == 1
    assert ran[0]["movable"] == ran[0]["vram_pages"]
    assert ran[2]["movable"] > ran[2]["vram_pages"]
    assert ran[2]["story"]["evictions"] > ran[1]["story"]["evictions"]
    assert all(r["figures"]["images/s"] > 0 for r in ran)
    drawn = (tmp_path / "plots" / "training.svg").read_text()
    assert "images/s" in drawn
    assert "does not fit" in drawn
    assert "training.svg" in capsys.readouterr().out


def test_amounts_of_vram_and_a_first_run_that_fails(
    artifacts: Artifacts, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    status, ran = command_of(
        artifacts, monkeypatch, ["max_flow"], tmp_path, vram="0.5x,1x,all"
    )
    assert status == 0
    assert [r["words"] for r in ran] == ["0.5x", "1x", "all VRAM"]
    assert ran[0]["vram_pages"] < ran[1]["vram_pages"]
    assert ran[2]["vram_pages"] is None
    assert ran[0]["story"]["evictions"] > 0 == ran[2]["story"]["evictions"]
    assert (tmp_path / "plots" / "max_flow.svg").is_file()

    broken(tmp_path, "saxpy", "a * x[i] + y[i]", "a * x[i]")
    status, ran = command_of(
        artifacts, monkeypatch, [str(tmp_path / "saxpy.py")], tmp_path, sweep="n=100,200"
    )
    assert status == 1
    assert [r["verdict"] for r in ran] == ["fail", "error", "error"]
    assert ran[1]["detail"].startswith("not run")
    assert "too few runs passed" in capsys.readouterr().out


# ---- docs/writing-workloads.md ----


def blocks(language: str) -> list[str]:
    text = (paths.project_root() / "docs" / "writing-workloads.md").read_text()
    return re.findall(rf"```{language}\n(.*?)```", text, re.DOTALL)


def test_the_example_of_the_page(machine: Machine, tmp_path: Path) -> None:
    """As a newcomer does it: two files, then the workload by its path."""
    (tmp_path / "dot.c").write_text(blocks("c")[0])
    (tmp_path / "dot.py").write_text(blocks("python")[0])
    (one,) = workload.choose([str(tmp_path / "dot.py")])
    assert one.what.startswith("A dot product")
    for size in ("tiny", "small"):
        outcome = workload.run_one(machine, one, size)
        assert (outcome.verdict, outcome.detail) == ("pass", "")


def test_the_session_of_the_page() -> None:
    done = subprocess.run(
        [sys.executable, "-c", blocks("python")[1]],
        capture_output=True, text=True, timeout=300, check=False, env=os.environ,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert re.search(r"^faults: [1-9]\d*$", done.stdout, re.MULTILINE)
    assert done.stdout.endswith("last: 1998.0\n")
