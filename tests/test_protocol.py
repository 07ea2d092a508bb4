# SPDX-License-Identifier: GPL-2.0-or-later
"""The Python side of the protocol against the headers, and its encoding against itself."""

from __future__ import annotations

import random

import pytest

from hmmbench.base import paths
from hmmbench.campaign.generate import program, size_of
from hmmbench.device import cheader
from hmmbench.guest import example as E
from hmmbench.guest import program as P

HEADER = cheader.load(paths.user_sources() / "agent" / "protocol.h")
UAPI = cheader.load(paths.driver_sources() / "include" / "uapi" / "hmm_gpu_drm.h")
HW = cheader.load(paths.device_sources() / "include" / "hmm_gpu_hw.h")


@pytest.mark.parametrize(
    ("prefix", "enum"),
    [("HB_OP_", P.OpKind), ("HB_MAP_", P.MapKind), ("HB_ACC_", P.Acc), ("HB_AST_", P.Ast)],
)
def test_enumerations_are_those_of_the_header(prefix: str, enum: type[P.OpKind]) -> None:
    assert {e.name: e.value for e in enum} == {
        n: v for v, n in HEADER.names(prefix).items()
    }


@pytest.mark.parametrize(
    "name",
    ["PROTOCOL_VERSION", "MAX_PROCS", "MAX_ACTORS", "MAX_REGIONS", "MAX_FILES", "MAX_OPS",
     "MAX_ACCESSES", "REGION_BASE", "REGION_SIZE", "STACK_PAGES", "GLOBAL_PAGES", "PF_COUNTERS",
     "F_CTX1", "F_NOWAIT", "RES_SKIPPED", "RES_KILLED", "BUSY_TIMES", "TIMEOUT_STILL",
     "TIMEOUT_BUSY"],
)  # fmt: skip
def test_constants_are_those_of_the_header(name: str) -> None:
    assert getattr(P, name) == HEADER[f"HB_{name}"]


def test_constants_of_driver_and_device() -> None:
    for name in ("MIGRATE_SYSTEM", "MIGRATE_DEVICE", "MIGRATE_MAP", "POLICY_MAP",
                 "POLICY_MIGRATE", "POLICY_EXCLUSIVE", "Q_GPU_VALID", "Q_GPU_WRITE",
                 "Q_GPU_ATOMIC", "Q_GPU_VRAM", "Q_GPU_HUGE", "Q_GPU_EXCLUSIVE",
                 "Q_CPU_READ", "Q_CPU_WRITE", "Q_CPU_DEVICE",
                 "Q_CPU_ERROR"):  # fmt: skip
        assert getattr(P, name) == UAPI[f"HMM_GPU_{name}"]
    assert HW.HG_ERR_FAULT == P.ERR_FAULT


def test_a_program_survives_the_wire() -> None:
    p = program(random.Random(3).randbytes(size_of(60)), seed=9)
    assert P.Program.decode(p.encode()).encode() == p.encode()


def test_a_result_survives_the_wire() -> None:
    p = P.Program([P.Op(P.OpKind.CPU_ACCESS, acc=[(0, 0, 0, 0, 0, 0)] * 3), P.Op(0)])
    r = P.Result(
        [P.OpResult(-14, 1, 2, 3, 4, 5, -1, 7, b"abcd", [(1, 1, 0), (2, 1, 1), (3, 2, 2)]),
         P.OpResult(data=b"xy")],
        P.TIMEOUT_BUSY, True, 12, 3, 9, 1, "before", "after",
    )  # fmt: skip
    assert P.Result.decode(r.encode(), p) == r


def test_the_flags_of_examples_are_those_of_the_header() -> None:
    for name in ("EF_DELAYS", "EF_VRAM", "EF_POINTS", "EF_STAND"):
        assert getattr(E, name) == HEADER[f"HB_{name}"]


@pytest.mark.parametrize("points", [True, False])
@pytest.mark.parametrize("delays", [None, "", "clear\nfault 5\n"])
@pytest.mark.parametrize("vram", [None, 0, 2**64 - 1])
def test_an_example_survives_the_wire(points: bool, delays: str | None, vram: int | None) -> None:
    p = program(random.Random(4).randbytes(size_of(20)), seed=9)
    e = E.Example(p, delays, vram, points, stand=not points)
    again = E.Example.decode(e.encode())
    assert again.encode() == e.encode()
    assert (again.delays, again.vram, again.points, again.stand) == (
        delays, vram, points, not points
    )  # fmt: skip


def test_an_examples_answer_survives_the_wire() -> None:
    p = P.Program([P.Op(P.OpKind.NOP)])
    a = E.Answer(P.Result([P.OpResult(data=b"xy")]), "live 0\n", "point 1 2 3\n", 7)
    data = a.encode()
    assert E.Answer.decode(data, p) == a
    for cut in (0, 15, 16, 40, -1):
        with pytest.raises(ValueError, match="example's answer"):
            E.Answer.decode(data[:cut], p)
        with pytest.raises(ValueError, match="example"):
            E.Example.decode(E.Example(p).encode()[:cut])


@pytest.mark.parametrize("cut", [0, 10, 64, 100, -1])
def test_malformed_answers_are_refused(cut: int) -> None:
    p = P.Program([P.Op(P.OpKind.NOP), P.Op(P.OpKind.NOP)])
    data = P.Result([P.OpResult(data=b"abc"), P.OpResult()]).encode()
    with pytest.raises(ValueError, match="result"):
        P.Result.decode(data[:cut], p)
    with pytest.raises(ValueError, match="program"):
        P.Program.decode(p.encode()[:cut])


def test_a_program_that_is_too_large_is_refused() -> None:
    with pytest.raises(ValueError, match="too large"):
        P.Program([P.Op(0) for _ in range(P.MAX_OPS + 1)]).encode()
