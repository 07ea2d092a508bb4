# SPDX-License-Identifier: GPL-2.0-or-later
"""The mapping oracle on answers to QUERY: atomics on pages that are not exclusively the GPU's."""

from __future__ import annotations

import struct

import pytest

from hmmbench.guest import program as p
from hmmbench.guest.program import MapKind, Op, OpResult, Program, Result
from hmmbench.model import ops
from hmmbench.model.ops.jobs import CloseGpu
from hmmbench.model.ops.mapping import Mmap, Mremap, Munmap
from hmmbench.model.ops.moving import Policy, Query
from hmmbench.model.space import HUGETLB, SHARED, Space
from hmmbench.oracle import mapping
from hmmbench.oracle.values import Checker

FILES = (4, 0, 0, 0)
GPU = p.Q_GPU_VALID | p.Q_GPU_WRITE
BOTH = GPU | p.Q_GPU_ATOMIC | p.Q_CPU_READ | p.Q_CPU_WRITE
MAP, EXCLUSIVE = p.POLICY_MAP, p.POLICY_MAP | p.POLICY_EXCLUSIVE


def mmap(pages: int = 1, kind: MapKind = MapKind.ANON_PRIVATE, at: int = 0) -> Op:
    return Op(Mmap.number, arg=kind, off=at * p.PAGE, len=pages * p.PAGE, a=p.PROT_RW)


def policy(value: int, **more: int) -> Op:
    return Op(Policy.number, arg=value, **more)  # type: ignore[arg-type]


def asked(q: int, *before: Op) -> str:
    """What the oracle says of one page's answer after these operations."""
    space = Space(FILES)
    for o in before:
        ops.apply(space, o)
    result = OpResult(data=struct.pack("<I", q))
    return mapping.check(space, Op(Query.number, len=p.PAGE), result)


@pytest.mark.parametrize("kind", list(MapKind))
def test_a_page_that_is_being_taken(kind: MapKind) -> None:
    """Its entry of the CPU's is exclusive and looks like none, and the GPU's has no atomics yet.

    The kernel takes what is anonymous: also the GPU's copy of a private file's page.
    """
    shared = kind in SHARED | HUGETLB
    wrong = "the CPU may only read"
    page = mmap(512, kind)
    taken = asked(GPU, page, policy(EXCLUSIVE))
    assert (wrong in taken) if shared else taken == ""
    assert wrong in asked(GPU, page)
    assert wrong in asked(GPU, page, policy(EXCLUSIVE), Op(CloseGpu.number))
    assert wrong in asked(GPU, page, policy(EXCLUSIVE), Op(CloseGpu.number), policy(MAP))
    assert wrong in asked(GPU | p.Q_CPU_READ, page, policy(EXCLUSIVE))
    assert asked(GPU | p.Q_GPU_VRAM, page, policy(EXCLUSIVE))


def test_a_page_that_is_taken_when_the_policy_has_ended() -> None:
    """The fault was being served: it takes its page with atomics, and keeps it until asked."""
    late = GPU | p.Q_GPU_ATOMIC
    assert asked(late, mmap(), policy(EXCLUSIVE), policy(MAP)) == ""
    assert asked(late, mmap(), policy(EXCLUSIVE), policy(MAP), policy(MAP)) == ""
    assert "the CPU may only read" in asked(late, mmap(), policy(MAP))


@pytest.mark.parametrize("mode", [EXCLUSIVE, p.POLICY_MIGRATE | p.POLICY_EXCLUSIVE])
def test_atomics_beside_the_cpu(mode: int) -> None:
    assert "not exclusively its own" in asked(BOTH, mmap(), policy(mode))


def test_the_cpu_need_not_have_touched_it() -> None:
    assert asked(BOTH, policy(EXCLUSIVE), mmap())


@pytest.mark.parametrize(
    "q",
    [
        BOTH & ~p.Q_GPU_ATOMIC,
        BOTH | p.Q_GPU_EXCLUSIVE,
        BOTH | p.Q_GPU_VRAM | p.Q_CPU_DEVICE,
        p.Q_CPU_READ,
        0,
    ],
)
def test_what_is_permitted(q: int) -> None:
    assert asked(q, mmap(), policy(EXCLUSIVE)) == ""


@pytest.mark.parametrize(
    "before",
    [
        [mmap()],
        [mmap(), policy(EXCLUSIVE), policy(MAP)],
        [mmap(), policy(EXCLUSIVE), Op(CloseGpu.number)],
        [mmap(1, MapKind.ANON_SHARED), policy(EXCLUSIVE)],
        [mmap(1, MapKind.FILE_PRIVATE), policy(EXCLUSIVE)],
        [mmap(512), policy(EXCLUSIVE)],
        # a piece of what had room for a 2 MiB page, and neighbours that have it together
        [mmap(512), Op(Munmap.number, off=p.PAGE, len=511 * p.PAGE), policy(EXCLUSIVE)],
        [mmap(1, at=0), mmap(511, at=1), policy(EXCLUSIVE)],
        [
            mmap(512, at=512),
            Op(Mremap.number, off=512 * p.PAGE, len=p.PAGE, arg=0, a=0, b=p.PAGE),
            policy(EXCLUSIVE),
        ],
    ],
)
def test_where_no_exclusive_access_is_due(before: list[Op]) -> None:
    assert asked(BOTH, *before) == ""


def test_of_two_policies_at_once_neither_is_relied_on() -> None:
    for racing, wrong in ((0, True), (1, False)):
        ops = [
            mmap(),
            policy(EXCLUSIVE, phase=1),
            policy(EXCLUSIVE, phase=1, actor=racing),
            Op(Query.number, len=p.PAGE, phase=2),
        ]
        results = [OpResult(), OpResult(), OpResult(), OpResult(data=struct.pack("<I", BOTH))]
        assert bool(Checker(Program(ops, FILES), Result(results)).run()) == wrong
