# SPDX-License-Identifier: GPL-2.0-or-later
"""The Python side of the protocol against the C side, and its encoding against itself."""

from __future__ import annotations

import random
import re
from pathlib import Path

import pytest
from c_layout import PROTOCOL, USER, Layout, numbers

from hmmbench.base import paths
from hmmbench.campaign.generate import program, size_of
from hmmbench.device import cheader
from hmmbench.guest import example as E
from hmmbench.guest import program as P
from hmmbench.model import ops
from hmmbench.model.ops.jobs import CpuAccess
from hmmbench.model.ops.processes import Nop
from hmmbench.vm import channel

HEADER = numbers(*PROTOCOL)
UAPI = cheader.load(paths.driver_sources() / "include" / "uapi" / "hmm_gpu_drm.h")
HW = cheader.hardware()


def families() -> dict[str, dict[int, tuple[str, str]]]:
    """The tables of the agent's operations: family -> number -> name and flags."""
    entry = re.compile(r'^\t\{ (\d+), "(\w+)", \w+, ([\w |]+), \w+ \},$', re.M)
    return {
        file.stem: {int(n): (name, flags) for n, name, flags in entry.findall(file.read_text())}
        for file in sorted(Path(USER / "agent/ops").glob("*.c"))
    }


def test_operations_are_those_of_the_agent() -> None:
    """Family by family: numbers, names, and who may do them."""
    agent = families()
    for family in ops.FAMILIES:
        name = family.__name__.rpartition(".")[2]
        ours = {number: o for number, o in ops.OPERATIONS.items() if o in family.OPERATIONS}
        theirs = agent.pop(name)
        assert {number: o.name for number, o in ours.items()} == {
            number: said for number, (said, _) in theirs.items()
        }
        for number, (said, flags) in theirs.items():
            assert ours[number].main_only or "OP_MAIN_ONLY" not in flags, said
            assert "OP_GPU" in flags or not ours[number].uses_gpu, said
    assert agent == {}


@pytest.mark.parametrize(
    ("prefix", "enum"), [("HB_MAP_", P.MapKind), ("HB_ACC_", P.Acc), ("HB_AST_", P.Ast)]
)
def test_enumerations_are_those_of_the_header(prefix: str, enum: type[P.MapKind]) -> None:
    assert {e.name: e.value for e in enum} == {
        name.removeprefix(prefix): v for name, v in HEADER.items() if name.startswith(prefix)
    }


def test_fields_of_a_program() -> None:
    first = P.Op(1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, [(1, 2, 3, 4, 5, 6)])
    second = P.Op(21, acc=[(7, 8, 9, 10, 11, 12), (0, 0, 0, 0, 0, 0)])
    sent = P.Program([first, second], (1, 2, 3, 4), 5, 6, 7, 8, again=9)
    data = sent.encode()
    head, op, access = Layout("hb_program"), Layout("hb_op"), Layout("hb_access")
    assert head.unpack(data) == {
        "version": HEADER["HB_PROTOCOL_VERSION"], "nops": 2, "naccesses": 3, "flags": 7,
        "timeout_ms": 5, "settle_ms": 6, "file_pages0": 1, "file_pages1": 2, "file_pages2": 3,
        "file_pages3": 4, "seed": 8, "again": 9, "pad": 0,
    }  # fmt: skip
    at = head.form.size
    for o, accesses in ((first, 0), (second, 1)):
        fields = op.unpack(data, at)
        assert fields.pop("access_first") == accesses
        assert fields.pop("access_count") == len(o.acc)
        assert fields == {name: getattr(o, name) for name in fields}
        at += op.form.size
    assert list(access.unpack(data, at)) == ["kind", "region", "lane", "off", "value", "expect"]
    assert list(access.unpack(data, at).values()) == [1, 2, 3, 4, 5, 6]
    assert P.Program.decode(data) == sent


def test_fields_of_a_result() -> None:
    sent = P.Program([P.Op(0, acc=[(0, 0, 0, 0, 0, 0)])])
    head = Layout("hb_result").pack(
        version=P.PROTOCOL_VERSION, nops=1, naccesses=1, data_len=4, counters_before_len=2,
        counters_after_len=3, timeout=1, live_nonzero=1, elapsed_ns=5, died=6, died_signal=7,
        stuck=8, strays=9,
    )  # fmt: skip
    op = Layout("hb_op_result").pack(
        status=-1, gpu_status=2, reason=3, data_off=1, data_len=3, start_lo=4, aux0=5, aux1=6,
        fault_addr=7, fault_region=-8, start_hi=9, time_ns=10,
    )  # fmt: skip
    access = Layout("hb_access_result").pack(value=11, status=12, order=13)
    got = P.Result.decode(head + op + access + b"abcd" + b"be" + b"aft", sent)
    assert got == P.Result(
        [P.OpResult(-1, 2, 3, 5, 6, 7, -8, 10, b"bcd", [(11, 12, 13)], 9 << 32 | 4)],
        1, True, 5, 6, 7, 8, "be", "aft", False, 9,
    )  # fmt: skip


def test_fields_of_an_example() -> None:
    sent = E.Example(P.Program([]), "ab", 7, points=True, watch_ms=5)
    fields = Layout("hb_example").unpack(sent.encode())
    assert fields == {
        "flags": E.EF_DELAYS | E.EF_VRAM | E.EF_POINTS | E.EF_WATCH, "delays_len": 2,
        "program_len": len(sent.program.encode()), "watch_ms": 5, "vram_limit": 7, "pad2": 0,
    }  # fmt: skip
    result = P.Result([]).encode()
    head = Layout("hb_example_result").pack(
        program_len=len(result), counters_len=1, points_len=2, mark=9
    )
    got = E.Answer.decode(head + result + b"c" + b"po", sent.program)
    assert (got.counters, got.points, got.mark) == ("c", "po", 9)


def test_fields_of_a_message() -> None:
    data = channel.HEADER.pack(1, 2, 3, 4, 0)
    assert Layout("hb_header").unpack(data) == {
        "magic": 1, "type": 2, "id": 3, "len": 4, "pad": 0,
    }  # fmt: skip


def test_sizes_are_those_that_hello_answers() -> None:
    for name, size in (P.STRUCT_SIZES | E.STRUCT_SIZES).items():
        assert Layout(f"hb_{name}").form.size == size


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
    assert (HW.HG_ERR_BUS, HW.HG_REASON_POISON) == (P.ERR_BUS, P.REASON_POISON)


def test_a_program_survives_the_wire() -> None:
    p = program(random.Random(3).randbytes(size_of(60)), seed=9)
    assert P.Program.decode(p.encode()).encode() == p.encode()


def test_a_result_survives_the_wire() -> None:
    p = P.Program([P.Op(CpuAccess.number, acc=[(0, 0, 0, 0, 0, 0)] * 3), P.Op(0)])
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
    p = P.Program([P.Op(Nop.number)])
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
    p = P.Program([P.Op(Nop.number), P.Op(Nop.number)])
    data = P.Result([P.OpResult(data=b"abc"), P.OpResult()]).encode()
    with pytest.raises(ValueError, match="result"):
        P.Result.decode(data[:cut], p)
    with pytest.raises(ValueError, match="program"):
        P.Program.decode(p.encode()[:cut])


def test_a_program_that_is_too_large_is_refused() -> None:
    with pytest.raises(ValueError, match="too large"):
        P.Program([P.Op(0) for _ in range(P.MAX_OPS + 1)]).encode()
