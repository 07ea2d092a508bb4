# SPDX-License-Identifier: GPL-2.0-or-later
"""Scenes: the GPU's file outlives the memory that it mirrors."""

from __future__ import annotations

from hmmbench.guest.program import F_NOWAIT, Op
from hmmbench.model.drawing import Draw
from hmmbench.model.scenes import ENDLESS
from hmmbench.model.space import Process

#: How long what comes after exec keeps the file, in microseconds.
_LEFT = (0, 200, 1000, 3000)


def _someone_else(g: Draw, proc: Process) -> Process | None:
    """Another process with memory, which is made if there is none."""
    others = [p for p in g.space.alive() if p is not proc]
    if not others and (n := g.next_proc()) and g.first([g.op("spawn", proc, arg=n)]):
        others = [g.space.procs[n]]
    if not others:
        return None
    other = g.rng.choice(others)
    if not other.vmas:
        g.first(g.draw("mmap", other))
    return other if other.vmas else None


def passed_on(g: Draw, proc: Process) -> list[Op]:
    """A process gives its GPU away, and ends or goes on; who has it uses it, then closes it."""
    rng = g.rng
    other = _someone_else(g, proc)
    if other is None:
        return [g.op("send_gpu", proc)]
    # Something that the mirror has when its memory goes.
    g.first(g.draw("gpu_access", proc))
    if not g.first([g.op("send_gpu", proc)]):
        return g.draw("use_held", other) if other.held else []
    taken = rng.random() < 0.7 and g.first([g.op("receive_gpu", other)])
    if taken:
        g.after = [o for _ in range(rng.choice((1, 2, 3))) for o in g.draw("use_held", other)]
        g.after[0].arg = rng.choice((1, 2, 3, 4))
    elif rng.random() < 0.5:
        g.after = [g.op("receive_gpu", other), *g.draw("use_held", other)]
    # The next to open gets what is free, and not what is kept.
    g.after += g.draw("gpu_access", other)
    if rng.random() < 0.7:
        g.after.append(g.ranged("use_held", other, other.vmas[0].start, other.vmas[0].start + 1))
    if rng.random() < 0.3:
        g.first([g.op("gpu_spin", proc, flags=F_NOWAIT, a=ENDLESS)])
    r = rng.random()
    if r < 0.25:
        return [g.op("kill", other, arg=proc.number)]
    if r < 0.45:
        return [g.op("exit", proc)]
    if r < 0.65:
        return [g.op("exec", proc, a=rng.choice(_LEFT))]
    if r < 0.85:
        return [g.op("close_gpu", proc)]
    # Who was given it ends, and this one goes on.
    g.after = g.draw("gpu_access", proc)
    return [g.op("exit", other)]
